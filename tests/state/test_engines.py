"""What every engine promises, over all of them; then what LMDB promises beyond: processes, crashes, damage."""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import pairwise
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path

import lmdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.state.engines import lmdb_environment
from penstock.state.engines.base import Engine, EngineError
from penstock.state.engines.lmdb import LmdbEngine
from penstock.state.engines.memory import MemoryEngine
from penstock.state.files import GroupChanges

spawn = multiprocessing.get_context("spawn")
fork = multiprocessing.get_context("fork")

SMALL_MAP = 64 << 10


def change(*entries: tuple[bytes, bytes | None], cleared: tuple[bytes, ...] = (), group: int = 0) -> GroupChanges:
    return GroupChanges(group, list(cleared), sorted(entries))


def contents(engine: Engine, prefix: bytes = b"") -> list[tuple[bytes, bytes]]:
    with engine.reader() as reader:
        return list(reader.scan(prefix))


@contextmanager
def memory_engine() -> Iterator[Engine]:
    yield MemoryEngine()


@contextmanager
def lmdb_engine() -> Iterator[Engine]:
    directory = tempfile.mkdtemp(prefix="penstock-test-")
    try:
        yield LmdbEngine(directory)
    finally:
        shutil.rmtree(directory)


ENGINES = {"memory": memory_engine, "lmdb": lmdb_engine}


NewEngine = Callable[[], AbstractContextManager[Engine]]


@pytest.fixture(params=sorted(ENGINES))
def new_engine(request: pytest.FixtureRequest) -> NewEngine:
    return ENGINES[request.param]


@pytest.fixture
def engine(new_engine: NewEngine) -> Iterator[Engine]:
    with new_engine() as engine:
        yield engine


