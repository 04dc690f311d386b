"""Replicas on disk that are deleted, truncated, corrupted or foreign, on full disks, and after a host crash."""

from __future__ import annotations

import os
import random
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import lmdb
import pytest
from engine_support import ON_DISK, change, contents, in_process, talking_process

from penstock.state.engines import boot, lmdb_environment, rocksdb
from penstock.state.engines.base import Engine, EngineError
from penstock.state.engines.lmdb import LmdbEngine
from penstock.state.engines.rocksdb import RocksDbEngine, RocksDbOptions

SMALL_MAP = 64 << 10

ENTRIES = [(b"%05d" % n, random.Random(n).randbytes(50)) for n in range(3000)]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "replica"


@pytest.fixture(params=sorted(ON_DISK))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def data_file(directory: Path) -> Path:
    (found,) = directory.glob("*/data.mdb")
    return found


def fill(kind: str, directory: Path) -> None:
    engine = ON_DISK[kind](directory)
    assert engine.apply(None, [change(*ENTRIES)], b"p0")
    # RocksDB: creates several files, including one from a compaction.
    assert engine.apply(b"p0", [change(*ENTRIES[:1000])], b"p1")
    engine.compact()
    assert engine.apply(b"p1", [change(*ENTRIES[500:700])], b"p2")
    engine.close()


def read_all(engine: Engine) -> bytes | None:
    """Check that the replica is either as `fill` left it or empty, and return the position."""
    position = engine.position()
    with engine.reader() as reader:
        assert reader.position == position
        entries = ENTRIES if position else []
        assert list(reader.scan(b"")) == entries
        for key, value in ENTRIES:
            assert reader.get(key) == (value if position else None)
    return position


def read_twice(engine: Engine) -> tuple[bytes | None, bool]:
    """Return the final position, and whether damage was found: then the replica must be empty or intact."""
    try:
        return read_all(engine), False
    except EngineError as error:
        if "rebuilds it" not in str(error):
            raise
    engine.release()
    return read_all(engine), True


def apply_after_another_boot(kind: str, directory: Path, boot_file: Path) -> None:
    boot_file.write_text("another-boot\n")
    boot._BOOT_ID = boot_file
    assert ON_DISK[kind](directory).apply(None, [change((b"a", b"1"))], b"p1")


def flip(file: Path, r: random.Random) -> None:
    data = bytearray(file.read_bytes())
    place = r.randrange(len(data))
    data[place] ^= 1 << r.randrange(8)
    file.write_bytes(data)


def flip_rocksdb(directory: Path, seeds: range, connection: Connection) -> None:
    """Flip a random bit in a random file for each seed, and send the outcome."""
    r = random.Random(seeds.start)
    for seed in seeds:
        work = directory.with_name(f"flipped-{seed}")
        shutil.copytree(directory, work)
        files = [file for file in sorted(work.rglob("*")) if file.is_file() and file.stat().st_size]
        # Choose a file first; otherwise most flips would be in the largest one.
        file = r.choice(files)
        flip(file, r)
        # No cache, to keep data of the intact replica from being used.
        engine = RocksDbEngine(work, RocksDbOptions(block_cache_bytes=0))
        position, damaged = read_twice(engine)
        assert engine.apply(position, [change((b"x", b"1"))], b"q")
        engine.close()
        shutil.rmtree(work)
        connection.send((file.suffix or file.name.partition("-")[0], position, damaged))


def flip_lmdb_values(directory: Path, seeds: range) -> None:
    """Flip bits in values, with a valid stamp, so that only checksums can reveal them."""
    for seed in seeds:
        r = random.Random(seed)
        work = directory.with_name(f"flipped-{seed}")
        shutil.copytree(directory, work)
        file = data_file(work)
        key, value = r.choice(ENTRIES)
        data = bytearray(file.read_bytes())
        at = data.find(key + value)
        while at >= 0:
            # In all copies: LMDB keeps pages of earlier versions.
            data[at + r.randrange(len(key + value))] ^= 1 << r.randrange(8)
            at = data.find(key + value)
        file.write_bytes(data)
        restamp(work)
        engine = LmdbEngine(work)
        with engine.reader() as reader, pytest.raises(EngineError, match="rebuilds it"):
            list(reader.scan(b""))
        assert read_all(engine) is None


