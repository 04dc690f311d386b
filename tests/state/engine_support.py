"""Shared by the engine tests: engines, changes, and processes that use them."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

from penstock.state.engines import rocksdb
from penstock.state.engines.base import Engine
from penstock.state.engines.lmdb import LmdbEngine
from penstock.state.engines.memory import MemoryEngine
from penstock.state.engines.rocksdb import RocksDbEngine
from penstock.state.files import GroupChanges

# New processes that inherit nothing from this one: forked from a server that has only imported what they need.
new = multiprocessing.get_context("forkserver")
new.set_forkserver_preload(["lmdb", "rocksdict", "pyarrow", "pytest", "hypothesis"])
fork = multiprocessing.get_context("fork")

ON_DISK: dict[str, Callable[[Path], Engine]] = {"lmdb": LmdbEngine, "rocksdb": RocksDbEngine}

NewEngine = Callable[[], AbstractContextManager[Engine]]


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


@contextmanager
def rocksdb_engine() -> Iterator[Engine]:
    directory = tempfile.mkdtemp(prefix="penstock-test-")
    engine = RocksDbEngine(directory)
    try:
        yield engine
    finally:
        engine.close()
        shutil.rmtree(directory)


@contextmanager
def rocksdb_engine_of_small_batches() -> Iterator[Engine]:
    """RocksDB engine for which every change exceeds the batch size."""
    before, rocksdb._BATCH_BYTES = rocksdb._BATCH_BYTES, 20
    try:
        with rocksdb_engine() as engine:
            yield engine
    finally:
        rocksdb._BATCH_BYTES = before


QUICK_ENGINES = {"memory": memory_engine, "lmdb": lmdb_engine}
ROCKSDB_ENGINES = {"rocksdb": rocksdb_engine, "rocksdb, small batches": rocksdb_engine_of_small_batches}


def in_process(target: Callable[..., object], *args: object) -> None:
    process = new.Process(target=target, args=args)
    process.start()
    process.join()
    assert process.exitcode == 0


def talking_process(target: Callable[..., object], *args: object) -> tuple[BaseProcess, Connection]:
    ours, theirs = new.Pipe()
    process = new.Process(target=target, args=(*args, theirs))
    process.start()
    # Otherwise, if the process died, we would wait for its message forever.
    theirs.close()
    return process, ours


def kill(process: BaseProcess) -> None:
    os.kill(process.pid or 0, signal.SIGKILL)
    process.join()
