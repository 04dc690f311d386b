"""State backends: where a job keeps its replicas.

``memory``, ``filesystem`` (LMDB) and ``rocksdb`` are built in; others are named by import path. A ``Backend`` is a
description that is sent to the tasks, where an ``EngineFactory`` opens the engines. Replicas are caches: a backend
decides how committed state is held close to the functions that use it, never which state is committed.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import re
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
from penstock.state.engines.lmdb_environment import forget
from penstock.state.engines.memory import MemoryEngine
from penstock.state.engines.rocksdb import RocksDbEngine
from penstock.state.engines.rocksdb_database import RocksDbOptions

__all__ = ["Allocation", "Backend", "BadBackend", "EngineFactory", "ReplicaStore", "factory_of"]


_REPLICA = re.compile(r"(\d{5})-(\d{5})")


class BadBackend(PenstockError):
    """A backend's name or settings are invalid; the message names the setting.

    Operator action: correct the setting that the message names.
    """


class Allocation(Enum):
    """Which of several local directories a new replica is created in. Existing replicas are not moved."""

    RANDOM_START = "RANDOM_START"
    """Spread an operator's blocks round-robin over the directories, from a start that varies by operator."""
    ROUND_ROBIN = "ROUND_ROBIN"
    """Spread an operator's blocks round-robin over the directories, starting with the first."""
    LEAST_LOADED = "LEAST_LOADED"
    """Use the directory with the fewest replicas."""


class Backend(msgspec.Struct, frozen=True, kw_only=True):
    """Description of a state backend: everything a task needs to open replicas."""

    name: str = "memory"
    """``memory``, ``filesystem``, ``rocksdb``, or ``package.module:Factory``."""
    directories: list[str] = []
    """Directories for replicas on each host. Relative paths are resolved against the executor's working directory."""
    allocation: Allocation = Allocation[ALLOCATION.default]
    options: dict[str, str] = {}
    """The job's ``state.backend.…`` settings without the prefix, passed to the factory."""
    transfer_threads: int = TRANSFER_THREADS.default
    """Number of files that a task fetches concurrently when it rebuilds a replica."""
    private: bool = False
    """Whether the directory is the default one. Its path is predictable, so it must belong to this user alone."""


class EngineFactory(ABC):
    """Base class of custom state backends. Select yours with ``state.backend: package.module:Class``.

    Each process that runs tasks creates one instance.

    Args:
        options: The job's ``state.backend.…`` settings, without the prefix.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self.options = options

    @abstractmethod
    def open(self, directory: str) -> Engine:
        """Open the replica identified by a directory.

        Every call with the same directory returns the same replica. The directory might not exist yet, and the data
        can be stored elsewhere: the path only has to identify the block.
        """

    def drop(self, directory: str) -> None:
        """Delete the replica identified by a directory, because its block was split or joined with others.

        A task of an earlier attempt can still be using it, and can open it again.
        """
        shutil.rmtree(directory, ignore_errors=True)


class MemoryFactory(EngineFactory):
    """Opens replicas in the memory of this process."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self._engines: dict[str, Engine] = {}

    def open(self, directory: str) -> Engine:
        engine = self._engines.get(directory)
        if engine is None:
            engine = self._engines[directory] = MemoryEngine()
        return engine

    def drop(self, directory: str) -> None:
        self._engines.pop(directory, None)


class LmdbFactory(EngineFactory):
    """Opens LMDB replicas."""

    def open(self, directory: str) -> Engine:
        return LmdbEngine(directory)

    def drop(self, directory: str) -> None:
        # An open file would keep its space on the disk.
        forget(directory)
        super().drop(directory)


class RocksDbFactory(EngineFactory):
    """Opens RocksDB replicas."""

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
    """Create the factory that a backend names.

    Raises:
        BadBackend: The name is unknown, cannot be imported, or is not a subclass of ``EngineFactory``.
    """
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
            fix="Install the module where the driver and the executors run, or add it with env.add_python_file().",
        ) from error
    if not (isinstance(factory, type) and issubclass(factory, EngineFactory)):
        raise BadBackend(
            f"state.backend is '{backend.name}', which is not a subclass of EngineFactory.",
            fix="Derive it from penstock.state.backends.EngineFactory, or name another class.",
        )
    return factory(backend.options)


