"""The parameters of one epoch of a task."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.runtime.event_time import Times, after_jump
from penstock.runtime.operators import EpochInfo
from penstock.state.access import StateAccess


@dataclass
class TaskEpoch:
    """What changes for a task from epoch to epoch."""

    number: int
    ends_input: bool
    state: StateAccess
    lineage: str = ""
    timestamp: int = 0
    """Processing time, in milliseconds: the same for every task and attempt of the epoch."""
    probe: Callable[[str], None] = lambda point: None
    """Told where the task stands; crash tests die there."""
    metrics: Callable[[bytes], None] = lambda measured: None
    """Given the task's TaskMetrics, just before its report. May be called again by a retried task."""
    single_epoch: bool = False
    """Whether it is the whole job: its state ends with it."""
    token: str = ""
    """Of the driver that runs the epoch."""
    jumped: int = 0
    """By how many milliseconds the clock jumped forward since the epoch before; no channel was silent for them."""

    def times(self) -> Times:
        """Where event time stood at the last checkpoint, by the clock of this epoch."""
        return after_jump(self.state.history.times(), self.jumped)

    @property
    def info(self) -> EpochInfo:
        state = self.state
        return EpochInfo(self.lineage, self.number, self.timestamp, state.storage, state.inline_bytes, self.token)
