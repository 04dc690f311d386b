"""Behaviour specific to storage in files."""

from __future__ import annotations

import errno
import multiprocessing
import os
import shutil
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from penstock.state.local_storage import LocalStorage
from penstock.state.storage import AlreadyPublished, StorageError
from penstock.state.storage_uri import open_storage

spawn = multiprocessing.get_context("spawn")


@pytest.fixture
def local(tmp_path: Path) -> LocalStorage:
    return LocalStorage(tmp_path / "root")


def write_and_delete(root: Path, number: int) -> None:
    storage = LocalStorage(root)
    for _ in range(200):
        storage.write(f"deltas/1/{number}", b"data")
        assert storage.read(f"deltas/1/{number}") == b"data"
        storage.delete(f"deltas/1/{number}")


class TestLocalStorage:
    def test_the_same_bytes_cannot_be_published_twice(self, local: LocalStorage) -> None:
        local.publish("m", b"one")
        with pytest.raises(AlreadyPublished):
            local.publish("m", b"one")

    def test_an_object_is_not_visible_until_it_is_complete(
        self, local: LocalStorage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        """Durability is established in order: content, name, directory. A crash between any two is safe."""
        steps: list[str] = []
        sync = os.fsync

        def fsync(descriptor: int) -> None:
            path = os.readlink(f"/proc/self/fd/{descriptor}")
            steps.append(f"sync {'temp' if '.tmp-' in path else os.path.relpath(path, tmp_path)}")
            visible = local.list("")
            steps.append("visible" if visible else "hidden")
            sync(descriptor)

        monkeypatch.setattr(os, "fsync", fsync)
        local.publish("m/1", b"x")
        expected = ["sync .", "hidden", "sync root", "hidden", "sync temp", "hidden", "sync root/m", "visible"]
        assert steps == expected
        steps.clear()
        local.write("m/2", b"x")
        assert steps[::2] == ["sync temp", "sync root/m"]

    def test_files_written_while_their_directory_is_deleted_are_deleted_too(
        self, local: LocalStorage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        local.write("a/1", b"x")
        rmdir, late = os.rmdir, ["a/2", "a/3"]

        def slower(path: str, *, dir_fd: int | None = None) -> None:
            if late:
                local.write(late.pop(), b"from a task that is stopping")
            rmdir(path, dir_fd=dir_fd)

        monkeypatch.setattr(os, "rmdir", slower)
        local.delete_below("a")
        assert local.list("") == []
        assert late == []

    def test_a_failed_write_leaves_no_file(self, local: LocalStorage, monkeypatch: pytest.MonkeyPatch) -> None:
        def full(descriptor: int) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        local.write("d/0", b"")
        monkeypatch.setattr(os, "fsync", full)
        for put in (local.write, local.publish):
            with pytest.raises(StorageError, match=r"file://.*/root: No space left.*free space"):
                put("d/1", b"x")
        assert os.listdir(urlsplit(local.uri).path + "/d") == ["0"]

    def test_an_unreadable_disk_raises_a_storage_error(
        self, local: LocalStorage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Tasks attribute any other exception to the user's function, and do not retry."""
        local.write("deltas/1/a", b"data")

        def failing(*_: object, **__: object) -> bytes:
            raise OSError(errno.EIO, "Input/output error")

        monkeypatch.setattr("penstock.state.local_storage.open", failing, raising=False)
        monkeypatch.setattr("penstock.state.local_storage.map_file", failing)
        for read in (local.read, local.view):
            with pytest.raises(StorageError, match=r"Cannot read 'deltas/1/a' from file:.*: Input/output error\."):
                read("deltas/1/a")

    def test_unsynced_storage_never_calls_fsync(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        synced: list[int] = []
        monkeypatch.setattr(os, "fsync", synced.append)
        root = tmp_path / "a driver's %41 own"
        root.mkdir()
        storage = LocalStorage(root, synced=False)
        storage.publish("manifests/1", b"one")
        storage.write("deltas/2/x", b"two")
        assert synced == []
        again = open_storage(storage.uri)
        assert again.read("deltas/2/x") == b"two"
        with pytest.raises(AlreadyPublished):
            again.publish("manifests/1", b"other")
        again.write("deltas/3/x", b"three")
        assert synced == []
        assert storage.list("") == ["deltas/2/x", "deltas/3/x", "manifests/1"]
        open_storage(LocalStorage(root).uri).write("deltas/4/x", b"four")
        assert synced

    def test_a_late_task_does_not_recreate_a_directory_that_the_driver_removed(self, tmp_path: Path) -> None:
        root = tmp_path / "driver" / "state"
        root.mkdir(parents=True)
        of_task = open_storage(LocalStorage(root, synced=False).uri)
        of_task.write("deltas/1/x", b"")
        shutil.rmtree(tmp_path / "driver")
        for put in (of_task.write, of_task.publish):
            with pytest.raises(StorageError, match="No such file or directory"):
                put("deltas/2/x", b"")
        assert list(tmp_path.iterdir()) == []

    def test_temporary_files_of_a_crash_are_not_listed(self, local: LocalStorage) -> None:
        local.write("d/1", b"")
        Path(urlsplit(local.uri).path, "d", ".tmp-1-abc").write_bytes(b"half")
        assert local.list("d/") == ["d/1"]

    def test_a_file_system_without_hard_links_is_rejected(
        self, local: LocalStorage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def link(*_: object) -> None:
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))

        monkeypatch.setattr(os, "link", link)
        with pytest.raises(StorageError, match="no hard links"):
            local.publish("m", b"")
        assert local.list("") == []

    def test_a_link_that_was_created_but_reported_as_existing_succeeds(
        self, local: LocalStorage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made = os.link

        def link(source: Path, target: Path) -> None:
            made(source, target)
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))

        monkeypatch.setattr(os, "link", link)
        local.publish("m", b"1")
        assert local.read("m") == b"1"
        monkeypatch.undo()
        with pytest.raises(AlreadyPublished):
            local.publish("m", b"2")

    def test_deleting_the_last_file_of_a_directory_removes_it(self, local: LocalStorage) -> None:
        local.write("deltas/1/a", b"")
        local.write("deltas/2/a", b"")
        local.delete("deltas/1/a")
        assert os.listdir(urlsplit(local.uri).path + "/deltas") == ["2"]
        local.delete("deltas/2/a")
        assert os.listdir(urlsplit(local.uri).path) == []

    def test_writing_survives_directories_that_other_processes_remove(self, tmp_path: Path) -> None:
        processes = [spawn.Process(target=write_and_delete, args=(tmp_path, number)) for number in range(3)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        assert [process.exitcode for process in processes] == [0, 0, 0]

    def test_the_uri_of_a_local_storage_supports_any_path(self, tmp_path: Path) -> None:
        storage = LocalStorage(tmp_path / "a b#c?d%20é")
        storage.write("x", b"1")
        assert storage.uri.startswith("file:///")
        assert open_storage(storage.uri).read("x") == b"1"

    @pytest.mark.parametrize("uri", ["", "/tmp/x", "file:x", "file://host/x", "s3:bucket"])
    def test_other_uris_are_rejected(self, uri: str) -> None:
        with pytest.raises(StorageError, match="file:///"):
            open_storage(uri)
