"""The contract of storages, tested on all of them."""

from __future__ import annotations

import multiprocessing
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.state.driver_storage import DriverStorage
from penstock.state.files import GroupChanges, encode_changes, read_changes
from penstock.state.local_storage import LocalStorage
from penstock.state.object_storage import ObjectStorage
from penstock.state.storage import AlreadyPublished, MissingObject, Storage, StorageError
from penstock.state.storage_uri import open_storage

spawn = multiprocessing.get_context("spawn")


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


def read_in_process(uri: str, name: str, expected: bytes) -> None:
    assert open_storage(uri).read(name) == expected


class TestEveryStorage:
    def test_published_and_written_objects_can_be_read(self, storage: Storage) -> None:
        storage.publish("manifests/1", b"one")
        storage.write("deltas/1/abc", b"")
        assert storage.read("manifests/1") == b"one"
        assert storage.read("deltas/1/abc") == b""
        assert storage.exists("deltas/1/abc")

    def test_publishing_twice_is_rejected_and_changes_nothing(self, storage: Storage) -> None:
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

    def test_reading_a_missing_object_raises_missing_object(self, storage: Storage) -> None:
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

    def test_delete_all_deletes_what_exists_of_several_names(self, storage: Storage) -> None:
        for name in ("a/1", "a/2", "b/3", "b/4"):
            storage.write(name, b"x")
        storage.delete_all(["a/1", "gone", "b/3", "b/gone"])
        storage.delete_all([])
        assert storage.list("") == ["a/2", "b/4"]

    def test_delete_below_deletes_only_objects_below_the_name(self, storage: Storage) -> None:
        for name in ("a/1", "a/b/2", "ab", "abc/3"):
            storage.write(name, b"x")
        for _ in range(2):
            storage.delete_below("a")
        assert storage.list("") == ["ab", "abc/3"]

    def test_checking_a_usable_storage_succeeds_and_leaves_it_empty(self, storage: Storage) -> None:
        storage.check()
        assert storage.list("") == []

    def test_a_deleted_name_can_be_published_again(self, storage: Storage) -> None:
        storage.publish("a", b"1")
        storage.delete("a")
        storage.publish("a", b"2")
        assert storage.read("a") == b"2"

    def test_names_are_listed_by_string_prefix_in_order(self, storage: Storage) -> None:
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
    def test_an_invalid_name_is_rejected(self, storage: Storage, name: str) -> None:
        calls = [storage.read, storage.view, storage.exists, storage.delete]
        calls += [lambda name: storage.write(name, b""), lambda name: storage.publish(name, b"")]
        for call in calls:
            with pytest.raises(StorageError, match="is not a valid name"):
                call(name)

    @pytest.mark.parametrize("prefix", ["/", "../", "a/../", "/etc/"])
    def test_an_invalid_prefix_is_rejected(self, storage: Storage, prefix: str) -> None:
        with pytest.raises(StorageError, match="is not a valid name"):
            storage.list(prefix)

    def test_a_view_can_be_read_as_changes(self, storage: Storage) -> None:
        changes = [GroupChanges(group, [], [(b"k", b"v")]) for group in range(3)]
        storage.write("delta", encode_changes(changes))
        assert list(read_changes(storage.view("delta"), range(1, 2))) == changes[1:2]

    def test_an_open_file_is_written_from_its_current_position(self, storage: Storage, tmp_path: Path) -> None:
        with open(tmp_path / "source", "w+b") as file:
            file.write(b"not this" + b"large" * 1_000_000)
            file.seek(8)
            storage.write_file("a/b", file)
        assert storage.read("a/b") == b"large" * 1_000_000

    def test_exactly_one_of_several_threads_publishes_a_name(self, storage: Storage) -> None:
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

    def test_the_uri_of_a_storage_opens_it_in_another_process(self, storage: Storage) -> None:
        storage.write("a", b"x" * 3_000_000)
        if storage.where.startswith("memory:"):
            # It exists in this process only.
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


@pytest.mark.parametrize("place", ["local", "s3"])
def test_exactly_one_of_several_processes_publishes_a_name(
    request: pytest.FixtureRequest, place: str, tmp_path: Path
) -> None:
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
