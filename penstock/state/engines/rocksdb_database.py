"""RocksDB in this process: its memory, its settings, and the meaning of its errors."""

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

# A replica's position is an ordinary entry, so it is written in one batch with the data it describes. Its key is the
# smallest possible; the value of a user entry with that key is stored inside the record.
_RECORD_KEY = b""
_RECORD = struct.Struct(">B?I")
_FORMAT = 1

# RocksDB's messages end with the system's error message.
_FULL = ("No space left on device", "File too large", "Disk quota exceeded")
_NOT_DAMAGE = ("Permission denied", "Read-only file system", "Too many open files", "Cannot allocate memory")
_LOCKED = ("No locks available", "Resource temporarily unavailable")


_LARGE = 512 << 20
"""Size above which a replica's index and filters, about 2 % of it, are not kept completely in memory."""


class UnusableDatabase(Exception):
    """RocksDB found damaged, missing or foreign files."""


class LockedDatabase(Exception):
    """RocksDB's own lock is held although the guard was not: the guard file was deleted."""


@dataclass(frozen=True, slots=True)
class RocksDbOptions:
    """Resource limits of RocksDB in one process, across all open replicas."""

    block_cache_bytes: int = ROCKSDB_CACHE.default
    write_buffer_bytes: int = ROCKSDB_WRITE_BUFFERS.default
    background_threads: int = ROCKSDB_THREADS.default


class MemoryUsage(NamedTuple):
    """Memory that RocksDB takes in this process, in bytes."""

    block_cache: int
    block_cache_pinned: int
    write_buffers: int


class _Memory:
    """The block cache and write buffer budget, shared by all databases of this process."""

    def __init__(self, options: RocksDbOptions) -> None:
        self.options = options
        self.cache = rocksdict.Cache(options.block_cache_bytes)
        self.write_buffers = rocksdict.WriteBufferManager(options.write_buffer_bytes, False)

    def fit(self, options: RocksDbOptions) -> None:
        """Adjust the limits if the options differ."""
        if options != self.options:
            self.cache.set_capacity(options.block_cache_bytes)
            self.write_buffers.set_buffer_size(options.write_buffer_bytes)
            self.options = options


