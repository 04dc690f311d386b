"""Replicas: local copies of blocks of state. Only replaying deltas brings a replica to a committed version."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.state.blocks import Blocks
from penstock.state.engines.base import Engine, Reader
from penstock.state.files import GroupChanges, read_changes
from penstock.state.shares import Share
from penstock.state.stored_types import StoredType
from penstock.state.ttl import Form


class StaleAttempt(PenstockError):
    """A replica is ahead of the version that this task needs: a newer attempt of the job is running.

    Operator action: none; this attempt ends, and the newer one continues.
    """


class ReplayStep(NamedTuple):
    """A delta or base to apply, and the key groups for which it counts."""

    name: str
    data: bytes | pa.Buffer
    groups: Container[int]


class StateHistory(Protocol):
    """The committed versions up to the one a task needs, as far as replicas are concerned."""

    @property
    def wanted(self) -> bytes | None:
        """The position to reach, or None before the first checkpoint."""

    def schemas(self, uid: str) -> dict[str, str]:
        """Return the schema of each state of an operator at the wanted version."""

    def types(self, uid: str) -> dict[str, StoredType]:
        """Return the type of each state of an operator at the wanted version, with its migrations."""

    def operator_state(self, uid: str, subtask: int, parallelism: int, max_parallelism: int) -> dict[str, Share]:
        """Return a subtask's share of the operator state at the wanted version, redistributed for its parallelism."""

    def holds(self, uid: str, subtask: int, parallelism: int, reported: dict[str, Share]) -> bool:
        """Return whether the wanted version includes what a subtask reported, so that it can keep its memory."""

    def timers(self, uid: str, blocks: Blocks) -> dict[str, dict[int, int]]:
        """Return the times of an operator's first timers at the wanted version, by kind and block.

        If the operator had other blocks then, some of the times are too early.
        """

    def forms(self, uid: str) -> dict[str, Form]:
        """Return how the operator's states with TTL are stored at the wanted version."""

    def times(self) -> Any:
        """Return the event times at the wanted version: `penstock.runtime.event_time.Times`."""

    def keep(self, uid: str, block: int) -> Callable[[bytes, bytes], bool] | None:
        """Return None if the block's replica is not due for compaction, or else a function that decides, by key and
        value, whether to keep an entry."""

    def steps(self, uid: str, groups: range, position: bytes | None) -> list[ReplayStep] | None:
        """Return the files that take a replica of these key groups from `position` to `wanted`, oldest first.

        Returns None if `position` is not an ancestor of `wanted` and the replica must be rebuilt.

        Raises:
            StaleAttempt: `position` is a descendant of `wanted`.
        """


class Replicas:
    """The replicas that one operator subtask reads in one epoch. Created per task and closed at its end.

    A block is opened when it is first read, so an epoch pays only for the blocks it touches.
    """

    def __init__(
        self, uid: str, blocks: Blocks, history: StateHistory, open_engine: Callable[[str, range], Engine]
    ) -> None:
        """`open_engine` opens the replica of some key groups of an operator."""
        self._uid = uid
        self._blocks = blocks
        self._history = history
        self._open_engine = open_engine
        self._wanted = history.wanted
        self._by_group: dict[int, Reader] = {}
        self._readers: dict[int, Reader] = {}
        self._contexts: list[AbstractContextManager[Reader]] = []
        self._engines: list[Engine] = []

    def reader(self, group: int) -> Reader | None:
        """Return a reader of a key group at the wanted version, or None if nothing was ever committed."""
        if self._wanted is None:
            return None
        reader = self._by_group.get(group)
        if reader is None:
            block = self._blocks.of(group)
            reader = self._readers.get(block)
            if reader is None:
                reader = self._readers[block] = self._open(block)
            self._by_group[group] = reader
        return reader

    def _open(self, block: int) -> Reader:
        groups = self._blocks.groups(block)
        engine = self._open_engine(self._uid, groups)
        self._engines.append(engine)
        wanted = self._wanted
        assert wanted is not None
        # Another process can advance the same replica between our check and our write; then check again.
        for _ in range(100):
            position = engine.position()
            if position != wanted:
                steps = self._history.steps(self._uid, groups, position)
                if steps is None:
                    engine.reset()
                    continue
                if not engine.apply(position, _Changes(steps), wanted):
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
            f"The replica of block {block} of operator '{self._uid}' keeps changing; delete the replica's directory."
        )

    def close(self) -> None:
        """Close all readers and release the engines."""
        for context in self._contexts:
            context.__exit__(None, None, None)
        self._contexts.clear()
        for engine in self._engines:
            engine.release()
        self._engines.clear()
        self._readers.clear()
        self._by_group.clear()


class _Changes:
    """The changes in a list of files. They can be iterated repeatedly, so engines need no buffer."""

    def __init__(self, steps: list[ReplayStep]) -> None:
        self._steps = steps

    def __iter__(self) -> Iterator[GroupChanges]:
        for step in self._steps:
            yield from read_changes(step.data, step.groups, name=step.name)
