"""Backends: where a job keeps its replicas. Built in are memory, filesystem (LMDB) and rocksdb; others by import path.

A backend is a description that travels to the tasks; there an `EngineFactory` opens the engines. Replicas are caches:
a backend never decides what is committed, only how it is held near the functions that use it.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import Enum
from pathlib import Path

import msgspec

from penstock.common.options.state import (
    ALLOCATION,
    BACKEND_OPTIONS,
    ROCKSDB_CACHE,
    ROCKSDB_THREADS,
    ROCKSDB_WRITE_BUFFERS,
    TRANSFER_THREADS,
)
from penstock.common.private_directory import NotPrivate, can_be_replaced, opened_private
from penstock.errors import PenstockError
from penstock.state.engines.base import Engine
from penstock.state.engines.lmdb import LmdbEngine
from penstock.state.engines.memory import MemoryEngine
from penstock.state.engines.rocksdb import RocksDbEngine
from penstock.state.engines.rocksdb_database import RocksDbOptions

__all__ = ["Allocation", "Backend", "BadBackend", "EngineFactory", "ReplicaStore", "factory_of"]


class BadBackend(PenstockError):
    """A backend's name or settings cannot be used; the message says which setting."""


class Allocation(Enum):
    """Which of several local directories gets a new replica. One that exists stays where it is."""

    RANDOM_START = "RANDOM_START"
    """An operator's blocks go round the directories, beginning with one that differs from operator to operator."""
    ROUND_ROBIN = "ROUND_ROBIN"
    """An operator's blocks go round the directories, beginning with the first."""
    LEAST_LOADED = "LEAST_LOADED"
    """The directory with the fewest replicas."""


class Backend(msgspec.Struct, frozen=True, kw_only=True):
    """What a task must know to open replicas."""

    name: str = "memory"
    """memory, filesystem, rocksdb, or `package.module:Factory`."""
    directories: list[str] = []
    """Where replicas live on each host. A relative one lies below the executor's own working directory."""
    allocation: Allocation = Allocation[ALLOCATION.default]
    options: dict[str, str] = {}
    """The settings `state.backend.…` of the job, for the factory."""
    transfer_threads: int = TRANSFER_THREADS.default
    """Files that a task fetches at once when it builds a replica."""
    private: bool = False
    """Whether the directory is the default, at a path that other users can predict: only this user's own is used."""


class EngineFactory(ABC):
    """What a backend of one's own provides: a class of this kind, named by `state.backend: package.module:Class`.

    One is made in each process that runs tasks, with the job's settings `state.backend.…`.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self.options = options

    @abstractmethod
    def open(self, directory: str) -> Engine:
        """The replica in this directory, which need not exist; the same one for every call. It may be kept anywhere:
        the directory names the block without doubt."""


class MemoryFactory(EngineFactory):
    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self._engines: dict[str, Engine] = {}

    def open(self, directory: str) -> Engine:
        engine = self._engines.get(directory)
        if engine is None:
            engine = self._engines[directory] = MemoryEngine()
        return engine


class LmdbFactory(EngineFactory):
    def open(self, directory: str) -> Engine:
        return LmdbEngine(directory)


class RocksDbFactory(EngineFactory):
    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        settings = {f"{BACKEND_OPTIONS}{key}": text for key, text in options.items()}
        self._rocksdb = RocksDbOptions(
            ROCKSDB_CACHE.read(settings), ROCKSDB_WRITE_BUFFERS.read(settings), ROCKSDB_THREADS.read(settings)
        )

    def open(self, directory: str) -> Engine:
        return RocksDbEngine(directory, self._rocksdb)


BUILT_IN: dict[str, Callable[[Mapping[str, str]], EngineFactory]] = {
    "memory": MemoryFactory,
    "filesystem": LmdbFactory,
    "rocksdb": RocksDbFactory,
}


def factory_of(backend: Backend) -> EngineFactory:
    """The factory a backend names, made; raises BadBackend where that cannot be."""
    made = BUILT_IN.get(backend.name)
    if made is not None:
        return made(backend.options)
    known = f"memory, filesystem, rocksdb or 'package.module:Factory', not '{backend.name}'"
    module, colon, name = backend.name.partition(":")
    if not colon:
        raise BadBackend(f"state.backend must be {known}.")
    try:
        factory = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise BadBackend(
            f"state.backend is '{backend.name}', which cannot be imported: {error}.",
            fix="See that the module is installed where the driver and the executors run, or add it with "
            "env.add_python_file().",
        ) from error
    if not (isinstance(factory, type) and issubclass(factory, EngineFactory)):
        raise BadBackend(
            f"state.backend is '{backend.name}', which is no subclass of EngineFactory.",
            fix="Derive it from penstock.state.backends.EngineFactory, or name another class.",
        )
    return factory(backend.options)


class ReplicaStore:
    """The replicas of this process for one backend."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._factory = factory_of(backend)
        self._root: int | None = None
        """The default directory, held open where another user can put another one at its path."""

    def opener(self, lineage: str) -> Callable[[str, int], Engine]:
        """What opens the replica of a block, by operator uid and block. Directories are checked once per opener."""
        backend: Backend | None = self._backend if isinstance(self._factory, MemoryFactory) else None
        checked: set[str] = set()

        def open_engine(uid: str, block: int) -> Engine:
            nonlocal backend
            if backend is None:
                backend = self._reached() if self._backend.private else self._backend
            directory = replica_directory(backend, lineage, uid, block)
            run = os.path.dirname(os.path.dirname(directory))
            if run not in checked and not isinstance(self._factory, MemoryFactory):
                # A directory that cannot be made is not hidden here: the engine says why it cannot be opened.
                with suppress(OSError), _opened(run, tighten=True):
                    pass
                checked.add(run)
            return self._factory.open(directory)

        return open_engine

    def _reached(self) -> Backend:
        """The backend with its default directory as this process reaches it, checked."""
        path = self._backend.directories[0]
        if self._root is not None and not os.fstat(self._root).st_nlink:
            # It was deleted, as temporary directories sometimes are.
            os.close(self._root)
            self._root = None
        if self._root is None:
            with _opened(path) as descriptor:
                if not can_be_replaced(path):
                    return self._backend
                self._root = os.dup(descriptor)
        return msgspec.structs.replace(self._backend, directories=[f"/proc/self/fd/{self._root}"])


