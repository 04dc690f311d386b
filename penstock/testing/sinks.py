"""A harness for a single sink: records, snapshots, completions and crashes in the order that a test chooses."""

from __future__ import annotations

import pickle
from typing import Any, NamedTuple

from penstock.checkpoint.manifest import Committable
from penstock.checkpoint.wal import WriteAheadLog
from penstock.common.class_pickling import dump_by_name
from penstock.connectors.sink import Sink
from penstock.connectors.two_phase import TwoPhaseCommitSink
from penstock.datastream.two_phase_commit import TwoPhaseCommitSinkFunction
from penstock.driver.committing import CommitContext, Committer
from penstock.errors import PenstockError
from penstock.runtime.context import RuntimeContext
from penstock.runtime.metrics import MetricRegistry
from penstock.runtime.operators import EpochInfo
from penstock.runtime.sink_operators import WRITERS, SinkOperator
from penstock.state.driver_storage import DriverStorage
from penstock.state.shares import Share
from penstock.state.storage import Storage

_UID = "sink"
_LINEAGE = "harness"


class _Snapshot(NamedTuple):
    committables: list[Committable]
    state: dict[str, Share]


class SinkHarness:
    """Runs a single sink. The given object commits, as in a driver; a copy of it writes, as in a task.

    Args:
        sink: The sink under test.
        storage: Where the sink stores its pending output. With file storage, pending output goes to files, otherwise
            into the snapshot.

    Example:
        >>> sink = SinkHarness(MySink())
        >>> sink.process(42)
        >>> sink.snapshot(0)
        >>> sink.crash()  # before the sink learns that snapshot 0 is complete
        >>> sink.process(43)
        >>> sink.snapshot(1)
        >>> sink.notify_complete(1)
    """

    def __init__(self, sink: Sink | TwoPhaseCommitSinkFunction, storage: Storage | None = None) -> None:
        self.sink = TwoPhaseCommitSink(sink) if isinstance(sink, TwoPhaseCommitSinkFunction) else sink
        self.storage = storage or DriverStorage()
        self.clock = 0
        """The processing time of the next epoch, in milliseconds."""
        self._pickled = dump_by_name(self.sink)
        self._wal = WriteAheadLog(self.storage)
        self._context = CommitContext(uid=_UID, wal=self._wal)
        self._committer = Committer({_UID: self.sink}, _LINEAGE, self._wal)
        self._snapshots: dict[int, _Snapshot] = {}
        """The incomplete snapshots and the last complete one."""
        self._completed = self._last = -1
        self._lost = False
        self._begun: EpochInfo | None = None
        self._open()

    def process(self, *values: Any, timestamp: int | None = None) -> SinkHarness:
        """Write records to the sink.

        Args:
            values: The records.
            timestamp: The event time of the records.
        """
        self._begin()
        for value in values:
            self._operator.moment.begin_record(timestamp)
            self._operator.process(value)
        return self

    def snapshot(self, checkpoint_id: int, end_of_input: bool = False) -> SinkHarness:
        """End the epoch. The snapshot contains the records since the last one.

        Args:
            checkpoint_id: The ID of the snapshot, counting from 0.
            end_of_input: Whether the input ends with this epoch.
        """
        if checkpoint_id != self._last + 1:
            raise PenstockError(f"The next snapshot has the ID {self._last + 1}, not {checkpoint_id}.")
        epoch = self._begin()
        if end_of_input:
            self._operator.end_input()
        payload = self._operator.snapshot()
        committables = [] if payload is None else [Committable(uid=_UID, subtask=0, payload=payload)]
        state = self._operator.operator_state(epoch) if self._operator.stateful else {}
        self._snapshots[checkpoint_id] = _Snapshot(committables, state)
        self._last, self._begun = checkpoint_id, None
        return self

    def notify_complete(self, checkpoint_id: int) -> SinkHarness:
        """Complete a snapshot and all earlier ones, which commits their pending output in order.

        Args:
            checkpoint_id: The ID of the snapshot.
        """
        if checkpoint_id > self._last:
            raise PenstockError(f"Snapshot {checkpoint_id} does not exist; the last one is {self._last}.")
        for number in range(self._completed + 1, checkpoint_id + 1):
            self._complete(number, again=False)
        return self

    def crash(self, restore: int | None = None) -> SinkHarness:
        """Lose the task and the driver, and continue from a snapshot.

        The new driver commits that snapshot and all pending output before it. Later snapshots and records are lost.

        Args:
            restore: The ID of the snapshot. By default it is the last one.
        """
        number = self._last if restore is None else restore
        if number < self._completed or number > self._last:
            raise PenstockError(f"Snapshot {number} is not one of {self._completed} to {self._last}.")
        self._snapshots = {each: self._snapshots[each] for each in self._snapshots if each <= number}
        self._last, self._lost = number, True
        # A recovering driver commits the last snapshot again, even if it was committed before.
        for each in sorted(self._snapshots):
            self._complete(each, again=True)
        self._open()
        return self

    def close(self) -> None:
        """Close the writer and the sink, and delete the files."""
        self._operator.close()
        self._committer.close()
        self.storage.close()

    def __enter__(self) -> SinkHarness:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _complete(self, number: int, again: bool) -> None:
        snapshot = self._snapshots[number]
        self._committer.commit_now(number, snapshot.committables, again)
        self._wal.committed(number)
        if self._lost and not again:
            self._lost = False
            states = snapshot.state[WRITERS].elements if snapshot.state else []
            self.sink.clean_up(_LINEAGE, number, states, self._context)
        self._completed = number
        self._snapshots = {each: self._snapshots[each] for each in self._snapshots if each >= number}

    def _open(self) -> None:
        self._operator = SinkOperator(pickle.loads(self._pickled))
        self._operator.declare(_UID, _UID, location=None, batch=False)
        context = RuntimeContext(
            task_name=_UID,
            uid=_UID,
            subtask=0,
            parallelism=1,
            max_parallelism=128,
            overlay=None,
            metrics=MetricRegistry(_UID, _UID),
        )
        self._operator.open(context, lambda value: None)
        self._begun = None

    def _begin(self) -> EpochInfo:
        if self._begun is None:
            storage = None if self.storage.in_memory else self.storage
            self._begun = begun = EpochInfo(_LINEAGE, self._last + 1, self.clock, storage)
            if self._operator.stateful:
                last = self._snapshots.get(self._last)
                self._operator.restore({} if last is None else last.state)
            self._operator.moment.begin_epoch(self.clock)
            self._operator.begin_epoch(begun)
        return self._begun


__all__ = ["SinkHarness"]
