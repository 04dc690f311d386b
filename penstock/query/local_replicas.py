"""Where the replicas of a state server are: in memory, or on local disk in directories of this process alone.

    <state.backend.local-dir>/state-server-<random>/    0700, held by a lock while the process lives
        <generation>/<operator>/<key groups>            one replica

A replica on disk is removed with the last reader of its `BlockReplica`, the directory at the end of the process. After
a kill, the next server on the host removes it: what it holds is read from the checkpoints again.
"""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections import deque
from collections.abc import Mapping
from itertools import count
from pathlib import Path

import msgspec

from penstock.common.configuration import Configuration
from penstock.common.options import BadSetting
from penstock.common.options.query import SERVER_BACKEND
from penstock.common.options.state import LOCAL_DIRECTORIES, STATE_BACKEND
from penstock.common.scratch import is_scratch, remove_scratch, scratch_directory
from penstock.errors import PenstockError
from penstock.query.replica import BlockReplica
from penstock.state.backend_settings import backend_name, local_backend
from penstock.state.backends import (
    BUILT_IN,
    Backend,
    BadBackend,
    EngineFactory,
    check_directory,
    factory_of,
    replica_directory,
)
from penstock.state.engines.memory import MemoryEngine
from penstock.state.storage import Storage

_log = logging.getLogger(__name__)

_PREFIX = "state-server-"
_MEMORY = "memory"
_COLLECTED = 16
"""Checkpoints that are applied together on disk. With RocksDB, following takes less than a third of the CPU time of
applying each."""
_WITHOUT_CLASS = "filesystem"
"""Used instead of a class that cannot be used here. The state can be larger than the memory."""


class NoLocalReplicas(PenstockError):
    """A state server cannot create its directory for replicas.

    Operator action: make a directory of `state.backend.local-dir` writable for the server, or set
    `queryable-state.server.state-backend` to `memory`. The server tries again by itself.
    """


def memory_replica(backend: str, storage: Storage, uid: str, groups: range) -> BlockReplica:
    """Return a new replica in memory."""
    return BlockReplica(storage, uid, groups, MemoryEngine())


class LocalReplicas:
    """The replicas of one state server. Any thread can use it."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        """Create nothing on disk yet. Raises BadSetting."""
        self._config = Configuration.from_dict(settings)
        chosen = SERVER_BACKEND.read(settings)
        self._chosen = None if chosen is None else backend_name(chosen)[0]
        self._lock = threading.Lock()
        self._factories: dict[str, EngineFactory] = {}
        self._roots: list[Path] = []
        self._used: dict[str, EngineFactory] = {}
        self._unused: deque[tuple[EngineFactory, str]] = deque()
        if self._chosen is not None:
            try:
                self._factories[self._chosen] = factory_of(local_backend(self._chosen, self._config))
            except BadBackend as error:
                raise BadSetting(
                    error.problem.replace(STATE_BACKEND.key, SERVER_BACKEND.key, 1),
                    fix="Install the module where the state server runs, or choose another backend.",
                ) from error

    def replica(self, backend: str, storage: Storage, uid: str, groups: range) -> BlockReplica:
        """Return a new, empty replica of some key groups of an operator.

        `backend`: that of the job; empty if it is not known. Raises NoLocalReplicas, EngineError.
        """
        name = self._chosen or backend or _MEMORY
        if name == _MEMORY:
            return memory_replica(name, storage, uid, groups)
        self.remove_unused()
        with self._lock:
            factory = self._factory(name)
            directory = self._directory(factory, uid, groups)
        replica = BlockReplica(storage, uid, groups, factory.open(directory), _COLLECTED)
        # No more than that: a finalizer can run in any thread, at any moment.
        weakref.finalize(replica, self._unused.append, (factory, directory)).atexit = False
        return replica

    def _factory(self, name: str) -> EngineFactory:
        factory = self._factories.get(name)
        if factory is None:
            factory = self._factories[name] = self._imported(name)
        return factory

    def _imported(self, name: str) -> EngineFactory:
        backend = local_backend(name, self._config)
        if name in BUILT_IN:
            return factory_of(backend)
        # A checkpoint names it, and those who can write checkpoints must not choose what a server imports.
        why = f"{SERVER_BACKEND.key} does not name it"
        if self._config.get(STATE_BACKEND) == name:
            try:
                return factory_of(backend)
            except BadBackend as error:
                why = error.problem.removesuffix(".")
        _log.warning(
            "The job uses the state backend '%s'; this state server uses '%s' instead, because %s. Set %s to choose.",
            name,
            _WITHOUT_CLASS,
            why,
            SERVER_BACKEND.key,
        )
        return self._factory(_WITHOUT_CLASS)

    def _directory(self, factory: EngineFactory, uid: str, groups: range) -> str:
        """Return a directory that no replica uses. The same ones are used again: engines keep something for each."""
        backend = local_backend(_WITHOUT_CLASS, self._config)
        if not self._roots or not all(is_scratch(root) for root in self._roots):
            self._roots = _created(backend)
        backend = msgspec.structs.replace(backend, directories=[str(root) for root in self._roots])
        for generation in count():
            directory = replica_directory(backend, str(generation), uid, groups)
            if directory not in self._used:
                self._used[directory] = factory
                return directory
        raise AssertionError

    def remove_unused(self) -> None:
        """Remove the replicas that nothing refers to any more."""
        while self._unused:
            try:
                factory, directory = self._unused.popleft()
            except IndexError:
                return
            _remove(factory, directory)
            with self._lock:
                self._used.pop(directory, None)

    def close(self) -> None:
        """Remove all replicas."""
        self.remove_unused()
        with self._lock:
            used, self._used = self._used, {}
            roots, self._roots = self._roots, []
        for directory, factory in used.items():
            _remove(factory, directory)
        for root in roots:
            remove_scratch(root)


def _remove(factory: EngineFactory, directory: str) -> None:
    # Opening only names the replica, and the name is enough to close it.
    factory.open(directory).close()
    factory.drop(directory)


def _created(backend: Backend) -> list[Path]:
    """Create one directory for this process in each local directory that can be used. One of several disks can fail."""
    roots, failed = [], ""
    for directory in map(os.path.abspath, backend.directories):
        try:
            check_directory(backend)
            os.makedirs(directory, exist_ok=True)
            roots.append(scratch_directory(directory, _PREFIX))
        except (OSError, BadBackend) as error:
            failed = failed or f"{directory}: {error}"
    if not roots:
        raise NoLocalReplicas(
            f"The state server cannot keep its copy of the state in {failed.rstrip('.')}.",
            fix=f"Make the directory writable or free space, set {LOCAL_DIRECTORIES.key} to another directory, or set "
            f"{SERVER_BACKEND.key} to memory.",
        )
    return roots