def check_directory(backend: Backend) -> None:
    """Make the default directory of replicas, or raise BadBackend if it is not this user's alone."""
    if backend.private and backend.name != "memory":
        with _opened(backend.directories[0]):
            pass


def remove_replicas(backend: Backend, lineage: str) -> None:
    """Remove this host's replicas of a lineage, as far as this user can."""
    for directory in backend.directories:
        if not backend.private:
            shutil.rmtree(os.path.join(directory, lineage), ignore_errors=True)
            continue
        with suppress(OSError, NotPrivate), opened_private(directory) as descriptor:
            shutil.rmtree(lineage, ignore_errors=True, dir_fd=descriptor)


@contextmanager
def _opened(directory: str, *, tighten: bool = False) -> Iterator[int]:
    """The directory, made if it is missing, or BadBackend if it is not this user's alone."""
    try:
        with opened_private(directory, create=True, tighten=tighten) as descriptor:
            yield descriptor
    except NotPrivate as error:
        raise _unusable(directory, str(error)) from None


def _unusable(directory: str, why: str) -> BadBackend:
    return BadBackend(
        f"Local copies of state cannot be kept in {directory}: it {why}.",
        fix="See who made it and remove it (state is rebuilt from checkpoints), or set state.backend.local-dir to a "
        "directory that only you may write in.",
    )


def replica_directory(backend: Backend, lineage: str, uid: str, block: int) -> str:
    operator = hashlib.blake2b(uid.encode(), digest_size=8)
    place = os.path.join(lineage, operator.hexdigest(), f"{block:05d}")
    directories = [os.path.abspath(directory) for directory in backend.directories] or [os.path.abspath(".")]
    if len(directories) == 1:
        return os.path.join(directories[0], place)
    for directory in directories:
        if os.path.isdir(os.path.join(directory, place)):
            return os.path.join(directory, place)
    if backend.allocation is Allocation.LEAST_LOADED:
        order = sorted(directories, key=lambda directory: sum(1 for _ in Path(directory).glob("*/*/*")))
    else:
        random = int.from_bytes(hashlib.blake2b(f"{lineage} {uid}".encode(), digest_size=4).digest())
        start = (random if backend.allocation is Allocation.RANDOM_START else 0) + block
        order = [directories[(start + place) % len(directories)] for place in range(len(directories))]
    return os.path.join(next(filter(_usable, order), order[0]), place)


def _usable(directory: str) -> bool:
    """Whether replicas can be made there: of several disks one may be gone."""
    try:
        os.makedirs(directory, exist_ok=True)
    except OSError:
        return False
    return os.access(directory, os.W_OK)
