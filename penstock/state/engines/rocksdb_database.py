"""RocksDB as this process has it: its memory, its settings, and what its errors mean."""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import rocksdict

from penstock.common.options.state import ROCKSDB_CACHE, ROCKSDB_THREADS, ROCKSDB_WRITE_BUFFERS
from penstock.state.engines.base import EngineError

__all__ = [
    "LockedDatabase",
    "MemoryUsage",
    "ReplicaRecord",
    "RocksDbOptions",
    "UnusableDatabase",
    "close_database",
    "memory_usage",
    "open_database",
    "sst_writer",
    "translating",
]

# What a replica stands on is an entry like others, so that it is written in one batch with what it tells about. Its key
# is the least there is; an entry that has that key itself is kept within.
_RECORD_KEY = b""
_RECORD = struct.Struct(">B?I")
_FORMAT = 1

# How a message of RocksDB's ends: with what the system said.
_FULL = ("No space left on device", "File too large", "Disk quota exceeded")
_NOT_DAMAGE = ("Permission denied", "Read-only file system", "Too many open files", "Cannot allocate memory")
_LOCKED = ("No locks available", "Resource temporarily unavailable")


_LARGE = 512 << 20
"""A replica whose index and filters, about a fiftieth of it, are not kept in memory as a whole."""


class UnusableDatabase(Exception):
    """What RocksDB raised on files that are damaged, missing or not its own."""


class LockedDatabase(Exception):
    """RocksDB's own lock is held, though the guard was not: someone deleted the guard."""


@dataclass(frozen=True, slots=True)
class RocksDbOptions:
    """What RocksDB may take in one process, over all replicas that are open there."""

    block_cache_bytes: int = ROCKSDB_CACHE.default
    write_buffer_bytes: int = ROCKSDB_WRITE_BUFFERS.default
    background_threads: int = ROCKSDB_THREADS.default


class MemoryUsage(NamedTuple):
    """What RocksDB holds in this process, in bytes."""

    block_cache: int
    block_cache_pinned: int
    write_buffers: int


class _Memory:
    """The one block cache and the one write buffer budget of this process."""

    def __init__(self, options: RocksDbOptions) -> None:
        self.options = options
        self.cache = rocksdict.Cache(options.block_cache_bytes)
        self.write_buffers = rocksdict.WriteBufferManager(options.write_buffer_bytes, False)

    def fit(self, options: RocksDbOptions) -> None:
        if options != self.options:
            self.cache.set_capacity(options.block_cache_bytes)
            self.write_buffers.set_buffer_size(options.write_buffer_bytes)
            self.options = options


class _Process:
    """What this process has of RocksDB. A forked child has nothing, and may have nothing once its parent had."""

    def __init__(self, forked: bool = False) -> None:
        self.lock = threading.Lock()
        self.memory: _Memory | None = None
        self.forked = forked

    def memory_for(self, options: RocksDbOptions, directory: str) -> _Memory:
        if self.forked:
            raise EngineError(
                f"This process was forked from one that had RocksDB open, whose threads it lacks, and cannot open the "
                f"replica in {directory}. Fork before reading state, or start new processes (multiprocessing 'spawn')."
            )
        with self.lock:
            if self.memory is None:
                self.memory = _Memory(options)
            self.memory.fit(options)
            return self.memory


_process = _Process()


def _after_fork() -> None:
    global _process
    _process = _Process(forked=_process.forked or _process.memory is not None)


os.register_at_fork(after_in_child=_after_fork)


def memory_usage() -> MemoryUsage:
    """What RocksDB holds in this process now; nothing where it was never opened."""
    memory = _process.memory
    if memory is None:
        return MemoryUsage(0, 0, 0)
    return MemoryUsage(memory.cache.get_usage(), memory.cache.get_pinned_usage(), memory.write_buffers.get_usage())


class ReplicaRecord(NamedTuple):
    """What a replica stands on, and the value of the empty key."""

    position: bytes | None
    empty: bytes | None

    def write(self, batch: rocksdict.WriteBatch) -> None:
        position = self.position or b""
        head = _RECORD.pack(_FORMAT, self.empty is not None, len(position))
        batch.put(_RECORD_KEY, head + position + (self.empty or b""))

    @classmethod
    def read(cls, db: rocksdict.Rdict) -> ReplicaRecord:
        data = db.get(_RECORD_KEY)
        if data is None:
            return cls(None, None)
        if len(data) < _RECORD.size or data[0] != _FORMAT:
            raise UnusableDatabase("another program's or another version's")
        _, has_empty, length = _RECORD.unpack_from(data)
        end = _RECORD.size + length
        return cls(data[_RECORD.size : end], data[end:] if has_empty else None)