class _Process:
    """RocksDB's state in this process. A forked child starts without any, and cannot use RocksDB if its parent did."""

    def __init__(self, forked: bool = False) -> None:
        self.lock = threading.Lock()
        self.memory: _Memory | None = None
        self.forked = forked

    def memory_for(self, options: RocksDbOptions, directory: str) -> _Memory:
        """Return the shared memory, created if necessary and adjusted to the options."""
        if self.forked:
            raise EngineError(
                f"This process was forked from one that had RocksDB open, so it lacks RocksDB's threads and cannot "
                f"open the replica in {directory}. Fork before reading state, or start new processes "
                f"(multiprocessing 'spawn')."
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
    """Return the memory that RocksDB takes in this process; zero if it was never opened."""
    memory = _process.memory
    if memory is None:
        return MemoryUsage(0, 0, 0)
    return MemoryUsage(memory.cache.get_usage(), memory.cache.get_pinned_usage(), memory.write_buffers.get_usage())


class ReplicaRecord(NamedTuple):
    """A replica's position, and the value of the empty key."""

    position: bytes | None
    empty: bytes | None

    def write(self, batch: rocksdict.WriteBatch) -> None:
        """Add the record to a batch."""
        position = self.position or b""
        head = _RECORD.pack(_FORMAT, self.empty is not None, len(position))
        batch.put(_RECORD_KEY, head + position + (self.empty or b""))

    @classmethod
    def read(cls, db: rocksdict.Rdict) -> ReplicaRecord:
        """Read the record of a database; raise UnusableDatabase if it is not a replica of this version."""
        data = db.get(_RECORD_KEY)
        if data is None:
            return cls(None, None)
        if len(data) < _RECORD.size or data[0] != _FORMAT:
            raise UnusableDatabase("it belongs to another program or another version")
        _, has_empty, length = _RECORD.unpack_from(data)
        end = _RECORD.size + length
        return cls(data[_RECORD.size : end], data[end:] if has_empty else None)


def close_database(db: rocksdict.Rdict) -> None:
    """Close a database, ignoring errors."""
    try:
        db.close()
    except Exception:
        # The final flush failed. Data that must be kept was flushed before, or its failure was already reported.
        pass


@contextmanager
def translating(directory: str) -> Iterator[None]:
    """Convert RocksDB's errors, for which rocksdict has one class only, by their message."""
    try:
        yield
    except (EngineError, UnusableDatabase, MemoryError):
        raise
    except Exception as error:
        raise _meaning(str(error), directory) from error


def open_database(path: Path, options: RocksDbOptions, directory: str, *, read_only: bool = False) -> rocksdict.Rdict:
    """Open a database, creating it if necessary."""
    access = rocksdict.AccessType.read_only(False) if read_only else rocksdict.AccessType.read_write()
    settings = _settings(_process.memory_for(options, directory), _is_large(path))
    # Also passed for the only column family: otherwise rocksdict reuses the options of the last opening, and a
    # separate cache.
    return rocksdict.Rdict(str(path), settings, {"default": settings}, access)


def sst_writer(options: RocksDbOptions, directory: str) -> rocksdict.SstFileWriter:
    """Return a writer of files to ingest."""
    return rocksdict.SstFileWriter(_settings(_process.memory_for(options, directory), large=False))


def _is_large(path: Path) -> bool:
    try:
        return sum(file.stat().st_size for file in path.glob("*.sst")) > _LARGE
    except FileNotFoundError:
        # Another process's writer removed a file after compaction. Either setting works.
        return False


def _meaning(text: str, directory: str) -> Exception:
    if text.endswith(_FULL):
        return EngineError(
            f"Cannot write the replica in {directory}: {text}. Free space on its disk, or set state.backend.local-dir "
            f"to a larger one; no committed state is lost."
        )
    if text.endswith(_NOT_DAMAGE):
        return EngineError(
            f"Cannot use the replica in {directory}: {text}. Make sure that the directory is writable and that the "
            f"process's limits on memory and open files are high enough; deleting the directory is safe."
        )
    if text.endswith(_LOCKED):
        return LockedDatabase(text)
    return UnusableDatabase(text)


def _settings(memory: _Memory, large: bool) -> rocksdict.Options:
    table = rocksdict.BlockBasedOptions()
    table.set_block_cache(memory.cache)
    table.set_bloom_filter(10, False)
    if large:
        # Index and filters are charged to the cache, so they must be in small blocks: one of a megabyte does not fit
        # into a shard of the cache, and every get would read it again (60 µs instead of 5).
        table.set_cache_index_and_filter_blocks(True)
        table.set_index_type(rocksdict.BlockBasedIndexType.two_level_index_search())
        table.set_partition_filters(True)
        table.set_metadata_block_size(4096)
        table.set_pin_top_level_index_and_filter(True)
    else:
        # Index and filters are read completely at opening: a get takes 2.9 µs instead of 5.
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
    # With RocksDB's defaults (4 runs, merged if they differ by 1 %), every epoch's small run was merged with one of
    # 9 MB: with 10 million keys, 140 MB were written per epoch of which 6 MB had changed.
    options.set_level_zero_file_num_compaction_trigger(8)
    merging = rocksdict.UniversalCompactOptions()
    merging.size_ratio = 50
    options.set_universal_compaction_options(merging)
    # Use blocks in place in the page cache: with copies in a cache of 128 MiB, epochs that change 50,000 of 10 million
    # keys took 1,070 ms instead of 880, and workers took 600 MiB of private memory instead of 446.
    options.set_allow_mmap_reads(True)
    options.set_compression_type(rocksdict.DBCompressionType.none())
    # Keep all files of a database open: a reader must not need a file that the writer has deleted since. Large files
    # keep their number low.
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
