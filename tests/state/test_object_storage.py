"""Behaviour specific to fsspec stores: conditional puts, lost answers, forks, secrets, missing packages."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.arrow import ArrowFSWrapper, HadoopFileSystem
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.spec import AbstractFileSystem
from pyarrow.fs import LocalFileSystem

from penstock.state import object_storage
from penstock.state.object_storage import NoConditionalPut, ObjectStorage
from penstock.state.storage import AlreadyPublished, StorageError
from penstock.state.storage_uri import open_storage

fork = multiprocessing.get_context("fork")
MakeStorage = Callable[..., ObjectStorage]


class ForgetfulFileSystem(MemoryFileSystem):
    """Accepts mode `create`, but overwrites anyway."""

    protocol = "forgetful"
    store: dict[str, Any] = {}
    pseudo_dirs = [""]

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        super().pipe_file(path, value)


class HastyFileSystem(MemoryFileSystem):
    """Checks for the name and then puts; all callers finish checking before any of them puts."""

    protocol = "hasty"
    store: dict[str, Any] = {}
    pseudo_dirs = [""]
    looking = threading.Barrier(object_storage._RIVALS, timeout=60)

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        if mode == "create" and self.exists(path):
            raise FileExistsError(path)
        self.looking.wait()
        super().pipe_file(path, value)


class PlainFileSystem(MemoryFileSystem):
    """Has only the `pipe_file` that fsspec provides for all file systems."""

    protocol = "plain"
    store: dict[str, Any] = {}
    pseudo_dirs = [""]
    pipe_file = AbstractFileSystem.pipe_file


class BlindFileSystem(MemoryFileSystem):
    """Returns outdated listings."""

    protocol = "blind"
    store: dict[str, Any] = {}
    pseudo_dirs = [""]
    _put = threading.Lock()

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        with self._put:
            super().pipe_file(path, value, mode)

    def find(self, path: str, *args: Any, **kwargs: Any) -> list[str]:
        return []


class TalkativeFileSystem(MemoryFileSystem):
    """Includes all options in its errors."""

    protocol = "talkative"

    def cat_file(self, path: str, *args: Any, **kwargs: Any) -> bytes:
        raise RuntimeError(f"refused with {self.storage_options}")


@pytest.fixture(autouse=True)
def stores() -> None:
    kinds = (ForgetfulFileSystem, HastyFileSystem, PlainFileSystem, BlindFileSystem, TalkativeFileSystem)
    for kind in kinds:
        fsspec.register_implementation(kind.protocol, kind, clobber=True)
        kind.store.clear()


class TestConditionalPut:
    @pytest.mark.parametrize("scheme", ["forgetful", "hasty"])
    def test_a_store_that_lets_two_callers_publish_is_rejected_before_use(self, scheme: str) -> None:
        storage = ObjectStorage(f"{scheme}://place/x")
        with pytest.raises(
            NoConditionalPut, match=rf"{scheme}://place/x has no conditional put \(of 5 puts"
        ) as refusal:
            storage.check()
        assert "mounted on every host" in refusal.value.fix
        assert storage.list("") == []

    def test_a_store_with_only_the_default_put_is_rejected_without_a_probe(self) -> None:
        with pytest.raises(NoConditionalPut, match="fsspec does not support it"):
            ObjectStorage("plain://place/x").check()
        assert PlainFileSystem.store == {}

    def test_pyarrow_file_systems_such_as_hdfs_are_rejected(self, tmp_path: Path) -> None:
        fsspec.register_implementation("arrow-files", ArrowFSWrapper, clobber=True)
        with pytest.raises(NoConditionalPut, match="fsspec does not support it"):
            ObjectStorage(f"arrow-files://{tmp_path}", {"fs": LocalFileSystem()}).check()
        assert issubclass(HadoopFileSystem, ArrowFSWrapper)
        assert list(tmp_path.iterdir()) == []

    def test_an_s3_server_that_ignores_the_condition_is_rejected(self, s3: MakeStorage) -> None:
        storage = s3("careless")
        with pytest.raises(NoConditionalPut, match="5 succeeded"):
            storage.check()
        assert storage.list("") == []

    def test_a_store_with_inconsistent_listings_is_rejected(self) -> None:
        with pytest.raises(StorageError, match=r"does not list.*consistent listings"):
            ObjectStorage("blind://place/x").check()

    def test_large_objects_are_put_in_parts_with_the_same_condition(
        self, s3: MakeStorage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        import s3fs

        real, sizes = s3fs.S3FileSystem._pipe_file, []

        async def in_parts(files: Any, path: str, data: bytes, chunksize: int = 0, **kwargs: Any) -> Any:
            sizes.append(len(data))
            return await real(files, path, data, chunksize=5 * 2**20, **kwargs)

        monkeypatch.setattr(s3fs.S3FileSystem, "_pipe_file", in_parts)
        # fsspec binds an instance's calls to the method at creation.
        s3fs.S3FileSystem.clear_instance_cache()
        storage, first, second = s3(), b"1" * (12 * 2**20), b"2" * (12 * 2**20)
        storage.publish("m", first)
        with pytest.raises(AlreadyPublished):
            storage.publish("m", second)
        assert storage.read("m") == first
        assert sizes == [len(first), len(second)]
        s3fs.S3FileSystem.clear_instance_cache()

    def test_a_put_whose_first_answer_was_lost_succeeds(self, s3: MakeStorage) -> None:
        storage = s3("echo")
        storage.publish("m", b"driver 1")
        with pytest.raises(AlreadyPublished):
            storage.publish("m", b"driver 2")
        assert storage.read("m") == b"driver 1"
        storage.check()

    def test_a_put_that_fails_with_any_error_while_the_name_exists_has_lost(
        self, s3: MakeStorage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        storage = s3()
        storage.publish("m", b"theirs")
        monkeypatch.setattr(storage._files, "pipe_file", unclear)
        with pytest.raises(AlreadyPublished):
            storage.publish("m", b"ours")
        with pytest.raises(StorageError, match=r"Cannot write 'n' in s3://.*TimeoutError.*fs\.\*"):
            storage.publish("n", b"ours")

    def test_a_put_that_conflicts_with_another_is_retried(self, monkeypatch: pytest.MonkeyPatch) -> None:
        storage, tries = ObjectStorage("memory://conflicts/x"), []
        put = MemoryFileSystem.pipe_file

        def conflict(*args: Any, **kwargs: Any) -> None:
            tries.append(1)
            if len(tries) < 3:
                raise OSError("An error occurred (ConditionalRequestConflict)")
            put(*args, **kwargs)

        monkeypatch.setattr(MemoryFileSystem, "pipe_file", conflict)
        storage.publish("m", b"1")
        assert (storage.read("m"), len(tries)) == (b"1", 3)


def unclear(*_: Any, **__: Any) -> None:
    raise TimeoutError("no answer")


def read_many(storage: ObjectStorage) -> None:
    for number in range(5):
        assert storage.read(str(number)) == b"%d" % number


def test_a_forked_child_opens_its_own_connection(s3: MakeStorage) -> None:
    storage = s3()
    for number in range(5):
        storage.write(str(number), b"%d" % number)
    processes = [fork.Process(target=read_many, args=(storage,)) for _ in range(2)]
    for process in processes:
        process.start()
    read_many(storage)
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0]


def test_listings_are_not_cached(s3: MakeStorage) -> None:
    here = s3()
    there = open_storage(here.uri)
    for number in range(3):
        assert here.list("") == [str(each) for each in range(number)]
        assert not here.exists(str(number))
        there.write(str(number), b"")
    there.delete("1")
    assert here.list("") == ["0", "2"]


class TestSecrets:
    def test_options_reach_other_processes_but_never_appear_in_messages(self, s3_options: dict[str, str]) -> None:
        storage = ObjectStorage("s3://bucket/x", s3_options)
        there = open_storage(storage.uri)
        assert isinstance(there, ObjectStorage)
        assert there._options == s3_options
        shown = f"{storage!r} {storage} {storage.where} {storage.below('a')!r} {there!r}"
        for bad in ("s3://no-such-bucket/x", "s3://bucket/x"):
            wrong = ObjectStorage(bad, {**s3_options, "endpoint_url": "http://127.0.0.1:1", "retries": 1})
            with pytest.raises(StorageError) as error:
                wrong.read("a")
            shown += str(error.value)
        assert s3_options["secret"] not in shown
        assert s3_options["key"] not in shown

    def test_secrets_in_the_errors_of_a_store_are_redacted(self) -> None:
        options = {"key": "my-key", "client_kwargs": {"token": "my-token"}, "endpoint_url": "http://here"}
        with pytest.raises(StorageError) as error:
            ObjectStorage("talkative://x", options).read("a")
        assert "my-" not in str(error.value)
        assert "http://here" in str(error.value)

    def test_a_password_in_a_uri_is_rejected_without_showing_it(self) -> None:
        with pytest.raises(StorageError, match=r"state\.checkpoints\.fs") as error:
            ObjectStorage("s3://me:hidden@bucket/x")
        assert "hidden" not in str(error.value)
        assert ObjectStorage("abfs://container@account/x").where == "abfs://container@account/x"

    @pytest.mark.parametrize(
        "uri", ["s3://", "://x", "bucket/x", "simplecache::s3://bucket/x", "s3://b/*", "s3://b/x?y"]
    )
    def test_an_invalid_store_uri_is_rejected(self, uri: str) -> None:
        with pytest.raises(StorageError):
            ObjectStorage(uri)


class TestOtherPackages:
    @pytest.mark.parametrize(
        ("uri", "missing", "line"),
        [
            ("s3://bucket/x", "fsspec", "pip install 'penstock[s3]'"),
            ("gs://bucket/x", "fsspec", "pip install 'penstock[objects]'"),
            ("s3://bucket/x", "s3fs", "pip install 'penstock[s3]'"),
            ("gs://bucket/x", "gcsfs", "pip install 'penstock[objects]' gcsfs"),
            ("az://bucket/x", "adlfs", "pip install 'penstock[objects]' adlfs"),
        ],
    )
    def test_the_error_for_a_missing_package_contains_the_install_command(
        self, uri: str, missing: str, line: str
    ) -> None:
        code = (
            f"import sys; sys.modules[{missing!r}] = None\n"
            f"from penstock.state.object_storage import ObjectStorage, StorageError\n"
            f"try: ObjectStorage({uri!r}).check()\n"
            f"except StorageError as error: print(error.problem, error.fix, sep='|', end='')"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.stdout == f"Checkpoints in {uri} need the package {missing}, which is not installed.|{line}"

    def test_the_error_for_an_unknown_scheme_names_it(self) -> None:
        with pytest.raises(StorageError, match="does not support the scheme 's4'"):
            ObjectStorage("s4://bucket/x").check()

    def test_opening_an_object_storage_does_not_import_fsspec(self) -> None:
        code = (
            "import sys; from penstock.state.storage_uri import open_storage; open_storage('s3://bucket/x');"
            "sys.exit('fsspec' in sys.modules)"
        )
        assert subprocess.run([sys.executable, "-c", code]).returncode == 0
