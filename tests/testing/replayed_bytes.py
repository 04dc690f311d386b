"""Measures the bytes that each task replays if no other task shares its replicas, as on separate executors.

Prints the figures of `docs/internals/state.md`; run in the root of the repository:

    python tests/testing/replayed_bytes.py 64 128
"""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple
from unittest import mock

from penstock.datastream import StreamExecutionEnvironment
from penstock.state.backends import ReplicaStore
from penstock.state.engines.base import Engine
from penstock.state.engines.memory import MemoryEngine
from penstock.state.files import GroupChanges, read_changes
from penstock.state.key_groups import owner_of
from penstock.testing import JobHarness
from penstock.testing.engine import LocalEngine

UID = "count"


class Replayed(NamedTuple):
    """Totals of one subtask."""

    replayed: int
    """Bytes that it replayed."""
    changed: int
    """Bytes that its key groups changed."""
    replicas: int
    """Replicas that it opened in an epoch."""


def size_of(changes: Iterable[GroupChanges]) -> Iterator[tuple[int, int]]:
    """Yield key groups and the bytes of their entries."""
    for change in changes:
        yield change.group, sum(len(key) + len(value or b"") for key, value in change.entries)


class Counting(MemoryEngine):
    """Counts the bytes that a subtask replays."""

    def __init__(self, replayed: Counter[int], subtask: int) -> None:
        super().__init__()
        self._replayed, self._subtask = replayed, subtask

    def apply(self, expect: bytes | None, changes: Iterable[GroupChanges], position: bytes) -> bool:
        self._replayed[self._subtask] += sum(size for _, size in size_of(changes))
        return super().apply(expect, changes, position)


class Tasks:
    """Gives each task separate replicas, and counts what they replay."""

    def __init__(self) -> None:
        self.current: Any = None
        self.replayed: Counter[int] = Counter()
        self.opened: Counter[int] = Counter()
        self._engines: dict[Any, Engine] = {}

    def open_engine(self, uid: str, block: Any) -> Engine:
        """Open a replica for the task that runs now."""
        chain, subtask = self.current
        if uid == UID:
            self.opened[subtask] += 1
        return self._engines.setdefault((chain, subtask, uid, block), Counting(self.replayed, subtask))

    def forget(self) -> None:
        self.replayed.clear()
        self.opened.clear()


def measure(parallelism: int, most: int, epochs: int = 3, keys: int = 0) -> list[Replayed]:
    """Run a keyed count whose keys all change in every epoch. Returns the totals by subtask.

    The epochs before that, in which replicas are built, do not count.
    """
    env = StreamExecutionEnvironment.get_execution_environment()
    stream = env.from_collection([]).uid("in").key_by(lambda key: key).map(lambda key: (key, 1)).uid("pair")
    counts = stream.key_by(lambda pair: pair[0]).sum(1).uid(UID)
    tasks, run_task = Tasks(), LocalEngine._task

    def task(engine: Any, chain: int, subtask: int | None, *rest: Any) -> Any:
        tasks.current = chain, subtask
        return run_task(engine, chain, subtask, *rest)

    with (
        mock.patch.object(ReplicaStore, "opener", return_value=tasks.open_engine),
        mock.patch.object(LocalEngine, "_task", task),
        JobHarness(counts, parallelism=parallelism, max_parallelism=most) as job,
    ):
        records = [f"key-{number}" for number in range(keys or 40 * most)]
        job.push(*records).epoch()
        job.push(*records).epoch()
        tasks.forget()
        changed: Counter[int] = Counter()
        for _ in range(epochs):
            last = job._driver.last
            assert last is not None
            for delta in last.operators[UID].deltas:
                data = delta.inline if delta.inline is not None else job.storage.read(delta.name)
                for group, size in size_of(read_changes(data)):
                    changed[owner_of(group, parallelism, most)] += size
            job.push(*records).epoch()
        return [
            Replayed(tasks.replayed[subtask], changed[subtask], tasks.opened[subtask] // epochs)
            for subtask in range(parallelism)
        ]


def main(parallelism: int, most: int) -> None:
    found = measure(parallelism, most)
    ratios = [each.replayed / each.changed for each in found]
    replicas = [each.replicas for each in found]
    print(
        f"parallelism {parallelism}, {most} key groups: replayed {sum(ratios) / len(ratios):.2f} times the bytes that "
        f"the task's key groups changed (highest {max(ratios):.2f}), {max(replicas)} replicas per task at most"
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
