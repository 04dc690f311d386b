"""Checkpoints on an object store, or on any other store that fsspec knows: s3://, gs://, az://, …"""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any
from urllib.parse import quote, unquote

from penstock.state.storage import AlreadyPublished, MissingObject, Storage, StorageError, checked, checked_prefix

__all__ = ["NoConditionalPut", "ObjectStorage"]


class NoConditionalPut(StorageError):
    """A store that cannot refuse to put an object over another: two drivers could both believe they published one.

    Operator action: use a store that can (S3 with If-None-Match, and those that do as it does), or a directory that
    is mounted on every host.
    """


_FIX = "Use a store with conditional puts, such as S3, or a directory that is mounted on every host."

_GONE = (FileNotFoundError, IsADirectoryError, NotADirectoryError)

# Of this many publishers at once exactly one may win, or the store is refused.
_RIVALS = 4

# S3 answers "conflict" while another conditional put of the same name is under way; the next try sees its outcome.
_CONFLICTS = 10

# memory:// is a dict without any guard, for tests.
_memory = threading.RLock()


class ObjectStorage(Storage):
    """A place below a uri of fsspec's. Opening it imports nothing: the first use does.

    `options` go to the file system's class as they are, and may be secrets: they are in `uri`, and in nothing that is
    shown. fsspec keeps one file system per process, so none crosses a fork; its caches of listings are off.
    """

    far = True

    def __init__(self, root: str, options: Mapping[str, Any] | None = None) -> None:
        scheme, separator, path = root.partition("://")
        # Of what cannot be parsed only the scheme is shown: the rest may hold a password.
        if not separator or not scheme or not path.strip("/") or "::" in root:
            raise StorageError(f"Not the uri of a store (scheme '{scheme[:10]}').", fix="Write scheme://bucket/path.")
        if ":" in path.split("/")[0].rpartition("@")[0]:
            raise StorageError(
                f"The {scheme}: uri holds a password, and uris are shown in messages and logs.",
                fix="Leave it out and set it with state.checkpoints.fs.*, or let the environment provide it.",
            )
        if any(letter in path for letter in "#?*["):
            raise StorageError(f"The {scheme}: uri holds one of # ? * [, which mean something else to stores.")
        self._root = root.rstrip("/")
        self._scheme = scheme
        self._options = dict(options or {})
        self._guard: AbstractContextManager[Any] = _memory if scheme == "memory" else nullcontext()

    def __repr__(self) -> str:
        return f"ObjectStorage({self._root!r})"

    @classmethod
    def from_uri(cls, uri: str) -> ObjectStorage:
        root, _, options = uri.partition("#")
        return cls(root, json.loads(unquote(options)) if options else None)

    def below(self, name: str) -> ObjectStorage:
        """The storage of what has this name and a slash in front."""
        return ObjectStorage(f"{self._root}/{checked(name)}", self._options)

    @property
    def uri(self) -> str:
        return f"{self._root}#{quote(json.dumps(self._options))}" if self._options else self._root

    @property
    def where(self) -> str:
        return self._root

    def check(self) -> None:
        """Beyond what every storage must do: of several who publish at once, exactly one may win."""
        files = self._files
        # What fsspec gives every file system looks whether the name is there and then writes: two may look at once.
        if _inherits_pipe_file(files):
            raise self._no_conditional_put("fsspec has none for it")
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
                    f"{self.where} does not list an object that was just put there, so the last checkpoint would not "
                    f"be found.",
                    fix="Use a store whose listings are up to date.",
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
            except Exception as error:  # every store has exceptions of its own; what is there tells what happened
                failure = error
            # A request that was sent again answers "exists" if its first try got through. What callers publish
            # carries a token of theirs, so if these are our bytes, it did.
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
        with self._told("write", name), self._guard:
            self._files.pipe_file(path, data)

    def read(self, name: str, at_most: int | None = None) -> bytes:
        path = self._path(name)
        with self._told("read", name), self._guard:
            try:
                if at_most is not None:
                    size = int(self._files.info(path)["size"] or 0)
                    if size > at_most:
                        raise self._too_large(name, size, at_most)
                return bytes(self._files.cat_file(path))
            except _GONE:
                pass
            except FileExistsError:
                # memory:// says so of a name below an object's.
                pass
        raise MissingObject(name, self.where)

    def exists(self, name: str) -> bool:
        path = self._path(name)
        with self._told("look for", name), self._guard:
            try:
                # Not `isfile`, which takes a store that does not answer for one that has nothing.
                return bool(self._files.info(path)["type"] == "file")
            except _GONE:
                return False

    def list(self, prefix: str) -> list[str]:
        directory = checked_prefix(prefix).rpartition("/")[0]
        with self._told("list", prefix), self._guard:
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
        with self._told("delete", name), self._guard, suppress(*_GONE):
            self._files.rm_file(path)

    def delete_below(self, directory: str) -> None:
        names = self.list(f"{directory}/")
        with self._told("delete", directory), self._guard:
            files = self._files
            base = self._base(files)
            if names:
                # In one call: S3 takes a thousand names in a request.
                with suppress(*_GONE):
                    files.rm([f"{base}/{name}" for name in names])

    # -- inside ----------------------------------------------------------------------------------------------------

    @property
    def _files(self) -> Any:
        """fsspec's file system for this process; where it is not thread-safe, for this thread."""
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
        except Exception as error:  # the classes' own: a wrong option, a bad endpoint
            raise StorageError(
                f"Cannot open {self._root}: {self._scrubbed(error)}.",
                fix="Correct state.checkpoints.dir or the options state.checkpoints.fs.*.",
            ) from None

    def _no_package(self, error: Exception) -> StorageError:
        from fsspec.registry import known_implementations

        known = known_implementations.get(self._scheme)
        if known is None:
            return StorageError(
                f"fsspec knows no stores with the scheme '{self._scheme}'.",
                fix="Use a path, or a uri such as s3://bucket/path.",
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
    def _told(self, action: str, name: str) -> Iterator[None]:
        try:
            yield
        except StorageError:
            raise
        except Exception as error:  # every store has exceptions of its own
            raise self._failed(action, name, error) from None

    def _failed(self, action: str, name: str, error: Exception) -> StorageError:
        return StorageError(
            f"Cannot {action} '{name}' in {self._root}: {self._scrubbed(error)}.",
            fix="See that the store is reachable from here and the bucket exists, and that these credentials may "
            "read, write, list and delete there (state.checkpoints.fs.*).",
        )

    def _no_conditional_put(self, evidence: str) -> NoConditionalPut:
        return NoConditionalPut(
            f"{self._root} has no conditional put ({evidence}), so two drivers could both believe that they published "
            f"a checkpoint.",
            fix=_FIX,
        )

    def _scrubbed(self, error: Exception) -> str:
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        for value in _secrets(self._options):
            text = text.replace(value, "***")
        return " ".join(text.split()).rstrip(".")


def _publishes_again(storage: Storage, name: str) -> bool:
    """Whether a name that is taken can be published: it must not."""
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
        # Without the address an error says nothing, and a value this short would tear holes into any text.
        elif key != "endpoint_url" and isinstance(value, str) and len(value) >= 4:
            yield value
