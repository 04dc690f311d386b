"""Storage in an object store, or any other store that fsspec supports: s3://, gs://, az://, …"""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any
from urllib.parse import quote, unquote

from penstock.common.masking import masked_text
from penstock.state.storage import AlreadyPublished, MissingObject, Storage, StorageError, checked, checked_prefix

__all__ = ["NoConditionalPut", "ObjectStorage"]


class NoConditionalPut(StorageError):
    """The store cannot reject overwriting an object, so two drivers could both believe that they published one.

    Operator action: use a store with conditional puts (S3 with If-None-Match, and compatible stores), or a directory
    that is mounted on every host.
    """


_FIX = "Use a store with conditional puts, such as S3, or a directory that is mounted on every host."

_GONE = (FileNotFoundError, IsADirectoryError, NotADirectoryError)

# Of this many concurrent publishers exactly one must win; otherwise the store is rejected.
_RIVALS = 4

# S3 answers "conflict" while another conditional put of the same name is in progress; a retry sees its outcome.
_CONFLICTS = 10

# memory:// is an unsynchronized dict, for tests.
_memory = threading.RLock()


class ObjectStorage(Storage):
    """A location below an fsspec URI. Nothing is imported until the first use.

    `options` are passed to the file system class unchanged and can contain secrets: they are part of `uri`, but of
    nothing that is displayed. fsspec keeps one file system per process, so none is shared across a fork. Its listing
    caches are disabled.
    """

    far = True

    def __init__(self, root: str, options: Mapping[str, Any] | None = None) -> None:
        scheme, separator, path = root.partition("://")
        # Show only the scheme of an invalid URI: the rest might contain a password.
        if not separator or not scheme or not path.strip("/") or "::" in root:
            raise StorageError(f"Not a storage URI (scheme '{scheme[:10]}').", fix="Write scheme://bucket/path.")
        if ":" in path.split("/")[0].rpartition("@")[0]:
            raise StorageError(
                f"The {scheme}: URI contains a password, but URIs appear in messages and logs.",
                fix="Remove it and set it with state.checkpoints.fs.*, or let the environment provide it.",
            )
        if any(letter in path for letter in "#?*["):
            raise StorageError(
                f"The {scheme}: URI contains one of # ? * [, which have a special meaning to stores.",
                fix="Choose a path without them.",
            )
        self._root = root.rstrip("/")
        self._scheme = scheme
        self._options = dict(options or {})
        self._guard: AbstractContextManager[Any] = _memory if scheme == "memory" else nullcontext()

    def __repr__(self) -> str:
        return f"ObjectStorage({self._root!r})"

    @classmethod
    def from_uri(cls, uri: str) -> ObjectStorage:
        """Open the storage with the given `uri`, including its options."""
        root, _, options = uri.partition("#")
        return cls(root, json.loads(unquote(options)) if options else None)

    def below(self, name: str) -> ObjectStorage:
        """Return the storage of all objects below a name."""
        return ObjectStorage(f"{self._root}/{checked(name)}", self._options)

    @property
    def uri(self) -> str:
        return f"{self._root}#{quote(json.dumps(self._options))}" if self._options else self._root

    @property
    def where(self) -> str:
        return self._root

    def check(self) -> None:
        """Check also that of several concurrent publishers exactly one wins."""
        files = self._files
        # fsspec's default implementation checks for the name and then writes: two callers can pass the check at once.
        if _inherits_pipe_file(files):
            raise self._no_conditional_put("fsspec does not support it for this store")
        name = f"probe-{secrets.token_hex(8)}"
        barrier = threading.Barrier(_RIVALS)

        def publish(number: int) -> int | None:
            barrier.wait()
            try:
                self.publish(name, b"%d" % number)
                return number
            except AlreadyPublished:
                return None

        try:
            with ThreadPoolExecutor(_RIVALS) as pool:
                winners = [number for number in pool.map(publish, range(_RIVALS)) if number is not None]
            again = _publishes_again(self, name)
            if len(winners) != 1 or again or self.read(name) != b"%d" % winners[0]:
                raise self._no_conditional_put(f"of {_RIVALS + 1} puts of one name {len(winners) + again} succeeded")
            if self.list(name) != [name]:
                raise StorageError(
                    f"{self.where} does not list an object that was just written, so the last checkpoint could not be "
                    f"found.",
                    fix="Use a store with consistent listings.",
                )
        finally:
            with suppress(StorageError):
                self.delete(name)

    def publish(self, name: str, data: bytes) -> None:
        path = self._path(name)
        for _ in range(_CONFLICTS):
            try:
                with self._guard:
                    self._files.pipe_file(path, data, mode="create")
                return
            except Exception as error:  # stores raise their own exceptions; the stored object shows what happened
                failure = error
            # A request that was retried gets "exists" if its first attempt succeeded. Published data contains a token
            # unique to the caller, so if the stored bytes are ours, it did.
            found = self._found(name, failure)
            if found == data:
                return
            if found is not None:
                raise AlreadyPublished(name, self.where)
            if "Conflict" not in str(failure) and not isinstance(failure, FileExistsError):
                break
        raise self._failed("write", name, failure) from None

    def write(self, name: str, data: bytes) -> None:
        path = self._path(name)
        with self._store_errors("write", name), self._guard:
            self._files.pipe_file(path, data)

    def read(self, name: str, at_most: int | None = None) -> bytes:
        path = self._path(name)
        with self._store_errors("read", name), self._guard:
            try:
                if at_most is not None:
                    size = int(self._files.info(path)["size"] or 0)
                    if size > at_most:
                        raise self._too_large(name, size, at_most)
                return bytes(self._files.cat_file(path))
            except _GONE:
                pass
            except FileExistsError:
                # memory:// raises this for a name below an object's name.
                pass
        raise MissingObject(name, self.where)

    def exists(self, name: str) -> bool:
        path = self._path(name)
        with self._store_errors("look up", name), self._guard:
            try:
                # Not `isfile`, which returns False if the store does not answer.
                return bool(self._files.info(path)["type"] == "file")
            except _GONE:
                return False

    def list(self, prefix: str) -> list[str]:
        directory = checked_prefix(prefix).rpartition("/")[0]
        with self._store_errors("list", prefix), self._guard:
            files = self._files
            base = self._base(files)
            files.invalidate_cache()
            try:
                found = files.find(f"{base}/{directory}".rstrip("/"))
            except _GONE:
                return []
        names = (path.removeprefix(f"{base}/") for path in found)
        return sorted(name for name in names if name.startswith(prefix))

    def delete(self, name: str) -> None:
        path = self._path(name)
        with self._store_errors("delete", name), self._guard, suppress(*_GONE):
            self._files.rm_file(path)

    def delete_all(self, names: Iterable[str]) -> None:
        paths = [self._path(name) for name in names]
        with self._store_errors("delete", "several objects"), self._guard:
            self._remove(paths)

    def delete_below(self, directory: str) -> None:
        names = self.list(f"{directory}/")
        with self._store_errors("delete", directory), self._guard:
            base = self._base(self._files)
            self._remove([f"{base}/{name}" for name in names])

    def _remove(self, paths: Sequence[str]) -> None:
        if not paths:
            return
        files = self._files
        try:
            # In one call: S3 accepts a thousand names per request.
            files.rm(paths)
        except _GONE:
            # A store without such a request stops at an object that another process has removed.
            for path in paths:
                with suppress(*_GONE):
                    files.rm_file(path)

    @property
    def _files(self) -> Any:
        """The fsspec file system of this process, or of this thread if it is not thread-safe."""
        try:
            import fsspec
        except ModuleNotFoundError:
            raise StorageError(
                f"Checkpoints in {self._root} need the package fsspec, which is not installed.",
                fix=f"pip install 'penstock[{'s3' if self._scheme in ('s3', 's3a') else 'objects'}]'",
            ) from None
        try:
            return fsspec.filesystem(self._scheme, use_listings_cache=False, **self._options)
        except (ImportError, ValueError) as error:
            raise self._no_package(error) from None
        except Exception as error:  # exceptions of the class: a wrong option, a bad endpoint
            raise StorageError(
                f"Cannot open {self._root}: {self._scrubbed(error)}.",
                fix="Correct state.checkpoints.dir or the options state.checkpoints.fs.*.",
            ) from None

    def _no_package(self, error: Exception) -> StorageError:
        from fsspec.registry import known_implementations

        known = known_implementations.get(self._scheme)
        if known is None:
            return StorageError(
                f"fsspec does not support the scheme '{self._scheme}'.",
                fix="Use a path, or a URI such as s3://bucket/path.",
            )
        if isinstance(error, ValueError):
            return StorageError(f"Cannot open {self._root}: {self._scrubbed(error)}.")
        package = known["class"].partition(".")[0]
        if package == "fsspec":
            return StorageError(f"Checkpoints in {self._root} cannot be used: {self._scrubbed(error)}.")
        return StorageError(
            f"Checkpoints in {self._root} need the package {package}, which is not installed.",
            fix="pip install 'penstock[s3]'" if package == "s3fs" else f"pip install 'penstock[objects]' {package}",
        )

    def _path(self, name: str) -> str:
        return f"{self._base(self._files)}/{checked(name)}"

    def _base(self, files: Any) -> str:
        return str(files._strip_protocol(self._root))

    def _found(self, name: str, failure: Exception) -> bytes | None:
        try:
            return self.read(name)
        except MissingObject:
            return None
        except StorageError:
            raise self._failed("write", name, failure) from None

    @contextmanager
    def _store_errors(self, action: str, name: str) -> Iterator[None]:
        """Convert any exception of the store to a StorageError."""
        try:
            yield
        except StorageError:
            raise
        except Exception as error:  # stores raise their own exceptions
            raise self._failed(action, name, error) from None

    def _failed(self, action: str, name: str, error: Exception) -> StorageError:
        return StorageError(
            f"Cannot {action} '{name}' in {self._root}: {self._scrubbed(error)}.",
            fix="Make sure that the store is reachable from here, that the bucket exists, and that the credentials "
            "allow reading, writing, listing and deleting (state.checkpoints.fs.*).",
        )

    def _no_conditional_put(self, evidence: str) -> NoConditionalPut:
        return NoConditionalPut(
            f"{self._root} has no conditional put ({evidence}), so two drivers could both believe that they published "
            f"a checkpoint.",
            fix=_FIX,
        )

    def _scrubbed(self, error: Exception) -> str:
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return " ".join(masked_text(text, _secrets(self._options)).split()).rstrip(".")


def _publishes_again(storage: Storage, name: str) -> bool:
    """Return whether an existing name can be published again, which must fail."""
    try:
        storage.publish(name, b"again")
    except AlreadyPublished:
        return False
    return True


def _inherits_pipe_file(files: Any) -> bool:
    from fsspec.spec import AbstractFileSystem

    return type(files).pipe_file is AbstractFileSystem.pipe_file and not files.async_impl


def _secrets(options: Mapping[str, Any]) -> Iterator[str]:
    for key, value in options.items():
        if isinstance(value, Mapping):
            yield from _secrets(value)
        # Without the endpoint an error is useless.
        elif key != "endpoint_url" and isinstance(value, str):
            yield value
