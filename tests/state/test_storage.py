"""What every storage promises, over all of them; then what is particular to files and to a driver's memory."""

from __future__ import annotations

import errno
import multiprocessing
import os
import shutil
import socket
import struct
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from penstock.state import serving
from penstock.state.files import GroupChanges, encode_changes, read_changes
from penstock.state.object_storage import ObjectStorage
from penstock.state.storage import (
    AlreadyPublished,
    DriverStorage,
    LocalStorage,
    MissingObject,
    RemoteDriverStorage,
    Storage,
    StorageError,
    StorageUnreachable,
    open_storage,
)

spawn = multiprocessing.get_context("spawn")
fork = multiprocessing.get_context("fork")


@pytest.fixture(params=["local", "driver", "memory", "s3"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage]:
    if request.param == "driver":
        driver = DriverStorage()
        yield driver
        driver.close()
    elif request.param == "local":
        yield LocalStorage(tmp_path / "check points" / "root")
    elif request.param == "memory":
        yield ObjectStorage(f"memory://{uuid.uuid4().hex}/root")
    else:
        yield request.getfixturevalue("s3")()


@pytest.fixture
def local(tmp_path: Path) -> LocalStorage:
    return LocalStorage(tmp_path / "root")


@pytest.fixture
def driver() -> Iterator[DriverStorage]:
    driver = DriverStorage()
    yield driver
    driver.close()


def read_in_process(uri: str, name: str, expected: bytes) -> None:
    assert open_storage(uri).read(name) == expected


class TestEveryStorage:
    def test_what_is_published_or_written_is_read(self, storage: Storage) -> None:
        storage.publish("manifests/1", b"one")
        storage.write("deltas/1/abc", b"")
        assert storage.read("manifests/1") == b"one"
        assert storage.read("deltas/1/abc") == b""
        assert storage.exists("deltas/1/abc")

    def test_publishing_twice_is_refused_and_changes_nothing(self, storage: Storage) -> None:
        storage.publish("manifests/1", b"one")
        for again in (b"two", b""):
            with pytest.raises(AlreadyPublished, match="manifests/1"):
                storage.publish("manifests/1", again)
        assert storage.read("manifests/1") == b"one"
        assert storage.list("") == ["manifests/1"]

    def test_writing_twice_is_harmless(self, storage: Storage) -> None:
        storage.write("deltas/abc", b"same")
        storage.write("deltas/abc", b"same")
        assert storage.read("deltas/abc") == b"same"

    def test_what_is_missing_says_so(self, storage: Storage) -> None:
        storage.write("a/b", b"")
        for name in ("nothing", "a", "a/b/c"):
            assert not storage.exists(name)
            for read in (storage.read, storage.view):
                with pytest.raises(MissingObject, match=f"'{name}' is missing.*Restore it"):
                    read(name)

    def test_deleting_is_idempotent(self, storage: Storage) -> None:
        storage.write("a/b/c", b"1")
        storage.write("a/d", b"2")
        for _ in range(2):
            storage.delete("a/b/c")
        storage.delete("a")
        storage.delete("a/d/e")
        storage.delete("nothing/here")
        assert storage.list("") == ["a/d"]
        storage.write("a/b/c", b"3")
        assert storage.read("a/b/c") == b"3"

    def test_all_below_a_name_is_deleted_and_nothing_beside_it(self, storage: Storage) -> None:
        for name in ("a/1", "a/b/2", "ab", "abc/3"):
            storage.write(name, b"x")
        for _ in range(2):
            storage.delete_below("a")
        assert storage.list("") == ["ab", "abc/3"]

    def test_a_storage_that_can_be_used_is_found_fit_and_left_empty(self, storage: Storage) -> None:
        storage.check()
        assert storage.list("") == []

    def test_a_deleted_name_can_be_published_again(self, storage: Storage) -> None:
        storage.publish("a", b"1")
        storage.delete("a")
        storage.publish("a", b"2")
        assert storage.read("a") == b"2"

    def test_listing_is_by_string_prefix_and_sorted(self, storage: Storage) -> None:
        for name in ("e/1", "d/10/x", "d/1/z", "d/1/a"):
            storage.write(name, b"")
        assert storage.list("d/1/") == ["d/1/a", "d/1/z"]
        assert storage.list("d/1") == ["d/1/a", "d/1/z", "d/10/x"]
        assert storage.list("d/1/a") == ["d/1/a"]
        assert storage.list("nothing/") == []
        assert storage.list("") == ["d/1/a", "d/1/z", "d/10/x", "e/1"]

    @pytest.mark.parametrize(
        "name", ["", "/a", "a/", "a//b", "..", "a/../b", "./a", "a/.", ".tmp-1", "a/.tmp-x/b", "a\0"]
    )
    def test_a_bad_name_is_refused(self, storage: Storage, name: str) -> None:
        calls = [storage.read, storage.view, storage.exists, storage.delete]
        calls += [lambda name: storage.write(name, b""), lambda name: storage.publish(name, b"")]
        for call in calls:
            with pytest.raises(StorageError, match="is not a name"):
                call(name)

    @pytest.mark.parametrize("prefix", ["/", "../", "a/../", "/etc/"])
    def test_a_bad_prefix_is_refused(self, storage: Storage, prefix: str) -> None:
        with pytest.raises(StorageError, match="is not a name"):
            storage.list(prefix)

    def test_a_view_can_be_read_as_changes(self, storage: Storage) -> None:
        changes = [GroupChanges(group, [], [(b"k", b"v")]) for group in range(3)]
        storage.write("delta", encode_changes(changes))
        assert list(read_changes(storage.view("delta"), range(1, 2))) == changes[1:2]

    def test_an_open_file_is_written_from_where_it_stands(self, storage: Storage, tmp_path: Path) -> None:
        with open(tmp_path / "source", "w+b") as file:
            file.write(b"not this" + b"large" * 1_000_000)
            file.seek(8)
            storage.write_file("a/b", file)
        assert storage.read("a/b") == b"large" * 1_000_000

    def test_threads_that_publish_one_name_have_one_winner(self, storage: Storage) -> None:
        results: list[str] = []
        barrier = threading.Barrier(8)

        def publish(number: int) -> None:
            barrier.wait()
            try:
                storage.publish("m", b"%d" % number)
                results.append(f"{number} won")
            except AlreadyPublished:
                results.append("lost")

        threads = [threading.Thread(target=publish, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        (winner,) = [result for result in results if result != "lost"]
        assert storage.read("m").decode() == winner.removesuffix(" won")

    def test_its_uri_opens_it_in_another_process(self, storage: Storage) -> None:
        storage.write("a", b"x" * 3_000_000)
        if storage.where.startswith("memory:"):
            # Of one process only.
            read_in_process(storage.uri, "a", b"x" * 3_000_000)
            return
        process = spawn.Process(target=read_in_process, args=(storage.uri, "a", b"x" * 3_000_000))
        process.start()
        process.join()
        assert process.exitcode == 0


def race_to_publish(uri: str, barrier: object, results: object, number: int) -> None:
    storage = open_storage(uri)
    won = []
    for round_ in range(30):
        barrier.wait()  # type: ignore[attr-defined]
        try:
            storage.publish(f"manifests/{round_}", b"%d" % number)
            won.append(round_)
        except AlreadyPublished:
            pass
    results.put((number, won))  # type: ignore[attr-defined]


def write_and_delete(root: Path, number: int) -> None:
    storage = LocalStorage(root)
    for _ in range(200):
        storage.write(f"deltas/1/{number}", b"data")
        assert storage.read(f"deltas/1/{number}") == b"data"
        storage.delete(f"deltas/1/{number}")


@pytest.mark.parametrize("place", ["local", "s3"])
def test_of_processes_that_publish_exactly_one_wins(request: pytest.FixtureRequest, place: str, tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path) if place == "local" else request.getfixturevalue("s3")()
    barrier, results = spawn.Barrier(3), spawn.Queue()
    processes = [
        spawn.Process(target=race_to_publish, args=(storage.uri, barrier, results, number)) for number in range(3)
    ]
    for process in processes:
        process.start()
    won = dict(results.get(timeout=60) for _ in processes)
    for process in processes:
        process.join()
    assert sorted(won[0] + won[1] + won[2]) == list(range(30))
    for number, rounds in won.items():
        assert all(storage.read(f"manifests/{round_}") == b"%d" % number for round_ in rounds)


class TestLocalStorage:
    def test_the_same_bytes_cannot_be_published_again_either(self, local: LocalStorage) -> None:
        local.publish("m", b"one")
        with pytest.raises(AlreadyPublished):
            local.publish("m", b"one")

    def test_nothing_is_visible_before_it_is_whole(
        self, local: LocalStorage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        """The order of what makes it durable: content, name, directory. A crash between any two is safe."""
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

    def test_what_comes_while_a_directory_is_deleted_goes_with_it(
        self, local: LocalStorage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        local.write("a/1", b"x")
        rmdir, late = os.rmdir, ["a/2", "a/3"]

        def slower(path: str, *, dir_fd: int | None = None) -> None:
            if late:
                local.write(late.pop(), b"of a task that ends")
            rmdir(path, dir_fd=dir_fd)

        monkeypatch.setattr(os, "rmdir", slower)
        local.delete_below("a")
        assert local.list("") == []
        assert late == []

    def test_a_failed_write_leaves_nothing(self, local: LocalStorage, monkeypatch: pytest.MonkeyPatch) -> None:
        def full(descriptor: int) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        local.write("d/0", b"")
        monkeypatch.setattr(os, "fsync", full)
        for put in (local.write, local.publish):
            with pytest.raises(StorageError, match=r"file://.*/root: No space left.*free space"):
                put("d/1", b"x")
        assert os.listdir(urlsplit(local.uri).path + "/d") == ["0"]

    def test_a_disk_that_cannot_be_read_is_an_error_of_the_storage_and_not_of_who_reads(
        self, local: LocalStorage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A task takes any other error for one of the user's function, and does not try again."""
        local.write("deltas/1/a", b"data")

        def failing(*_: object, **__: object) -> bytes:
            raise OSError(errno.EIO, "Input/output error")

        monkeypatch.setattr("penstock.state.storage.open", failing, raising=False)
        monkeypatch.setattr("penstock.state.storage.map_file", failing)
        for read in (local.read, local.view):
            with pytest.raises(StorageError, match=r"Cannot read 'deltas/1/a' from file:.*: Input/output error\."):
                read("deltas/1/a")

    def test_what_need_not_survive_the_host_is_not_synced(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
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

    def test_a_late_task_does_not_bring_back_a_directory_that_the_driver_removed(self, tmp_path: Path) -> None:
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

    def test_a_file_system_without_links_is_refused(self, local: LocalStorage, monkeypatch: pytest.MonkeyPatch) -> None:
        def link(*_: object) -> None:
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))

        monkeypatch.setattr(os, "link", link)
        with pytest.raises(StorageError, match="no hard links"):
            local.publish("m", b"")
        assert local.list("") == []

    def test_a_link_that_was_made_but_answered_with_exists_has_won(
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

    def test_writing_survives_directories_that_others_remove(self, tmp_path: Path) -> None:
        processes = [spawn.Process(target=write_and_delete, args=(tmp_path, number)) for number in range(3)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        assert [process.exitcode for process in processes] == [0, 0, 0]

    def test_its_uri_holds_any_path(self, tmp_path: Path) -> None:
        storage = LocalStorage(tmp_path / "a b#c?d%20é")
        storage.write("x", b"1")
        assert storage.uri.startswith("file:///")
        assert open_storage(storage.uri).read("x") == b"1"

    @pytest.mark.parametrize("uri", ["", "/tmp/x", "file:x", "file://host/x", "s3:bucket"])
    def test_other_uris_are_refused(self, uri: str) -> None:
        with pytest.raises(StorageError, match="file:///"):
            open_storage(uri)


def listening_ports() -> set[str]:
    lines = Path("/proc/self/net/tcp").read_text().splitlines()[1:]
    inodes = {fields[9]: fields[1] for line in lines if (fields := line.split())[3] == "0A"}
    ours = {os.readlink(link) for link in Path("/proc/self/fd").iterdir() if os.path.exists(link)}
    return {address for inode, address in inodes.items() if f"socket:[{inode}]" in ours}


def secret_of(driver: DriverStorage) -> str:
    return urlsplit(driver.uri).path[1:]


def address_of(driver: DriverStorage) -> tuple[str, int]:
    parts = urlsplit(driver.uri)
    return parts.hostname or "", parts.port or 0


class TestDriverStorage:
    def test_nothing_listens_until_a_uri_is_asked_for(self) -> None:
        before = listening_ports()
        driver = DriverStorage()
        driver.publish("a", b"1")
        assert listening_ports() == before
        uri = driver.uri
        (new,) = listening_ports() - before
        assert new.startswith("0100007F:")  # 127.0.0.1
        assert driver.uri == uri
        driver.close()
        assert listening_ports() == before

    def test_tasks_read_what_the_driver_has_now(self, driver: DriverStorage) -> None:
        task = open_storage(driver.uri)
        driver.write("a", b"1")
        assert task.read("a") == b"1"
        driver.delete("a")
        with pytest.raises(MissingObject, match=r"driver at 127\.0\.0\.1"):
            task.read("a")
        driver.write("é", b"2")
        assert task.read("é") == b"2"

    def test_tasks_can_only_read(self, driver: DriverStorage) -> None:
        task = open_storage(driver.uri)
        calls = [task.exists, task.list, task.delete]
        calls += [lambda name: task.write(name, b""), lambda name: task.publish(name, b"")]
        for call in calls:
            with pytest.raises(StorageError, match="only read"):
                call("a")

    def test_a_wrong_secret_is_refused(self, driver: DriverStorage) -> None:
        driver.write("a", b"1")
        for wrong in ("wrong", secret_of(driver)[:-1], secret_of(driver) + "x"):
            task = open_storage(driver.uri.replace(secret_of(driver), wrong))
            with pytest.raises(StorageUnreachable, match="refused") as refusal:
                task.read("a")
            assert wrong not in str(refusal.value)
        assert open_storage(driver.uri).read("a") == b"1"

    def test_who_does_not_present_the_secret_first_gets_nothing(self, driver: DriverStorage) -> None:
        driver.write("a", b"private")
        length = struct.Struct(">Q")
        requests = [length.pack(1) + b"a", b"GET / HTTP/1.1\r\n\r\n", length.pack(2**40) + b"x" * 100, b""]
        for request in requests:
            with socket.create_connection(address_of(driver), timeout=10) as stranger:
                stranger.sendall(request)
                stranger.shutdown(socket.SHUT_WR)
                try:
                    assert stranger.recv(100) in (b"\0", b"")
                except ConnectionResetError:
                    pass
        assert open_storage(driver.uri).read("a") == b"private"

    def test_a_silent_stranger_is_hung_up_on(self, driver: DriverStorage, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(serving, "_SECRET_SECONDS", 0.1)
        with socket.create_connection(address_of(driver), timeout=10) as stranger:
            assert stranger.recv(1) == b""

    def test_the_secret_shows_nowhere(self, driver: DriverStorage) -> None:
        secret = secret_of(driver)
        task = open_storage(driver.uri)
        shown = [repr(driver), str(driver), repr(task), str(task)]
        driver.close()
        for call in (
            lambda: task.read("a"),
            lambda: task.write("a", b""),
            lambda: driver.uri,
            lambda: open_storage(f"drivr://host:1/{secret}").read("a"),
            lambda: open_storage(f"driver://host/{secret}"),
            lambda: open_storage(f"driver://host:port/{secret}"),
            lambda: RemoteDriverStorage(f"http://host:1/{secret}"),
        ):
            with pytest.raises(StorageError) as error:
                call()
            shown += [str(error.value), repr(error.value), str(error.value.__cause__), str(error.value.__context__)]
        assert not any(secret in text for text in shown)

    def test_one_connection_serves_a_process_and_is_made_again_when_it_breaks(self, driver: DriverStorage) -> None:
        driver.write("a", b"1")
        for _ in range(3):
            assert open_storage(driver.uri).read("a") == b"1"
        (connection,) = driver._server._connections
        connection.shutdown(socket.SHUT_RDWR)
        assert open_storage(driver.uri).read("a") == b"1"

    def test_a_forked_child_makes_its_own_connection(self, driver: DriverStorage) -> None:
        for number in range(200):
            driver.write(str(number), b"%d" % number * 1000)
        task = open_storage(driver.uri)

        def read_all() -> None:
            for number in range(200):
                assert task.read(str(number)) == b"%d" % number * 1000

        task.read("0")
        processes = [fork.Process(target=read_all) for _ in range(3)]
        for process in processes:
            process.start()
        read_all()
        for process in processes:
            process.join()
        assert [process.exitcode for process in processes] == [0, 0, 0]

    def test_threads_share_a_connection(self, driver: DriverStorage) -> None:
        for number in range(50):
            driver.write(str(number), b"%d" % number * 10_000)
        task = open_storage(driver.uri)
        wrong: list[int] = []

        def read_all() -> None:
            wrong.extend(n for n in range(50) if task.read(str(n)) != b"%d" % n * 10_000)

        threads = [threading.Thread(target=read_all) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []
        assert len(driver._server._connections) == 1

    def test_a_driver_that_is_gone_is_named(self, driver: DriverStorage) -> None:
        driver.write("a", b"1")
        task = open_storage(driver.uri)
        assert task.read("a") == b"1"
        host, port = address_of(driver)
        driver.close()
        driver.close()
        with pytest.raises(StorageUnreachable, match=f"{host}:{port}"):
            task.read("a")
        assert driver.read("a") == b"1"

    def test_a_host_that_is_not_ours_is_an_error(self) -> None:
        with pytest.raises(StorageError, match="executors reach the driver"):
            _ = DriverStorage(host="192.0.2.1").uri