class TestEveryEngine:
    def test_a_new_replica_is_empty_and_nowhere(self, engine: Engine) -> None:
        assert engine.position() is None
        assert contents(engine) == []
        with engine.reader() as reader:
            assert reader.position is None
            assert reader.get(b"a") is None

    def test_apply_puts_deletes_and_moves_on(self, engine: Engine) -> None:
        assert engine.apply(None, [change((b"a", b"1"), (b"b", b"2"), (b"c", b""))], b"p1")
        assert engine.apply(b"p1", [change((b"a", None), (b"b", b"3"), (b"x", None))], b"p2")
        assert engine.position() == b"p2"
        assert contents(engine) == [(b"b", b"3"), (b"c", b"")]
        with engine.reader() as reader:
            assert (reader.get(b"a"), reader.get(b"b"), reader.get(b"c")) == (None, b"3", b"")
            assert reader.position == b"p2"

    def test_changes_apply_in_their_order(self, engine: Engine) -> None:
        layers = [change((b"a", b"1")), change((b"a", b"2")), change((b"ab", b"3"), cleared=(b"a",))]
        assert engine.apply(None, layers, b"p")
        assert contents(engine) == [(b"ab", b"3")]

    def test_a_clear_takes_its_prefix_and_spares_the_entries_it_comes_with(self, engine: Engine) -> None:
        engine.apply(None, [change((b"a", b"1"), (b"ab", b"2"), (b"ac", b"3"), (b"b", b"4"))], b"p1")
        engine.apply(b"p1", [change((b"ac", b"5"), (b"ad", b"6"), cleared=(b"a",))], b"p2")
        assert contents(engine) == [(b"ac", b"5"), (b"ad", b"6"), (b"b", b"4")]

    def test_clearing_the_highest_prefix_reaches_the_end(self, engine: Engine) -> None:
        engine.apply(None, [change((b"\xfe", b"1"), (b"\xff", b"2"), (b"\xff\xff\x00", b"3"))], b"p1")
        engine.apply(b"p1", [change(cleared=(b"\xff",))], b"p2")
        assert contents(engine) == [(b"\xfe", b"1")]

    def test_an_empty_prefix_is_everything(self, engine: Engine) -> None:
        engine.apply(None, [change((b"", b"0"), (b"a", b"1"), (b"b" * 600, b"2"))], b"p1")
        assert contents(engine) == [(b"", b"0"), (b"a", b"1"), (b"b" * 600, b"2")]
        engine.apply(b"p1", [change((b"c", b"3"), cleared=(b"",))], b"p2")
        assert contents(engine) == [(b"c", b"3")]

    def test_a_wrong_expectation_leaves_it_untouched(self, engine: Engine) -> None:
        assert not engine.apply(b"p0", [change((b"a", b"1"))], b"p1")
        assert engine.position() is None
        engine.apply(None, [change((b"a", b"1"))], b"p1")
        for wrong in (None, b"p0", b""):
            assert not engine.apply(wrong, [change((b"a", b"2"), cleared=(b"",))], b"p2")
        assert engine.position() == b"p1"
        assert contents(engine) == [(b"a", b"1")]

    def test_changes_that_fail_halfway_leave_it_untouched(self, engine: Engine) -> None:
        engine.apply(None, [change((b"a", b"1"))], b"p1")

        def failing() -> Iterator[GroupChanges]:
            yield change((b"a", b"2"), cleared=(b"",))
            raise RuntimeError("a file was corrupt")

        class Failing:
            def __iter__(self) -> Iterator[GroupChanges]:
                return failing()

        for changes in (failing(), Failing()):
            with pytest.raises(RuntimeError):
                engine.apply(b"p1", changes, b"p2")
            assert engine.position() == b"p1"
            assert contents(engine) == [(b"a", b"1")]

    def test_reset_empties_it(self, engine: Engine) -> None:
        engine.apply(None, [change((b"a", b"1"), (b"b" * 600, b"2"))], b"p1")
        engine.reset()
        assert engine.position() is None
        assert contents(engine) == []
        assert engine.apply(None, [change((b"c", b"1"))], b"p2")
        assert contents(engine) == [(b"c", b"1")]

    def test_a_reader_sees_what_was_there_when_it_opened(self, engine: Engine) -> None:
        engine.apply(None, [change((b"a", b"1"), (b"b", b"2"))], b"p1")
        with engine.reader() as before:
            engine.apply(b"p1", [change((b"a", b"9"), (b"b", None), (b"c", b"3"))], b"p2")
            engine.apply(b"p2", [change(cleared=(b"a",))], b"p3")
            with engine.reader() as after:
                assert after.position == b"p3"
                assert list(after.scan(b"")) == [(b"c", b"3")]
            assert before.position == b"p1"
            assert (before.get(b"a"), before.get(b"b"), before.get(b"c")) == (b"1", b"2", None)
            assert list(before.scan(b"")) == [(b"a", b"1"), (b"b", b"2")]
            engine.reset()
            assert list(before.scan(b"")) == [(b"a", b"1"), (b"b", b"2")]
        assert contents(engine) == []

    def test_an_apply_in_the_middle_of_a_scan_does_not_disturb_it(self, engine: Engine) -> None:
        engine.apply(None, [change(*((b"%02d" % n, b"1") for n in range(50)))], b"p1")
        with engine.reader() as reader:
            scan = reader.scan(b"")
            seen = [next(scan)]
            engine.apply(b"p1", [change((b"00x", b"2"), cleared=(b"2", b"49"))], b"p2")
            seen += scan
        assert [key for key, _ in seen] == [b"%02d" % n for n in range(50)]

    def test_several_scans_of_one_reader_do_not_disturb_each_other(self, engine: Engine) -> None:
        engine.apply(None, [change((b"a1", b""), (b"a2", b""), (b"b1", b""), (b"b2", b""))], b"p1")
        with engine.reader() as reader:
            pairs = [(a, b) for (a, _), (b, _) in zip(reader.scan(b"a"), reader.scan(b"b"))]
        assert pairs == [(b"a1", b"b1"), (b"a2", b"b2")]

    def test_long_keys_sort_among_the_short_ones(self, engine: Engine) -> None:
        stem = b"k" * 505
        keys = sorted(stem + tail for tail in (b"", b"a" * 6, b"a" * 7, b"a" * 8, b"b", b"b" * 9, b"c" * 65000))
        engine.apply(None, [change(*((key, key[-3:]) for key in keys))], b"p1")
        for prefix in (b"", b"k", stem, stem + b"a", stem + b"a" * 7, stem + b"b" * 2, stem + b"c" * 60000):
            assert contents(engine, prefix) == [(k, k[-3:]) for k in keys if k.startswith(prefix)]
        engine.apply(b"p1", [change((keys[-1], None), cleared=(stem + b"a" * 7,))], b"p2")
        assert [key for key, _ in contents(engine)] == [key for key in keys[:-1] if not key.startswith(stem + b"a" * 7)]

    def test_threads_read_while_one_applies(self, engine: Engine) -> None:
        """Every version writes its number under all keys: a torn view would show two numbers."""
        versions = 60

        def version(number: int) -> list[GroupChanges]:
            value = b"%d" % number
            return [change(*((b"%d-%d" % (n, number % 3), value) for n in range(100)), cleared=(b"",))]

        engine.apply(None, version(0), b"0")
        torn: list[object] = []
        done = threading.Event()

        def read() -> None:
            while not done.is_set():
                with engine.reader() as reader:
                    found = {value for _, value in reader.scan(b"")}
                    if found != {reader.position}:
                        torn.append((found, reader.position))

        threads = [threading.Thread(target=read) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            for number in range(1, versions):
                assert engine.apply(b"%d" % (number - 1), version(number), b"%d" % number)
        finally:
            done.set()
            for thread in threads:
                thread.join()
        assert torn == []

    def test_it_knows_about_its_size(self, engine: Engine) -> None:
        engine.apply(None, [change(*((b"%04d" % n, bytes(1000)) for n in range(1000)))], b"p1")
        assert 1_000_000 < engine.size_bytes() < 10_000_000


# Few bytes and few stems, so that keys meet; around LMDB's limit of 511 and over the stem of 495.
stems = st.sampled_from([b"", b"", b"", b"k" * 493, b"k" * 508, b"k" * 600])
short = st.binary(max_size=4).map(lambda data: bytes(byte % 3 + 0xFD if byte > 99 else byte % 3 for byte in data))
keys = st.builds(bytes.__add__, stems, short)
changes = st.builds(
    lambda cleared, entries: GroupChanges(0, cleared, sorted(entries.items())),
    st.lists(keys, max_size=2),
    st.dictionaries(keys, st.none() | st.binary(max_size=3), max_size=12),
)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    applies=st.lists(st.lists(changes, max_size=3) | st.just("reset"), max_size=8),
    probes=st.lists(keys, max_size=5),
    held_at=st.integers(0, 7),
)
def test_any_applies_equal_a_dict(
    new_engine: NewEngine,
    applies: list[list[GroupChanges] | str],
    probes: list[bytes],
    held_at: int,
) -> None:
    oracle: dict[bytes, bytes] = {}
    position = None
    held, held_oracle, context = None, oracle, None
    with new_engine() as engine:
        for number, layers in enumerate(applies):
            if number == held_at:
                context = engine.reader()
                held, held_oracle = context.__enter__(), dict(oracle)
            if isinstance(layers, str):
                engine.reset()
                oracle, position = {}, None
                continue
            assert engine.apply(position, layers, position := b"%d" % number)
            for layer in layers:
                for prefix in layer.cleared:
                    oracle = {key: value for key, value in oracle.items() if not key.startswith(prefix)}
                for key, value in layer.entries:
                    if value is None:
                        oracle.pop(key, None)
                    else:
                        oracle[key] = value
        with engine.reader() as now:
            for reader, expected in ((now, oracle), *([(held, held_oracle)] if held else [])):
                for probe in [*probes, *expected]:
                    assert reader.get(probe) == expected.get(probe)
                for prefix in [b"", *probes]:
                    assert list(reader.scan(prefix)) == sorted(
                        entry for entry in expected.items() if entry[0].startswith(prefix)
                    )
                for start, end in pairwise([b"", *sorted({*probes, *expected}), b"\xff" * 600]):
                    assert list(reader.between(start, end)) == sorted(
                        entry for entry in expected.items() if start <= entry[0] < end
                    )
                for start, end in zip(probes, reversed(probes), strict=True):
                    assert list(reader.between(start, end)) == sorted(
                        entry for entry in expected.items() if start <= entry[0] < end
                    )
        if context is not None:
            context.__exit__(None, None, None)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "replica"


