"""Built-in sinks: print, collect and discard. `sink.py` defines their contract."""

from __future__ import annotations

import pickle
import queue
import sys
from collections.abc import Callable
from typing import Any

import msgspec

from penstock.common.display import print_shower
from penstock.common.pickling import to_pickle
from penstock.connectors.sink import AT_MOST_ONCE, Sink, SinkWriter
from penstock.driver.committing import Commit, CommitContext
from penstock.runtime.context import RuntimeContext
from penstock.runtime.sharing import independent

_IN_THE_DRIVER = "it outputs records in the driver after each epoch; records are lost if the driver dies before that"


class DiscardingSink(Sink):
    """Discard all records."""

    why = "it discards all records"
    reads_only = True

    def create_writer(self, context: RuntimeContext) -> SinkWriter:
        return _Discard()

    def commit(self, commits: list[Commit], context: CommitContext) -> None:
        pass


class _Discard(SinkWriter):
    def write(self, value: Any) -> None:
        pass

    def prepare_commit(self) -> bytes | None:
        return None


class PrintSink(Sink):
    """Print records to the driver's standard output once their epoch is complete, so output is never retracted.

    Each line is ``identifier:subtask> value``, with subtasks numbered from 1. At parallelism 1 the subtask is omitted.
    Records of a declared type are formatted as in Flink, others with ``str``.

    Args:
        identifier: Prefix for each line.
        value_type: Type of the records. Defaults to the declared type of the stream.
    """

    guarantee = AT_MOST_ONCE
    why = _IN_THE_DRIVER
    durable = False
    commit_before_checkpoint = True
    reads_only = True

    def __init__(self, identifier: str | None = None, value_type: Any = None) -> None:
        self._identifier = identifier or ""
        self._value_type = value_type

    def for_type(self, value_type: Any) -> Sink:
        return PrintSink(self._identifier, value_type)

    def create_writer(self, context: RuntimeContext) -> SinkWriter:
        subtask = context.subtask
        number = str(subtask + 1) if subtask is not None and context.parallelism > 1 else ""
        prefix = ":".join(part for part in (self._identifier, number) if part)
        return _LineWriter(f"{prefix}> " if prefix else "", print_shower(self._value_type))

    def commit(self, commits: list[Commit], context: CommitContext) -> None:
        for commit in commits:
            lines = msgspec.msgpack.decode(commit.payload, type=list[str])
            sys.stdout.write("".join(f"{line}\n" for line in lines))
        sys.stdout.flush()


class _LineWriter(SinkWriter):
    def __init__(self, prefix: str, show: Callable[[Any], str]) -> None:
        self._prefix = prefix
        self._show = show
        self._lines: list[str] = []

    def write(self, value: Any) -> None:
        self._lines.append(self._prefix + self._show(value))

    def prepare_commit(self) -> bytes | None:
        lines, self._lines = self._lines, []
        return msgspec.msgpack.encode(lines) if lines else None


class CollectSink(Sink):
    """Bring records to the driver for `execute_and_collect`. `results` yields them as epochs complete."""

    guarantee = AT_MOST_ONCE
    why = _IN_THE_DRIVER
    durable = False
    commit_before_checkpoint = True
    reads_only = True

    def __init__(self) -> None:
        self.results: queue.SimpleQueue[list[Any]] = queue.SimpleQueue()

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def create_writer(self, context: RuntimeContext) -> SinkWriter:
        return _Collect()

    def commit(self, commits: list[Commit], context: CommitContext) -> None:
        for commit in commits:
            # This job's own task pickled the payload; it never comes from a manifest, because the sink is not durable.
            self.results.put(pickle.loads(commit.payload))


class _Collect(SinkWriter):
    def __init__(self) -> None:
        self._values: list[Any] = []

    def write(self, value: Any) -> None:
        self._values.append(independent(value))

    def prepare_commit(self) -> bytes | None:
        values, self._values = self._values, []
        return to_pickle(values) if values else None
