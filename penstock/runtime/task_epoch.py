"""The parameters of one epoch of a task."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.runtime.event_time import Times, after_jump
from penstock.runtime.metrics import NOWHERE, WorkerPlace
from penstock.runtime.operators import EpochInfo
from penstock.state.access import StateAccess


@dataclass
class TaskEpoch:
    """The parameters of a task that change from epoch to epoch."""

    number: int
    ends_input: bool
    state: StateAccess
    lineage: str = ""
    timestamp: int = 0
    """Processing time, in milliseconds: the same for every task and attempt of the epoch."""
    probe: Callable[[str], None] = lambda point: None
    """Called with the name of each point that the task reaches; crash tests kill the process there."""
    metrics: Callable[[bytes], None] = lambda measured: None
    """Called with the task's TaskMetrics, just before its report or failure. A retried task can call it again."""
    single_epoch: bool = False
    """Whether the job consists of this epoch only: its state is discarded afterwards."""
    token: str = ""
    """Identifies the driver that runs the epoch."""
    place: WorkerPlace = NOWHERE
    """The process that runs the task."""
    jumped: int = 0
    """How far the clock jumped forward since the previous epoch, in milliseconds; this does not count as idleness."""

    def times(self) -> Times:
        """Return event-time progress at the last checkpoint, adjusted to this epoch's clock."""
        return after_jump(self.state.history.times(), self.jumped)

    @property
    def info(self) -> EpochInfo:
        state = self.state
        return EpochInfo(self.lineage, self.number, self.timestamp, state.storage, state.inline_bytes, self.token)