class ReplicaStore:
    """The replicas of this process for one backend."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._factory = factory_of(backend)
        self._opened: dict[str, set[str]] = {}
        """The names of the replicas that this process has opened, by directory of their operator."""
        self._root: int | None = None
        """Descriptor of the default directory, kept open if another user could replace the directory at its path."""

    def opener(self, lineage: str) -> Callable[[str, range], Engine]:
        """Return a function that opens the replica of a block, given operator uid and the key groups of the block.

        Each opener checks a directory once.
        """
        backend: Backend | None = self._backend if isinstance(self._factory, MemoryFactory) else None
        checked: set[str] = set()

        def open_engine(uid: str, groups: range) -> Engine:
            nonlocal backend
            if backend is None:
                backend = self._reached() if self._backend.private else self._backend
            directory = replica_directory(backend, lineage, uid, groups)
            run = os.path.dirname(os.path.dirname(directory))
            if run not in checked and not isinstance(self._factory, MemoryFactory):
                # Ignore a directory that cannot be created: the engine reports why it cannot be opened.
                with suppress(OSError), _opened(run, tighten=True):
                    pass
                checked.add(run)
            self._drop_former(backend, directory, groups)
            return self._factory.open(directory)

        return open_engine

    def _drop_former(self, backend: Backend, directory: str, groups: range) -> None:
        """Before a replica is created, delete those of former blocks that contain any of its key groups."""
        operator, name = os.path.split(directory)
        opened = self._opened.setdefault(operator, set())
        if os.path.isdir(directory) or (name in opened and not os.path.isdir(operator)):
            # It exists: there, or elsewhere, such as in memory.
            return
        for root in backend.directories or ["."]:
            siblings = os.path.join(os.path.abspath(root), *Path(operator).parts[-2:])
            names = set(opened)
            with suppress(OSError):
                names.update(os.listdir(siblings))
            for other in names:
                if _is_former(other, groups):
                    self._factory.drop(os.path.join(siblings, other))
        opened -= {other for other in opened if _is_former(other, groups)}
        opened.add(name)

    def _reached(self) -> Backend:
        """Check the default directory and return the backend with the path by which this process reaches it."""
        path = self._backend.directories[0]
        if self._root is not None and not os.fstat(self._root).st_nlink:
            # Something deleted it, as happens to temporary directories.
            os.close(self._root)
            self._root = None
        if self._root is None:
            with _opened(path) as descriptor:
                if not can_be_replaced(path):
                    return self._backend
                self._root = os.dup(descriptor)
        return msgspec.structs.replace(self._backend, directories=[f"/proc/self/fd/{self._root}"])


def check_directory(backend: Backend) -> None:
    """Create the default replica directory.

    Raises:
        BadBackend: The directory is not private to this user.
    """
    if backend.private and backend.name != "memory":
        with _opened(backend.directories[0]):
            pass


def remove_replicas(backend: Backend, lineage: str) -> None:
    """Remove this host's replicas of a lineage, as far as permissions allow."""
    for directory in backend.directories:
        if not backend.private:
            shutil.rmtree(os.path.join(directory, lineage), ignore_errors=True)
            continue
        with suppress(OSError, NotPrivate), opened_private(directory) as descriptor:
            shutil.rmtree(lineage, ignore_errors=True, dir_fd=descriptor)


@contextmanager
def _opened(directory: str, *, tighten: bool = False) -> Iterator[int]:
    """Open the directory, creating it if needed. Raise BadBackend unless it is private to this user."""
    try:
        with opened_private(directory, create=True, tighten=tighten) as descriptor:
            yield descriptor
    except NotPrivate as error:
        raise _unusable(directory, str(error)) from None


def _unusable(directory: str, why: str) -> BadBackend:
    return BadBackend(
        f"Local copies of state cannot be kept in {directory}: it {why}.",
        fix="Find out who created it and remove it (state is rebuilt from checkpoints), or set state.backend.local-dir "
        "to a directory that only you can write to.",
    )


def replica_directory(backend: Backend, lineage: str, uid: str, groups: range) -> str:
    """Return the path of a block's replica: the existing one, or one chosen by the allocation.

    A block is identified by its key groups, because a rescale can split and join blocks.
    """
    operator = hashlib.blake2b(uid.encode(), digest_size=8)
    place = os.path.join(lineage, operator.hexdigest(), _replica_name(groups))
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
        start = (random if backend.allocation is Allocation.RANDOM_START else 0) + groups.start // len(groups)
        order = [directories[(start + place) % len(directories)] for place in range(len(directories))]
    return os.path.join(next(filter(_usable, order), order[0]), place)


def _is_former(name: str, groups: range) -> bool:
    """Return whether a replica of this name belongs to another block with some of these key groups."""
    if name == _replica_name(groups):
        return False
    found = _REPLICA.fullmatch(name)
    if found is None:
        # A block of an earlier version, which numbered them.
        return name.isdecimal()
    return int(found[1]) < groups.stop and groups.start < int(found[2])


def _replica_name(groups: range) -> str:
    return f"{groups.start:05d}-{groups.stop:05d}"


def _usable(directory: str) -> bool:
    """Return whether replicas can be created in the directory. One of several disks might be gone."""
    try:
        os.makedirs(directory, exist_ok=True)
    except OSError:
        return False
    return os.access(directory, os.W_OK)