def data_file(directory: Path) -> Path:
    (found,) = directory.glob("*/data.mdb")
    return found


def in_process(target: Callable[..., object], *args: object) -> None:
    process = spawn.Process(target=target, args=args)
    process.start()
    process.join()
    assert process.exitcode == 0


def talking_process(target: Callable[..., object], directory: Path) -> tuple[SpawnProcess, Connection]:
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=target, args=(directory, theirs))
    process.start()
    # Or a process that died would not end our waiting for its word.
    theirs.close()
    return process, ours


def apply_in_process(directory: Path, expect: bytes | None, key: bytes, position: bytes) -> None:
    assert LmdbEngine(directory).apply(expect, [change((key, position))], position)


def try_apply(directory: Path, barrier: object, results: object) -> None:
    engine = LmdbEngine(directory)
    barrier.wait()  # type: ignore[attr-defined]
    results.put(engine.apply(b"p1", [change((b"n", b"x"))], b"p2"))  # type: ignore[attr-defined]


def grow(directory: Path) -> None:
    engine = LmdbEngine(directory, SMALL_MAP)
    assert engine.apply(b"p1", [change(*((b"%05d" % n, bytes(100)) for n in range(5000)))], b"p2")


def hold_reader(directory: Path, connection: Connection) -> None:
    with LmdbEngine(directory).reader() as reader:
        connection.send((reader.position, list(reader.scan(b""))))
        connection.recv()
        connection.send((reader.position, list(reader.scan(b""))))