def restamp(directory: Path) -> None:
    with lmdb_environment.Stamp(data_file(directory).parent).changing():
        pass


class TestFlippedBits:
    def test_bits_flipped_in_any_rocksdb_file_are_detected_or_harmless(self, directory: Path) -> None:
        in_process(fill, "rocksdb", directory)
        process, ours = talking_process(flip_rocksdb, directory, range(60))
        outcomes = []
        try:
            while True:
                outcomes.append(ours.recv())
        except EOFError:
            pass
        process.join()
        assert process.exitcode == 0
        assert len(outcomes) == 60
        # All outcomes occur: found when opened, found when read, and in data that is never read.
        assert {(position, damaged) for _, position, damaged in outcomes} == {
            (None, False), (None, True), (b"p2", False)
        }  # fmt: skip
        # Most damage to tables is found; RocksDB ignores filters that it cannot read.
        tables = [position for name, position, _ in outcomes if name == ".sst"]
        assert tables.count(None) > 0.7 * len(tables)

    def test_bits_flipped_in_lmdb_values_are_detected_when_read(self, directory: Path) -> None:
        in_process(fill, "lmdb", directory)
        in_process(flip_lmdb_values, directory, range(20))

    def test_bits_flipped_anywhere_in_lmdb_are_detected_by_the_file_time(self, directory: Path) -> None:
        in_process(fill, "lmdb", directory)
        for seed in range(20):
            work = directory.with_name(f"flipped-{seed}")
            shutil.copytree(directory, work)
            restamp(work)
            assert read_all(LmdbEngine(work)) == b"p2"
            flip(data_file(work), random.Random(seed))
            assert read_all(LmdbEngine(work)) is None

    def test_a_changed_lmdb_position_makes_the_replica_empty(self, directory: Path) -> None:
        in_process(fill, "lmdb", directory)
        data = data_file(directory).read_bytes()
        data_file(directory).write_bytes(data.replace(b"positionp2", b"positionp3"))
        restamp(directory)
        assert LmdbEngine(directory).position() is None


