"""Replicas on disk in several processes: shared, handed over, forked and killed."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from engine_support import ON_DISK, change, contents, fork, in_process, kill, new, talking_process

from penstock.state.engines import lmdb_environment, rocksdb, rocksdb_database, rocksdb_slot
from penstock.state.engines.base import EngineError
from penstock.state.engines.lmdb import LmdbEngine
from penstock.state.engines.lmdb_witness import Stamp
from penstock.state.engines.rocksdb import RocksDbEngine
from penstock.state.engines.rocksdb_database import RocksDbOptions, memory_usage
from penstock.state.files import GroupChanges

SMALL_MAP = 64 << 10


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "replica"


@pytest.fixture(params=sorted(ON_DISK))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def apply_in_process(kind: str, directory: Path, expect: bytes | None, key: bytes, position: bytes) -> None:
    assert ON_DISK[kind](directory).apply(expect, [change((key, position))], position)


def try_apply(kind: str, directory: Path, barrier: object, results: object) -> None:
    engine = ON_DISK[kind](directory)
    barrier.wait()  # type: ignore[attr-defined]
    results.put(engine.apply(b"p1", [change((b"n", b"x"))], b"p2"))  # type: ignore[attr-defined]


def grow(directory: Path) -> None:
    engine = LmdbEngine(directory, SMALL_MAP)
    assert engine.apply(b"p1", [change(*((b"%05d" % n, bytes(100)) for n in range(5000)))], b"p2")


def hold_reader(kind: str, directory: Path, connection: Connection) -> None:
    with ON_DISK[kind](directory).reader() as reader:
        connection.send((reader.position, list(reader.scan(b""))))
        connection.recv()
        connection.send((reader.position, list(reader.scan(b""))))


def apply_and_stall(kind: str, directory: Path, connection: Connection) -> None:
    class Stalling:
        def __iter__(self) -> Iterator[GroupChanges]:
            yield change((b"a", b"half"), cleared=(b"",))
            connection.send("half")
            connection.recv()

    ON_DISK[kind](directory).apply(b"p1", Stalling(), b"p2")


def version(number: int) -> list[GroupChanges]:
    """Return a version in which all values are the same number: a torn version would contain two."""
    value = b"%d" % number
    return [
        change(*((b"%d-%d" % (n, number % 3), value * 50) for n in range(1000)), cleared=(b"",)),
        change(*((b"x%d" % n, value * 50) for n in range(1000)), group=1),
    ]


def apply_versions(kind: str, directory: Path, batch_bytes: int, connection: Connection) -> None:
    rocksdb._BATCH_BYTES = batch_bytes
    engine = ON_DISK[kind](directory)
    number = int(engine.position() or b"0")
    while True:
        expect = b"%d" % number if number else None
        number += 1
        connection.send(number)
        assert engine.apply(expect, version(number), b"%d" % number)
        if number % 4 == 0:
            engine.release()


class TestEveryKind:
    def test_processes_share_a_replica(self, kind: str, directory: Path) -> None:
        engine = ON_DISK[kind](directory)
        engine.apply(None, [change((b"a", b"1"))], b"p1")
        engine.release()
        in_process(apply_in_process, kind, directory, b"p1", b"b", b"p2")
        assert engine.position() == b"p2"
        assert contents(engine) == [(b"a", b"1"), (b"b", b"p2")]

    def test_exactly_one_of_two_concurrent_applies_succeeds(self, kind: str, directory: Path) -> None:
        engine = ON_DISK[kind](directory)
        engine.apply(None, [], b"p1")
        engine.release()
        barrier, results = new.Barrier(2), new.Queue()
        processes = [new.Process(target=try_apply, args=(kind, directory, barrier, results)) for _ in range(2)]
        for process in processes:
            process.start()
        assert sorted(results.get(timeout=60) for _ in processes) == [False, True]
        for process in processes:
            process.join()
        assert engine.position() == b"p2"

    def test_a_process_killed_during_an_apply_leaves_the_previous_version(self, kind: str, directory: Path) -> None:
        engine = ON_DISK[kind](directory)
        engine.apply(None, [change((b"a", b"1"))], b"p1")
        engine.release()
        process, ours = talking_process(apply_and_stall, kind, directory)
        assert ours.recv() == "half"
        assert contents(engine) == [(b"a", b"1")]
        kill(process)
        assert engine.position() == b"p1"
        assert engine.apply(b"p1", [change((b"b", b"2"))], b"p2")
        assert contents(engine) == [(b"a", b"1"), (b"b", b"2")]

    @pytest.mark.parametrize("batch_bytes", [16 << 20, 100_000])
    def test_a_process_killed_at_any_moment_leaves_one_complete_version(
        self, kind: str, directory: Path, batch_bytes: int
    ) -> None:
        engine = ON_DISK[kind](directory)
        r = random.Random(batch_bytes)
        for _ in range(8):
            process, ours = talking_process(apply_versions, kind, directory, batch_bytes)
            begun = 0
            for _ in range(r.randrange(1, 6)):
                begun = ours.recv()
            # A random moment of this apply or the next one.
            ours.poll(r.random() * 0.03)
            kill(process)
            position = engine.position()
            # Applied versions persist; LMDB can lose one between a commit and its stamp.
            assert int(position or 0) >= begun - 1 or (kind == "lmdb" and position is None)
            assert {value for _, value in contents(engine)} == ({position * 50} if position else set())
            engine.release()

    def test_an_apply_does_not_affect_a_reader_in_another_process(self, kind: str, directory: Path) -> None:
        engine = ON_DISK[kind](directory)
        engine.apply(None, [change((b"a", b"1"))], b"p0")
        # RocksDB: makes this process the writer and the other one a reader.
        assert engine.position() == b"p0"
        process, ours = talking_process(hold_reader, kind, directory)
        expected = (b"p0", [(b"a", b"1")])
        assert ours.recv() == expected
        for number in range(20):
            entries = ((b"%d" % n, bytes([number]) * 1000) for n in range(300))
            engine.apply(b"p%d" % number, [change(*entries, cleared=(b"",))], b"p%d" % (number + 1))
        engine.compact()
        ours.send("go on")
        assert ours.recv() == expected
        process.join()


def take_over(directory: Path, connection: Connection) -> None:
    engine = RocksDbEngine(directory)
    assert engine.position() == b"p1"
    connection.send("looked")
    connection.recv()
    assert engine.apply(b"p1", [change((b"a", b"2"))], b"p2")
    with engine.reader():
        connection.send("reading")
        connection.recv()


class TestRocksDb:
    def test_a_waiting_writer_sees_that_another_process_was_faster(self, directory: Path) -> None:
        engine = RocksDbEngine(directory)
        engine.apply(None, [change((b"a", b"1"))], b"p1")
        engine.release()
        process, ours = talking_process(take_over, directory)
        assert ours.recv() == "looked"
        assert engine.position() == b"p1"
        ours.send("apply")
        assert not engine.apply(b"p1", [change((b"a", b"2"))], b"p2")
        assert ours.recv() == "reading"
        assert engine.position() == b"p2"
        assert contents(engine) == [(b"a", b"2")]
        ours.send("end")
        process.join()
        assert process.exitcode == 0

    def test_a_process_creates_a_private_replica_while_another_keeps_the_shared_one(
        self, directory: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(rocksdb_slot, "_WAIT_SECONDS", 0.05)
        engine = RocksDbEngine(directory)
        engine.apply(None, [change((b"a", b"1"))], b"p1")
        engine.release()
        process, ours = talking_process(hold_reader, "rocksdb", directory)
        assert ours.recv() == (b"p1", [(b"a", b"1")])
        assert contents(engine) == [(b"a", b"1")]
        assert not engine.apply(b"p1", [change((b"a", b"2"))], b"p2")
        assert engine.position() is None
        assert engine.apply(None, [change((b"a", b"2"))], b"p2")
        engine.release()
        assert engine.position() == b"p2"
        assert contents(engine) == [(b"a", b"2")]
        ours.send("go on")
        assert ours.recv() == (b"p1", [(b"a", b"1")])
        process.join()
        engine.release()
        assert engine.position() == b"p1"
        assert list(directory.glob("private-*")) == []

    def test_the_private_replica_of_a_dead_process_is_deleted(self, directory: Path) -> None:
        engine = RocksDbEngine(directory)
        engine.apply(None, [], b"p1")
        process = new.Process(target=time.time)
        process.start()
        process.join()
        for name in (f"private-{process.pid}", "next-1", "gone-2", "private-"):
            (directory / name / "below").mkdir(parents=True)
        engine.release()
        assert engine.position() == b"p1"
        assert sorted(path.name.partition(".")[0] for path in directory.iterdir()) == sorted(
            ["guard", rocksdb_slot.boot_id()]
        )

    def test_a_child_forked_while_rocksdb_is_open_cannot_open_the_replica(self, directory: Path) -> None:
        engine = RocksDbEngine(directory)
        engine.apply(None, [change((b"a", b"1"))], b"p1")

        def child() -> None:
            with pytest.raises(EngineError, match="forked"):
                engine.position()

        process = fork.Process(target=child)
        process.start()
        process.join()
        assert process.exitcode == 0
        assert engine.apply(b"p1", [change((b"a", b"2"))], b"p2")
        assert contents(engine) == [(b"a", b"2")]

    def test_small_changes_are_not_merged_into_a_large_replica_every_time(self, directory: Path) -> None:
        r = random.Random(1)
        engine = RocksDbEngine(directory)
        position: bytes | None = None
        files: set[tuple[int, str]] = set()

        def written(changed: int) -> int:
            nonlocal position
            entries = ((b"%05d" % n, r.randbytes(200)) for n in r.sample(range(40_000), changed))
            after = b"%d" % len(files)
            assert engine.apply(position, [change(*entries)], after)
            position = after
            engine.release()
            found = {(file.stat().st_ino, file.name): file.stat().st_size for file in directory.rglob("*.sst")}
            size = sum(size for file, size in found.items() if file not in files)
            files.update(found)
            return size

        for changed in (7000, 5250, 3500, 2100):
            written(changed)
        # 8.7 times the changed data; 20 times with RocksDB's defaults.
        assert sum(written(100) for _ in range(30)) < 14 * 30 * 100 * 205

    def test_all_replicas_of_a_process_share_one_bounded_cache(self, tmp_path: Path) -> None:
        in_process(fill_the_cache, tmp_path)


def fill_the_cache(directory: Path) -> None:
    assert memory_usage() == (0, 0, 0)
    # Treat the replicas as large, so that indexes and filters are in the cache.
    rocksdb_database._LARGE = -1
    r = random.Random(1)
    engines = [RocksDbEngine(directory / str(n), RocksDbOptions(1 << 20, 1 << 20)) for n in range(4)]
    used = []
    for engine in engines:
        engine.apply(None, [change(*((b"%05d" % n, r.randbytes(500)) for n in range(4000)))], b"p1")
        engine.release()
        # Opened again: what it reads now must go into the shared cache.
        with engine.reader() as reader:
            assert sum(len(reader.get(b"%05d" % n) or b"") for n in range(4000)) == 2_000_000
        used.append(memory_usage().block_cache)
        engine.release()
    assert min(used) > 0
    assert max(used) < 2_000_000


def apply_with_stamp(directory: Path, stamp: Callable[[Stamp], bytes | None]) -> None:
    engine = LmdbEngine(directory)
    assert engine.position() == b"p1"
    with pytest.MonkeyPatch.context() as patch:
        # The check before the apply must not call the patched stamp.
        patch.setattr(LmdbEngine, "position", lambda self: b"p1")
        patch.setattr(Stamp, "_current", stamp)
        assert engine.apply(b"p1", [change((b"a", b"2"))], b"p2")


def apply_and_die_before_the_stamp(directory: Path) -> None:
    apply_with_stamp(directory, lambda stamp: os.kill(os.getpid(), signal.SIGKILL))


def apply_and_pause_before_the_stamp(directory: Path, connection: Connection) -> None:
    sound = Stamp._current

    def paused(stamp: Stamp) -> bytes | None:
        connection.send("committed")
        connection.recv()
        return sound(stamp)

    apply_with_stamp(directory, paused)


class TestLmdb:
    def test_a_writer_killed_before_its_stamp_costs_the_replica_once(self, directory: Path) -> None:
        LmdbEngine(directory).apply(None, [change((b"a", b"1"))], b"p1")
        process = new.Process(target=apply_and_die_before_the_stamp, args=(directory,))
        process.start()
        process.join()
        assert process.exitcode == -9
        engine = LmdbEngine(directory)
        assert engine.position() is None
        assert engine.apply(None, [change((b"a", b"3"))], b"p3")
        in_process(apply_in_process, "lmdb", directory, b"p3", b"b", b"p4")
        assert contents(engine) == [(b"a", b"3"), (b"b", b"p4")]

    def test_a_reader_waits_for_a_writer_that_has_not_stamped_yet(self, directory: Path) -> None:
        engine = LmdbEngine(directory)
        engine.apply(None, [change((b"a", b"1"))], b"p1")
        process, ours = talking_process(apply_and_pause_before_the_stamp, directory)
        assert ours.recv() == "committed"
        seen: list[bytes | None] = []
        looking = threading.Thread(target=lambda: seen.append(engine.position()))
        looking.start()
        looking.join(0.2)
        assert seen == []
        ours.send("stamp")
        looking.join()
        process.join()
        assert process.exitcode == 0
        assert seen == [b"p2"]

    def test_two_dead_readers_of_one_version_make_it_suspect(self, directory: Path) -> None:
        in_process(apply_in_process, "lmdb", directory, None, b"a", b"p1")
        for _ in range(2):
            # Neither one dead reader nor two live ones make a version suspect.
            processes = [talking_process(hold_reader, "lmdb", directory) for _ in range(2)]
            for _, ours in processes:
                assert ours.recv() == (b"p1", [(b"a", b"p1")])
            processes[0][1].send("end")
            processes[0][0].join()
            kill(processes[1][0])
        assert LmdbEngine(directory).position() is None

    def test_dead_readers_of_different_versions_do_not_make_a_version_suspect(self, directory: Path) -> None:
        in_process(apply_in_process, "lmdb", directory, None, b"a", b"p0")
        for number in range(3):
            process, ours = talking_process(hold_reader, "lmdb", directory)
            assert ours.recv()[0] == b"p%d" % number
            kill(process)
            in_process(apply_in_process, "lmdb", directory, b"p%d" % number, b"a", b"p%d" % (number + 1))
        assert LmdbEngine(directory).position() == b"p3"
        assert len(list(directory.glob("*/reading-*"))) <= 2

    def test_a_process_adopts_a_map_that_another_process_enlarged(self, directory: Path) -> None:
        engine = LmdbEngine(directory, SMALL_MAP)
        engine.apply(None, [], b"p1")
        in_process(grow, directory)
        assert engine.position() == b"p2"
        assert len(contents(engine)) == 5000
        assert engine.apply(b"p2", [change((b"x", b"1"))], b"p3")

    def test_the_slot_of_a_killed_reader_is_freed(self, directory: Path) -> None:
        engine = LmdbEngine(directory)
        engine.apply(None, [change((b"a", b"1"))], b"p0")
        process, ours = talking_process(hold_reader, "lmdb", directory)
        ours.recv()
        kill(process)
        for number in range(60):
            entries = ((b"%d" % n, bytes(1000)) for n in range(100))
            engine.apply(b"p%d" % number, [change(*entries, cleared=(b"",))], b"p%d" % (number + 1))
        assert engine.size_bytes() < 20 * 100 * 1000

    def test_a_forked_child_opens_its_own_lmdb_environment(self, directory: Path) -> None:
        engine = LmdbEngine(directory)
        engine.apply(None, [change((b"a", b"1"))], b"p1")

        def child() -> None:
            assert contents(engine) == [(b"a", b"1")]
            assert engine.apply(b"p1", [change((b"b", b"2"))], b"p2")

        process = fork.Process(target=child)
        process.start()
        process.join()
        assert process.exitcode == 0
        assert contents(engine) == [(b"a", b"1"), (b"b", b"2")]
        assert engine.apply(b"p2", [], b"p3")

    def test_a_child_forked_during_a_read_is_rejected_and_leaves_the_parent_intact(self, directory: Path) -> None:
        engine = LmdbEngine(directory)
        engine.apply(None, [change((b"a", b"1"))], b"p0")
        with engine.reader() as reader:

            def child() -> None:
                with pytest.raises(EngineError, match="forked"):
                    engine.position()

            process = fork.Process(target=child)
            process.start()
            process.join()
            assert process.exitcode == 0
            # If the child had ended the parent's reader, these would overwrite the pages it reads.
            for number in range(20):
                entries = change((b"a", b"%d" % number))
                assert engine.apply(b"p%d" % number, [entries], b"p%d" % (number + 1))
            assert reader.get(b"a") == b"1"

    def test_a_limited_number_of_lmdb_environments_stays_open(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(lmdb_environment, "_KEPT_OPEN", 3)
        engines = [LmdbEngine(tmp_path / str(n)) for n in range(8)]
        with engines[0].reader() as reader:
            for engine in engines:
                engine.apply(None, [change((b"a", b"1"))], b"p1")
            assert reader.get(b"a") is None
        assert len(lmdb_environment._open.environments) <= 4
        assert [engine.position() for engine in engines] == [b"p1"] * 8


class TestLmdbMap:
    def test_the_lmdb_map_grows_as_needed(self, directory: Path) -> None:
        engine = LmdbEngine(directory, SMALL_MAP)
        entries = [(b"%06d" % n, bytes(100)) for n in range(20000)]
        assert engine.apply(None, (change(*entries[n::2]) for n in range(2)), b"p1")
        assert contents(engine) == entries

    def test_growing_the_lmdb_map_waits_for_readers_of_other_threads(self, directory: Path) -> None:
        engine = LmdbEngine(directory, SMALL_MAP)
        engine.apply(None, [change((b"a", b"1"))], b"p1")
        opened, seen = threading.Event(), []

        def read() -> None:
            with engine.reader() as reader:
                opened.set()
                time.sleep(0.3)
                seen.extend(reader.scan(b""))

        thread = threading.Thread(target=read)
        thread.start()
        opened.wait()
        assert engine.apply(b"p1", [change(*((b"%04d" % n, bytes(1000)) for n in range(1000)))], b"p2")
        thread.join()
        assert seen == [(b"a", b"1")]

    def test_a_thread_cannot_grow_the_lmdb_map_while_it_reads(self, directory: Path) -> None:
        engine = LmdbEngine(directory, SMALL_MAP)
        with engine.reader() as reader:
            with pytest.raises(EngineError, match="Close the reader"):
                engine.apply(None, [change(*((b"%04d" % n, bytes(1000)) for n in range(1000)))], b"p1")
            assert list(reader.scan(b"")) == []
        assert engine.position() is None


@contextmanager
def no_process_is_visible() -> Iterator[None]:
    """Simulate another PID namespace that shares the directory: no process id refers to a live process."""

    def kill(pid: int, number: int) -> None:
        raise ProcessLookupError

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "kill", kill)
        yield


class TestOtherContainers:
    def test_live_readers_in_another_pid_namespace_do_not_make_a_version_suspect(self, directory: Path) -> None:
        in_process(apply_in_process, "lmdb", directory, None, b"a", b"p1")
        processes = [talking_process(hold_reader, "lmdb", directory) for _ in range(3)]
        for _, ours in processes:
            assert ours.recv() == (b"p1", [(b"a", b"p1")])
        with no_process_is_visible():
            assert LmdbEngine(directory).position() == b"p1"
        for process, ours in processes:
            ours.send("end")
            process.join()

    def test_the_private_replica_of_a_live_process_in_another_pid_namespace_is_kept(
        self, directory: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(rocksdb_slot, "_WAIT_SECONDS", 0.05)
        engine = RocksDbEngine(directory)
        engine.apply(None, [change((b"a", b"1"))], b"p1")
        engine.release()
        process, ours = talking_process(hold_reader, "rocksdb", directory)
        assert ours.recv() == (b"p1", [(b"a", b"1")])
        assert not engine.apply(b"p1", [change((b"a", b"2"))], b"p2")
        assert engine.apply(None, [change((b"a", b"2"))], b"p2")
        engine.release()
        ours.send("go on")
        process.join()
        (private,) = directory.glob("private-*")
        # The next process that opens the shared replica sweeps everything it considers abandoned.
        in_process(open_where_no_process_is_visible, directory)
        assert private.exists()
        engine.release()
        engine.position()
        assert not private.exists()

    def test_processes_with_the_same_id_get_different_private_directories(self, directory: Path) -> None:
        one, other = rocksdb_slot._PrivatePlace(directory), rocksdb_slot._PrivatePlace(directory)
        assert one.path != other.path
        for place in (one, other):
            place.remove()
            assert not place.path.exists()


def open_where_no_process_is_visible(directory: Path) -> None:
    with no_process_is_visible():
        engine = RocksDbEngine(directory)
        engine.position()
        engine.release()


HOLD = """
import sys
from penstock.state.engines.lmdb import LmdbEngine
engine = LmdbEngine(sys.argv[1])
assert engine.apply(engine.position(), [], b"p1")
with engine.reader():
    print("reading", flush=True)
    sys.stdin.read()
"""


def test_processes_with_the_same_id_in_two_pid_namespaces_can_read_concurrently(directory: Path) -> None:
    unshare = ["unshare", "--pid", "--fork", "--mount-proc"]
    if shutil.which("unshare") is None or subprocess.run([*unshare, "true"], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("this user cannot make PID namespaces")

    def reader() -> subprocess.Popen[str]:
        command = [*unshare, sys.executable, "-c", HOLD, str(directory)]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    processes = [reader(), reader()]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "reading\n"
    assert LmdbEngine(directory).position() is None
    names = {path.name for path in directory.iterdir()}
    assert len(names) == 4  # the guard, and one replica per namespace
    for process in processes:
        process.communicate()
        assert process.returncode == 0
    # A replica that no process has open is deleted when another namespace creates its own.
    latecomer = reader()
    assert latecomer.stdout is not None
    assert latecomer.stdout.readline() == "reading\n"
    namespace = lmdb_environment.pid_namespace()
    mine = f"{lmdb_environment.boot_id()}-{namespace}" if namespace else lmdb_environment.boot_id()
    assert {path.name for path in directory.iterdir()} & names == {"guard", mine}
    latecomer.communicate()