def apply_and_stall(directory: Path, connection: Connection) -> None:
    class Stalling:
        def __iter__(self) -> Iterator[GroupChanges]:
            yield change((b"a", b"half"), cleared=(b"",))
            connection.send("half")
            time.sleep(600)

    LmdbEngine(directory).apply(b"p1", Stalling(), b"p2")


def apply_after_another_boot(directory: Path, boot_file: Path) -> None:
    boot_file.write_text("another-boot\n")
    lmdb_environment._BOOT_ID = boot_file
    apply_in_process(directory, None, b"a", b"p1")


class TestProcesses:
    def test_a_replica_is_shared_by_processes(self, directory: Path) -> None:
        engine = LmdbEngine(directory)
        engine.apply(None, [change((b"a", b"1"))], b"p1")
        in_process(apply_in_process, directory, b"p1", b"b", b"p2")
        assert engine.position() == b"p2"
        assert contents(engine) == [(b"a", b"1"), (b"b", b"p2")]

    def test_of_two_processes_that_apply_the_same_one_is_told_so(self, directory: Path) -> None:
        LmdbEngine(directory).apply(None, [], b"p1")
        barrier, results = spawn.Barrier(2), spawn.Queue()
        processes = [spawn.Process(target=try_apply, args=(directory, barrier, results)) for _ in range(2)]
        for process in processes:
            process.start()
        assert sorted(results.get(timeout=60) for _ in processes) == [False, True]
        for process in processes:
            process.join()
        assert LmdbEngine(directory).position() == b"p2"

    def test_a_reader_in_another_process_is_not_disturbed(self, directory: Path) -> None:
        engine = LmdbEngine(directory, SMALL_MAP)
        engine.apply(None, [change((b"a", b"1"))], b"p0")
        process, ours = talking_process(hold_reader, directory)
        expected = (b"p0", [(b"a", b"1")])
        assert ours.recv() == expected
        for number in range(20):
            entries = ((b"%d" % n, bytes([number]) * 1000) for n in range(300))
            engine.apply(b"p%d" % number, [change(*entries, cleared=(b"",))], b"p%d" % (number + 1))
        ours.send("go on")
        assert ours.recv() == expected
        process.join()

    def test_a_map_that_another_process_enlarged_is_taken_over(self, directory: Path) -> None:
        engine = LmdbEngine(directory, SMALL_MAP)
        engine.apply(None, [], b"p1")
        in_process(grow, directory)
        assert engine.position() == b"p2"
        assert len(contents(engine)) == 5000
        assert engine.apply(b"p2", [change((b"x", b"1"))], b"p3")

    def test_a_process_killed_in_the_middle_of_an_apply_leaves_the_version_before(self, directory: Path) -> None:
        engine = LmdbEngine(directory)
        engine.apply(None, [change((b"a", b"1"))], b"p1")
        process, ours = talking_process(apply_and_stall, directory)
        assert ours.recv() == "half"
        assert contents(engine) == [(b"a", b"1")]
        os.kill(process.pid or 0, signal.SIGKILL)
        process.join()
        assert engine.apply(b"p1", [change((b"b", b"2"))], b"p2")
        assert contents(engine) == [(b"a", b"1"), (b"b", b"2")]

    def test_the_slot_of_a_killed_reader_is_freed(self, directory: Path) -> None:
        engine = LmdbEngine(directory)
        engine.apply(None, [change((b"a", b"1"))], b"p0")
        process, ours = talking_process(hold_reader, directory)
        ours.recv()
        os.kill(process.pid or 0, signal.SIGKILL)
        process.join()
        for number in range(60):
            entries = ((b"%d" % n, bytes(1000)) for n in range(100))
            engine.apply(b"p%d" % number, [change(*entries, cleared=(b"",))], b"p%d" % (number + 1))
        assert engine.size_bytes() < 20 * 100 * 1000

    def test_a_forked_child_opens_its_own(self, directory: Path) -> None:
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

    def test_a_child_forked_while_its_parent_reads_is_refused_and_harms_nobody(self, directory: Path) -> None:
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
            # Had the child ended the parent's reader, these would write over the pages it reads.
            for number in range(20):
                entries = change((b"a", b"%d" % number))
                assert engine.apply(b"p%d" % number, [entries], b"p%d" % (number + 1))
            assert reader.get(b"a") == b"1"

    def test_only_so_many_stay_open(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(lmdb_environment, "_KEPT_OPEN", 3)
        engines = [LmdbEngine(tmp_path / str(n)) for n in range(8)]
        with engines[0].reader() as reader:
            for engine in engines:
                engine.apply(None, [change((b"a", b"1"))], b"p1")
            assert reader.get(b"a") is None
        assert len(lmdb_environment._open.environments) <= 4
        assert [engine.position() for engine in engines] == [b"p1"] * 8


class TestTheMap:
    def test_it_grows_as_needed(self, directory: Path) -> None:
        engine = LmdbEngine(directory, SMALL_MAP)
        entries = [(b"%06d" % n, bytes(100)) for n in range(20000)]
        assert engine.apply(None, (change(*entries[n::2]) for n in range(2)), b"p1")
        assert contents(engine) == entries

    def test_it_waits_for_readers_of_other_threads(self, directory: Path) -> None:
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

    def test_a_thread_that_would_pull_the_map_from_under_itself_is_refused(self, directory: Path) -> None:
        engine = LmdbEngine(directory, SMALL_MAP)
        with engine.reader() as reader:
            with pytest.raises(EngineError, match="End the reader"):
                engine.apply(None, [change(*((b"%04d" % n, bytes(1000)) for n in range(1000)))], b"p1")
            assert list(reader.scan(b"")) == []
        assert engine.position() is None


class TestDamage:
    @staticmethod
    def fill(directory: Path) -> None:
        entries = change(*((b"%05d" % n, bytes(50)) for n in range(3000)))
        assert LmdbEngine(directory).apply(None, [entries], b"p1")

    @pytest.mark.parametrize(
        "damage",
        [
            lambda data: data.write_bytes(b"this is no database\n" * 1000),
            lambda data: data.write_bytes(b""),
            lambda data: os.truncate(data, 100),
            lambda data: os.truncate(data, 4096),
            lambda data: os.truncate(data, 8192),
            lambda data: os.truncate(data, data.stat().st_size // 2),
            lambda data: os.truncate(data, data.stat().st_size - 1),
            lambda data: data.write_bytes(bytes(8192) + data.read_bytes()[8192:]),
            lambda data: data.write_bytes(data.read_bytes()[:20] + b"\xff" * 4 + data.read_bytes()[24:]),
            lambda data: data.unlink(),
            lambda data: shutil.rmtree(data.parent),
            lambda data: shutil.rmtree(data.parents[1]),
        ],
        ids=[
            "text", "empty", "100 bytes", "one page", "two pages", "half", "one byte less", "no metadata",
            "version", "no file", "no environment", "no directory",
        ],
    )  # fmt: skip
    def test_a_damaged_replica_is_a_new_one(self, directory: Path, damage: Callable[[Path], object]) -> None:
        in_process(self.fill, directory)
        damage(data_file(directory))
        engine = LmdbEngine(directory)
        assert engine.position() is None
        assert contents(engine) == []
        assert engine.apply(None, [change((b"a", b"1"))], b"p1")
        assert contents(engine) == [(b"a", b"1")]

    def test_a_replica_that_was_deleted_while_open_is_a_new_one(self, directory: Path) -> None:
        engine = LmdbEngine(directory)
        engine.apply(None, [change((b"a", b"1"))], b"p1")
        with engine.reader() as reader:
            shutil.rmtree(directory)
            assert engine.position() is None
            assert engine.apply(None, [change((b"b", b"2"))], b"q1")
            assert list(reader.scan(b"")) == [(b"a", b"1")]
        assert contents(engine) == [(b"b", b"2")]

    def test_another_programs_lmdb_file_is_replaced(self, directory: Path) -> None:
        path = directory / lmdb_environment._boot_id()
        path.mkdir(parents=True)
        with lmdb.open(str(path)) as foreign, foreign.begin(write=True) as txn:
            txn.put(b"theirs", b"1")
        engine = LmdbEngine(directory)
        assert engine.position() is None
        assert contents(engine) == []

    def test_damage_found_while_reading_ends_the_task_and_the_replica(
        self, directory: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Damaged:
            def get(self, key: bytes) -> bytes:
                raise lmdb.CorruptedError("MDB_CORRUPTED")

        engine = LmdbEngine(directory)
        engine.apply(None, [change((b"a", b"1"))], b"p1")
        with engine.reader() as reader:
            monkeypatch.setattr(reader, "_txn", Damaged())
            with pytest.raises(EngineError, match="builds it anew"):
                reader.get(b"a")
        assert engine.position() is None

    def test_the_length_check_never_takes_a_sound_file_for_a_damaged_one(self, directory: Path) -> None:
        """LMDB may leave the last page unwritten; over many random applies some do."""
        engine = LmdbEngine(directory)
        position = None
        for seed in range(300):
            r = random.Random(seed)
            entries = {
                b"%d" % r.randrange(500): r.choice([None, bytes(r.choice([5, 100, 3000, 10000]))])
                for _ in range(r.randrange(1, 60))
            }
            cleared = (b"",) if r.random() < 0.1 else ()
            assert engine.apply(position, [change(*entries.items(), cleared=cleared)], position := b"%d" % seed)
            with lmdb_environment.pinned(str(directory), SMALL_MAP) as environment:
                environment._check_length()

    def test_after_another_boot_it_is_a_new_one_and_the_old_files_are_gone(
        self, directory: Path, tmp_path: Path
    ) -> None:
        in_process(apply_after_another_boot, directory, tmp_path / "boot_id")
        assert data_file(directory).parent.name == "another-boot"
        engine = LmdbEngine(directory)
        assert engine.position() is None
        assert data_file(directory).parent.name == lmdb_environment._boot_id()

    def test_without_a_boot_id_lmdb_is_refused(
        self, directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(lmdb_environment, "_BOOT_ID", tmp_path / "missing")
        with pytest.raises(EngineError, match="Memory backend"):
            LmdbEngine(directory).position()

    def test_a_directory_that_cannot_be_made_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(EngineError, match="file/replica"):
            LmdbEngine(tmp_path / "file" / "replica").position()


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], capture_output=True)
    if mount.returncode:
        pytest.skip("mounting a small file system needs root")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


class TestAFullDisk:
    def test_apply_names_the_directory_and_the_replica_stays(self, tiny_disk: Path) -> None:
        engine = LmdbEngine(tiny_disk / "replica", SMALL_MAP)
        engine.apply(None, [change((b"a", b"1"))], b"p1")
        large = [change(*((b"%05d" % n, bytes(1000)) for n in range(5000)))]
        for _ in range(2):
            with pytest.raises(EngineError, match=f"{tiny_disk}/replica.*Free space"):
                engine.apply(b"p1", large, b"p2")
        assert engine.position() == b"p1"
        assert contents(engine) == [(b"a", b"1")]

    def test_opening_is_an_error_and_no_signal(self, tiny_disk: Path) -> None:
        try:
            with open(tiny_disk / "ballast", "wb", buffering=0) as ballast:
                while ballast.write(bytes(4096)):
                    pass
        except OSError:
            pass
        with pytest.raises(EngineError, match=f"{tiny_disk}/replica"):
            LmdbEngine(tiny_disk / "replica").position()