def close_database(db: rocksdict.Rdict) -> None:
    try:
        db.close()
    except Exception:
        # It could not flush what is in memory: what must be kept was flushed before, or its failure was told.
        pass


@contextmanager
def translating(directory: str) -> Iterator[None]:
    """Raise what RocksDB's message means: rocksdict raises one class for all."""
    try:
        yield
    except (EngineError, UnusableDatabase, MemoryError):
        raise
    except Exception as error:
        raise _meaning(str(error), directory) from error


def open_database(path: Path, options: RocksDbOptions, directory: str, *, read_only: bool = False) -> rocksdict.Rdict:
    access = rocksdict.AccessType.read_only(False) if read_only else rocksdict.AccessType.read_write()
    settings = _settings(_process.memory_for(options, directory), _is_large(path))
    # For the only column family too: without, rocksdict takes those an existing database was last opened with, and a
    # cache of its own.
    return rocksdict.Rdict(str(path), settings, {"default": settings}, access)


def sst_writer(options: RocksDbOptions, directory: str) -> rocksdict.SstFileWriter:
    return rocksdict.SstFileWriter(_settings(_process.memory_for(options, directory), large=False))


def _is_large(path: Path) -> bool:
    try:
        return sum(file.stat().st_size for file in path.glob("*.sst")) > _LARGE
    except FileNotFoundError:
        # The writer of another process removed a file it has compacted away. Either way will do.
        return False


def _meaning(text: str, directory: str) -> Exception:
    if text.endswith(_FULL):
        return EngineError(
            f"Cannot write the replica in {directory}: {text}. Free space on its disk, or move the replica root to a "
            f"larger one; nothing committed is lost."
        )
    if text.endswith(_NOT_DAMAGE):
        return EngineError(
            f"Cannot use the replica in {directory}: {text}. See that the directory may be written and that the "
            f"process may have enough memory and open files; deleting the directory does no harm."
        )
    if text.endswith(_LOCKED):
        return LockedDatabase(text)
    return UnusableDatabase(text)


def _settings(memory: _Memory, large: bool) -> rocksdict.Options:
    table = rocksdict.BlockBasedOptions()
    table.set_block_cache(memory.cache)
    table.set_bloom_filter(10, False)
    if large:
        # Index and filters are charged to the cache, so they must be in small blocks: one of a megabyte does not fit a
        # shard of the cache, and every get would read it anew (60 µs instead of 5).
        table.set_cache_index_and_filter_blocks(True)
        table.set_index_type(rocksdict.BlockBasedIndexType.two_level_index_search())
        table.set_partition_filters(True)
        table.set_metadata_block_size(4096)
        table.set_pin_top_level_index_and_filter(True)
    else:
        # They are read whole at opening: a get takes 2.9 µs instead of 5.
        table.set_cache_index_and_filter_blocks(False)
    table.set_checksum_type(rocksdict.ChecksumType.xxh3())
    table.set_format_version(5)
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_paranoid_checks(True)
    options.set_block_based_table_factory(table)
    options.set_write_buffer_manager(memory.write_buffers)
    options.set_write_buffer_size(max(1 << 20, memory.options.write_buffer_bytes // 4))
    options.set_max_background_jobs(memory.options.background_threads)
    options.set_compaction_style(rocksdict.DBCompactionStyle.universal())
    # With RocksDB's own numbers (4 runs, merged if they differ by 1 %) every epoch's small run was merged with one of
    # 9 MB: at 10 million keys 140 MB were written an epoch, of 6 MB that had changed.
    options.set_level_zero_file_num_compaction_trigger(8)
    merging = rocksdict.UniversalCompactOptions()
    merging.size_ratio = 50
    options.set_universal_compaction_options(merging)
    # Blocks are used where they lie in the page cache: with copies of them in a cache of 128 MiB, epochs that change
    # 50,000 of 10 million keys took 1,070 ms instead of 880, and workers 600 MiB of their own instead of 446.
    options.set_allow_mmap_reads(True)
    options.set_compression_type(rocksdict.DBCompressionType.none())
    # All files of a database stay open: who only reads it must not need one that its writer has deleted since. So
    # they are few.
    options.set_max_open_files(-1)
    options.set_max_file_opening_threads(1)
    options.set_target_file_size_base(256 << 20)
    options.set_wal_recovery_mode(rocksdict.DBRecoveryMode.absolute_consistency())
    options.set_skip_stats_update_on_db_open(True)
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    options.set_keep_log_file_num(1)
    options.set_max_log_file_size(1 << 20)
    return options