class TestEveryKind:
    def test_a_replica_deleted_while_open_becomes_empty(self, kind: str, directory: Path) -> None:
        engine = ON_DISK[kind](directory)
        engine.apply(None, [change((b"a", b"1"))], b"p1")
        with engine.reader() as reader:
            shutil.rmtree(directory)
            assert engine.position() is None
            assert engine.apply(None, [change((b"b", b"2"))], b"q1")
            assert list(reader.scan(b"")) == [(b"a", b"1")]
        assert contents(engine) == [(b"b", b"2")]

    def test_a_replica_deleted_during_an_apply_becomes_empty_and_usable(self, kind: str, directory: Path) -> None:
        engine = ON_DISK[kind](directory)
        engine.apply(None, [change((b"a", b"1"))], b"p1")

        class Vanishing:
            def __iter__(self) -> Iterator[object]:
                yield change((b"b", b"2"))
                shutil.rmtree(directory, ignore_errors=True)

        # The return value does not matter, because the files are gone.
        engine.apply(b"p1", Vanishing(), b"p2")  # type: ignore[arg-type]
        assert engine.position() is None
        assert engine.apply(None, [change((b"c", b"3"))], b"q1")
        assert contents(engine) == [(b"c", b"3")]

    def test_a_replica_of_an_earlier_boot_is_deleted(self, kind: str, directory: Path, tmp_path: Path) -> None:
        in_process(apply_after_another_boot, kind, directory, tmp_path / "boot_id")
        assert list(directory.glob("another-boot*"))
        assert ON_DISK[kind](directory).position() is None
        assert not list(directory.glob("another-boot*"))

    def test_a_replica_on_disk_is_rejected_without_a_boot_id(
        self, kind: str, directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(boot, "_BOOT_ID", tmp_path / "missing")
        with pytest.raises(EngineError, match=r"state\.backend to memory"):
            ON_DISK[kind](directory).position()

    def test_the_error_names_a_directory_that_cannot_be_created(self, kind: str, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(EngineError, match="file/replica"):
            ON_DISK[kind](tmp_path / "file" / "replica").position()

    def test_foreign_files_in_the_replica_directory_are_deleted(self, kind: str, directory: Path) -> None:
        (directory / "theirs").mkdir(parents=True)
        (directory / "theirs" / "file").write_text("something")
        (directory / "note.txt").write_text("something")
        engine = ON_DISK[kind](directory)
        assert engine.position() is None
        assert engine.apply(None, [change((b"a", b"1"))], b"p1")
        assert not (directory / "theirs").exists()
        assert contents(engine) == [(b"a", b"1")]


class TestDamagedLmdb:
    @pytest.mark.parametrize(
        "damage",
        [
            lambda data: data.write_bytes(b"this is not a database\n" * 1000),
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
    def test_a_damaged_lmdb_replica_becomes_empty(self, directory: Path, damage: Callable[[Path], object]) -> None:
        in_process(fill, "lmdb", directory)
        damage(data_file(directory))
        engine = LmdbEngine(directory)
        assert engine.position() is None
        assert contents(engine) == []
        assert engine.apply(None, [change((b"a", b"1"))], b"p1")
        assert contents(engine) == [(b"a", b"1")]

    def test_the_lmdb_file_of_another_program_is_replaced(self, directory: Path) -> None:
        path = directory / boot.boot_id()
        path.mkdir(parents=True)
        with lmdb.open(str(path)) as foreign, foreign.begin(write=True) as txn:
            txn.put(b"theirs", b"1")
        engine = LmdbEngine(directory)
        assert engine.position() is None
        assert contents(engine) == []

    def test_damage_found_while_reading_fails_the_task_and_deletes_the_replica(
        self, directory: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Damaged:
            def get(self, key: bytes) -> bytes:
                raise lmdb.CorruptedError("MDB_CORRUPTED")

        engine = LmdbEngine(directory)
        engine.apply(None, [change((b"a", b"1"))], b"p1")
        with engine.reader() as reader:
            monkeypatch.setattr(reader, "_txn", Damaged())
            with pytest.raises(EngineError, match="rebuilds it"):
                reader.get(b"a")
        assert engine.position() is None

    def test_the_length_check_accepts_every_intact_file(self, directory: Path) -> None:
        """LMDB can leave the last page unwritten; this happens in some of many random applies."""
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


def largest(directory: Path) -> Path:
    return max(directory.glob("*/*.sst"), key=lambda file: file.stat().st_size)


class TestDamagedRocksDb:
    @pytest.mark.parametrize(
        "damage",
        [
            lambda directory: largest(directory).unlink(),
            lambda directory: largest(directory).write_bytes(b""),
            lambda directory: os.truncate(largest(directory), largest(directory).stat().st_size // 2),
            lambda directory: os.truncate(largest(directory), largest(directory).stat().st_size - 1),
            lambda directory: largest(directory).write_bytes(bytes(largest(directory).stat().st_size)),
            lambda directory: largest(directory).write_bytes(min(directory.glob("*/*.sst")).read_bytes() * 2),
            lambda directory: next(directory.glob("*/MANIFEST-*")).unlink(),
            lambda directory: next(directory.glob("*/MANIFEST-*")).write_bytes(b""),
            lambda directory: next(directory.glob("*/CURRENT")).unlink(),
            lambda directory: next(directory.glob("*/CURRENT")).write_text("MANIFEST-999999\n"),
            lambda directory: [file.write_text("text") for file in directory.glob("*/*")],
            lambda directory: [shutil.rmtree(path) for path in directory.glob("*/")],
            lambda directory: shutil.rmtree(directory),
        ],
        ids=[
            "no table", "empty table", "half a table", "one byte less", "zeros", "another table", "no manifest",
            "empty manifest", "no CURRENT", "wrong CURRENT", "text", "no database", "no directory",
        ],
    )  # fmt: skip
    def test_a_damaged_rocksdb_replica_becomes_empty(self, directory: Path, damage: Callable[[Path], object]) -> None:
        in_process(fill, "rocksdb", directory)
        damage(directory)
        engine = RocksDbEngine(directory)
        assert read_twice(engine)[0] is None
        assert engine.apply(None, [change((b"a", b"1"))], b"p1")
        assert contents(engine) == [(b"a", b"1")]

    @pytest.mark.parametrize("name", ["999999.log", "999999.sst", "MANIFEST-999999", "OPTIONS-999999", "theirs"])
    def test_a_foreign_file_in_the_database_is_harmless(self, directory: Path, name: str) -> None:
        in_process(fill, "rocksdb", directory)
        next(directory.glob("*/CURRENT")).with_name(name).write_bytes(random.Random(1).randbytes(5000))
        assert read_twice(RocksDbEngine(directory))[0] in (None, b"p2")

    def test_the_error_for_a_value_that_is_too_large_states_its_size(
        self, directory: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(rocksdb, "_MAX_VALUE", 1000)
        engine = RocksDbEngine(directory)
        with pytest.raises(EngineError, match=r"1001 bytes.*MapState"):
            engine.apply(None, [change((b"a", bytes(1001)))], b"p1")
        assert engine.position() is None
        assert engine.apply(None, [change((b"a", bytes(1000)))], b"p1")


def apply_to_small_files(kind: str, directory: Path, batch_bytes: int) -> None:
    rocksdb._BATCH_BYTES = batch_bytes
    engine = ON_DISK[kind](directory)
    r = random.Random(1)
    assert engine.apply(None, [change((b"a", b"1"))], b"p1")
    large = [change(*((b"%05d" % n, r.randbytes(1000)) for n in range(1000)))]
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    # Python ignores the signal, so writing more is an error, as on a full disk.
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, limits[1]))
    for _ in range(2):
        with pytest.raises(EngineError, match=f"{directory}.*Free space"):
            engine.apply(b"p1", large, b"p2")
        assert engine.position() == b"p1"
        assert contents(engine) == [(b"a", b"1")]
        engine.release()
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert engine.apply(b"p1", large, b"p2")
    assert len(contents(engine)) == 1001


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


class TestFullDisk:
    @pytest.mark.parametrize("batch_bytes", [16 << 20, 100_000])
    def test_files_that_cannot_grow_raise_an_error_and_keep_the_replica(
        self, kind: str, directory: Path, batch_bytes: int
    ) -> None:
        in_process(apply_to_small_files, kind, directory, batch_bytes)

    def test_apply_on_a_full_disk_names_the_directory_and_keeps_the_replica(self, kind: str, tiny_disk: Path) -> None:
        small = {"lmdb": LmdbEngine(tiny_disk / "replica", SMALL_MAP), "rocksdb": RocksDbEngine(tiny_disk / "replica")}
        engine = small[kind]
        engine.apply(None, [change((b"a", b"1"))], b"p1")
        r = random.Random(1)
        large = [change(*((b"%05d" % n, r.randbytes(1000)) for n in range(5000)))]
        for _ in range(2):
            with pytest.raises(EngineError, match=f"{tiny_disk}/replica.*Free space"):
                engine.apply(b"p1", large, b"p2")
        assert engine.position() == b"p1"
        assert contents(engine) == [(b"a", b"1")]

    def test_opening_a_replica_on_a_full_disk_raises_an_error_instead_of_a_signal(
        self, kind: str, tiny_disk: Path
    ) -> None:
        try:
            with open(tiny_disk / "ballast", "wb", buffering=0) as ballast:
                while ballast.write(bytes(4096)):
                    pass
        except OSError:
            pass
        with pytest.raises(EngineError, match=f"{tiny_disk}/replica"):
            ON_DISK[kind](tiny_disk / "replica").position()
