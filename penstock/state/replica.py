"""Replicas: local copies of blocks of state, brought to a committed version by replaying deltas, never otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.state.engines.base import Engine, Reader
from penstock.state.files import GroupChanges, read_changes
from penstock.state.key_groups import block_of, block_range
from penstock.state.shares import Share
from penstock.state.stored_types import StoredType
from penstock.state.ttl import Form


class StaleAttempt(PenstockError):
    """A replica is ahead of the version this task wants: another, newer attempt of the job is running.

    Operator action: none; this attempt ends, the newer one goes on.
    """


class ReplayStep(NamedTuple):
    """A delta or base to be applied."""

    name: str
    data: bytes | pa.Buffer


class StateHistory(Protocol):
    """The committed versions up to the one a task wants, as far as a replica needs to know."""

    @property
    def wanted(self) -> bytes | None:
        """The position to reach; None before the first checkpoint."""

    def schemas(self, uid: str) -> dict[str, str]:
        """The states an operator had at the wanted version, and their types."""

    def types(self, uid: str) -> dict[str, StoredType]:
        """The same, with the versions their types have had."""

    def operator_state(self, uid: str, subtask: int, parallelism: int, max_parallelism: int) -> dict[str, Share]:
        """A subtask's share of an operator's state at the wanted version, redistributed if the parallelism changed."""

    def holds(self, uid: str, subtask: int, parallelism: int, reported: dict[str, Share]) -> bool:
        """Whether a subtask that reported this may go on with what it has in memory: the wanted version took it."""

    def timers(self, uid: str) -> dict[str, dict[int, int]]:
        """An operator's first timers at the wanted version, by kind and block of key groups."""

    def forms(self, uid: str) -> dict[str, Form]:
        """How an operator's states with TTL were stored at the wanted version."""

    def times(self) -> Any:
        """Where event time stood at the wanted version: `penstock.runtime.event_time.Times`."""

    def keep(self, uid: str, block: int) -> Callable[[bytes, bytes], bool] | None:
        """Where it is time to compact the block's replica: whether an entry, by key and value, must stay."""

    def steps(self, uid: str, block: int, position: bytes | None) -> list[ReplayStep] | None:
        """The files to apply, oldest first, to lead a replica from `position` to `wanted`.

        None where `position` is not an ancestor of `wanted`: the replica must start anew. Raises StaleAttempt
        where it is a descendant.
        """


class Replicas:
    """The replicas one operator subtask reads in one epoch. Made per task, closed at its end.

    A block is opened when it is first read, so an epoch pays for the blocks it touches.
    """

    def __init__(
        self, uid: str, max_parallelism: int, history: StateHistory, open_engine: Callable[[str, int], Engine]
    ) -> None:
        self._uid = uid
        self._max_parallelism = max_parallelism
        self._history = history
        self._open_engine = open_engine
        self._wanted = history.wanted
        self._by_group: dict[int, Reader] = {}
        self._readers: dict[int, Reader] = {}
        self._contexts: list[AbstractContextManager[Reader]] = []
        self._engines: list[Engine] = []

    def reader(self, group: int) -> Reader | None:
        """The reader for a key group at the wanted version, or None where nothing was ever committed."""
        if self._wanted is None:
            return None
        reader = self._by_group.get(group)
        if reader is None:
            block = block_of(group, self._max_parallelism)
            reader = self._readers.get(block)
            if reader is None:
                reader = self._readers[block] = self._open(block)
            self._by_group[group] = reader
        return reader

    def _open(self, block: int) -> Reader:
        engine = self._open_engine(self._uid, block)
        self._engines.append(engine)
        wanted = self._wanted
        assert wanted is not None
        # Another process may advance the same replica between our look and our write; then we look again.
        for _ in range(100):
            position = engine.position()
            if position != wanted:
                steps = self._history.steps(self._uid, block, position)
                if steps is None:
                    engine.reset()
                    continue
                if not engine.apply(position, _Changes(steps, block_range(block, self._max_parallelism)), wanted):
                    continue
                keep = self._history.keep(self._uid, block)
                if keep is not None:
                    engine.compact(keep)
            context = engine.reader()
            reader = context.__enter__()
            if reader.position == wanted:
                self._contexts.append(context)
                return reader
            context.__exit__(None, None, None)
        raise PenstockError(
            f"Replica of block {block} of operator '{self._uid}' does not settle; delete the replica root."
        )

    def close(self) -> None:
        for context in self._contexts:
            context.__exit__(None, None, None)
        self._contexts.clear()
        for engine in self._engines:
            engine.release()
        self._engines.clear()
        self._readers.clear()
        self._by_group.clear()


class _Changes:
    """What steps change in some key groups. Can be iterated again, so that an engine need not hold all of it."""

    def __init__(self, steps: list[ReplayStep], groups: range) -> None:
        self._steps = steps
        self._groups = groups

    def __iter__(self) -> Iterator[GroupChanges]:
        for step in self._steps:
            yield from read_changes(step.data, self._groups, name=step.name)
