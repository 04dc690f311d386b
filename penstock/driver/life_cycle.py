"""The life of a job: a state machine without I/O. Events in, instructions out.

A job recovers, runs and ends. In between it can restart, and it can receive requests to stop. `Phase` is the current
phase, `Wish` the strongest request so far. Every event is a method that returns the next instruction, or None.
`spark/execution.py` and `testing/execution.py` execute instructions and report the next event:

    start → Recover → recovered → StartQuery → batch_ready → RunEpoch → epoch_done … query_ended → End → ended
                 ↑                                  failed → AwaitRestart → delay_over
                 └───────────────────────────────────────────────────────────────┘

An event that is invalid in the current phase raises InvalidEvent with the job's recent events.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from enum import Enum, IntEnum
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from penstock.common.job import JobStatus
from penstock.driver.instructions import (
    AwaitRecovery,
    AwaitRestart,
    ChangeParallelism,
    End,
    JobFailure,
    JobTraits,
    Recover,
    Refusal,
    RunEpoch,
    Save,
    StartQuery,
    StopQuery,
)
from penstock.driver.restarts import Completed, Failed, GiveUp, Restart, Restarts, RestartStrategy, Resumed
from penstock.errors import PenstockError

_STORY = 50
"""Events that the story keeps. Bounded because a job can run for months."""


class Phase(Enum):
    CREATED = "created"
    RECOVERING = "recovering"
    """The executor restores the savepoint, starts the sinks and finds the last checkpoint."""
    RUNNING = "running"
    RESTARTING = "restarting"
    """Waiting for the restart delay."""
    ENDING = "ending"
    """The executor closes the job's open resources."""
    ENDED = "ended"


class Wish(IntEnum):
    """The strongest request so far. A greater one overrides a smaller one."""

    GO_ON = 0
    SUSPEND = 1
    """Stop and keep all state: the next run of the program resumes the job."""
    STOP = 2
    """Stop; a savepoint holds the job's complete state."""
    CANCEL = 3


class InvalidEvent(PenstockError):
    """An event that is invalid in this phase, with the job's recent events. A bug in Penstock: report it.

    Operator action: report the message as a bug, and start the program again to resume.
    """


_P = ParamSpec("_P")
_R = TypeVar("_R")
_Event = Callable[Concatenate["LifeCycle", _P], _R]

_ALIVE = (Phase.CREATED, Phase.RECOVERING, Phase.RUNNING, Phase.RESTARTING)


def _event(*phases: Phase) -> Callable[[_Event[_P, _R]], _Event[_P, _R]]:
    """Declare an event that is valid in these phases."""

    def declare(method: _Event[_P, _R]) -> _Event[_P, _R]:
        @wraps(method)
        def handle(self: LifeCycle, *args: _P.args, **kwargs: _P.kwargs) -> _R:
            with self._lock:
                before = f"{self.phase.value}, {self.wish.name}"
                given = ", ".join([*map(repr, args), *(f"{name}={value!r}" for name, value in kwargs.items())])
                event = f"{method.__name__}({given})"
                if self.phase not in phases:
                    story = "\n".join(self._story)
                    raise InvalidEvent(f"{event} cannot happen in phase {before}. Recent events:\n{story}")
                instruction = method(self, *args, **kwargs)
                self._tell_change()
                self._story.append(f"{before}: {event} → {self.phase.value}: {instruction}")
                return instruction

        return handle  # type: ignore[return-value]  # mypy treats `self` and a positional argument differently

    return declare


class LifeCycle:
    """Events can come from any thread; each is processed atomically."""

    def __init__(
        self,
        traits: JobTraits,
        strategy: RestartStrategy,
        on_change: Callable[[Phase, JobStatus], None] = lambda phase, status: None,
    ) -> None:
        """`on_change` is called after each event that changed the phase or the status. It must not raise or block."""
        self._traits = traits
        self._on_change = on_change
        self._restarts = Restarts(strategy)
        self._lock = threading.RLock()
        self._story: deque[str] = deque(maxlen=_STORY)
        self.phase = Phase.CREATED
        self.wish = Wish.GO_ON
        self.generation = 0
        """Generation of the query. Batches of earlier generations are not run."""
        self.gives_up_epoch = False
        """Whether to abandon the epoch in progress."""
        self._has_checkpoint = self._input_over = self._input_ended = self._saved = self._listener_failed = False
        self._end: End | None = None
        self.progressed = False
        """Whether a checkpoint was completed since the start or the last failure."""
        self._shown = self.phase, self.status

    @_event(Phase.CREATED)
    def replayed(self, before: int, events: list[Failed | Completed]) -> None:
        """Count the failures of earlier processes of this job, of which `before` are too old to be known."""
        self._restarts.replay(before, events)

    @property
    def restarts(self) -> int:
        """How often the job has restarted after a failure, also in earlier processes of a cluster's job."""
        return self._restarts.number

    @property
    def status(self) -> JobStatus:
        if self.phase is Phase.CREATED:
            return JobStatus.CREATED
        if self.phase is Phase.ENDED and self._end is not None:
            return self._end.status
        if self.wish is Wish.CANCEL:
            return JobStatus.CANCELLING
        if self.phase is Phase.RESTARTING:
            return JobStatus.RESTARTING
        failing = self._end is not None and self._end.status is JobStatus.FAILED
        return JobStatus.FAILING if failing else JobStatus.RUNNING

    def _tell_change(self) -> None:
        shown = self.phase, self.status
        if shown != self._shown:
            self._shown = shown
            self._on_change(*shown)

    @property
    def wants_epochs(self) -> bool:
        """Whether another epoch can run."""
        return self.phase is Phase.RUNNING and self.wish is Wish.GO_ON and not self._input_ended

    @property
    def drains_query(self) -> bool:
        """Whether the query should end once it has read all available input, because its sources have ended."""
        return self._input_over and self.wants_epochs

    # -- from the start to the query -------------------------------------------------------------------------------

    @_event(Phase.CREATED)
    def start(self) -> Recover:
        self.phase = Phase.RECOVERING
        return Recover()

    @_event(Phase.RECOVERING)
    def recovered(self, checkpoint: int | None, ended: bool = False) -> StartQuery | RunEpoch | End:
        """Continue from this checkpoint, or from scratch if None. `ended`: its input has ended."""
        self.phase = Phase.RUNNING
        self._has_checkpoint, self._input_ended = checkpoint is not None, ended
        if checkpoint is not None:
            self._restarts.handle(Resumed())
        if ended or self.wish is not Wish.GO_ON:
            return self._ending()
        if self._traits.single_epoch:
            return RunEpoch(ends_input=True)
        return StartQuery(self.generation) if self._traits.has_sources else self._after_input()

    @_event(Phase.RUNNING)
    def query_started(self) -> StopQuery | None:
        """Stop the new query if a stop was requested while it started."""
        return None if self.wish is Wish.GO_ON else StopQuery(self.gives_up_epoch)

    # -- epochs ----------------------------------------------------------------------------------------------------

    @_event(Phase.RECOVERING, Phase.RUNNING, Phase.RESTARTING, Phase.ENDING, Phase.ENDED)
    def batch_ready(self, generation: int) -> RunEpoch | None:
        """Run the waiting batch. None: the query was abandoned while the batch waited."""
        return RunEpoch() if self.wants_epochs and generation == self.generation else None

    @_event(Phase.RUNNING)
    def wakeup_due(self) -> RunEpoch | None:
        """Run an epoch without records, for a timer or an idle channel."""
        return RunEpoch() if self.wants_epochs else None

    @_event(Phase.RUNNING)
    def epoch_done(self, ended: bool = False) -> None:
        """`ended`: the epoch ended the input."""
        self._restarts.handle(Completed())
        self._has_checkpoint = self.progressed = True
        self._input_ended = self._input_ended or ended

    @_event(*_ALIVE)
    def listener_failed(self) -> None:
        """Fail without a restart: the program's epoch listener raised, and would raise again at the next epoch."""
        self._listener_failed = True

    # -- the end of the input and of the query ---------------------------------------------------------------------

    @_event(Phase.RUNNING)
    def input_over(self) -> None:
        """Note that the sources have ended, which was not known in advance."""
        self._input_over = True

    @_event(Phase.RUNNING)
    def query_ended(self) -> RunEpoch | End:
        return self._after_input()

    def _after_input(self) -> RunEpoch | End:
        if self.wants_epochs and (self._traits.bounded or self._input_over):
            return RunEpoch(ends_input=True)
        return self._ending()

    @_event(Phase.RUNNING)
    def clock_set_back(self) -> Recover | None:
        """Restart the query from the last checkpoint: it waits on the machine's clock, which was set back."""
        if not self.wants_epochs or self._traits.bounded or not self._traits.checkpointing:
            return None
        self.generation += 1
        self.phase = Phase.RECOVERING
        return Recover()

    # -- failures --------------------------------------------------------------------------------------------------

    @_event(*_ALIVE)
    def failed(self, failure: JobFailure) -> AwaitRestart | End:
        self.progressed = False
        if self.wish is not Wish.GO_ON:
            return self._ending()
        if self._listener_failed or not failure.restartable:
            return self._ending(failed=True)
        decision = self._restarts.handle(Failed(failure.at, failure.from_user, failure.identity))
        if not isinstance(decision, Restart):
            return self._ending(failed=True, reason=decision.reason if isinstance(decision, GiveUp) else "")
        self.phase = Phase.RESTARTING
        # Batches of the previous query no longer run.
        self.generation += 1
        new_lineage = not (self._traits.checkpointing or self._traits.single_epoch)
        return AwaitRestart(decision.number, decision.delay_ms, new_lineage)

    @_event(Phase.RESTARTING)
    def delay_over(self) -> Recover | End:
        if self.wish is not Wish.GO_ON:
            return self._ending()
        self.phase = Phase.RECOVERING
        return Recover()

    # -- requests --------------------------------------------------------------------------------------------------

    @_event(*Phase)
    def savepoint_requested(self) -> Save | AwaitRecovery | Refusal:
        return self._save(drain=False)

    @_event(*Phase)
    def stop_requested(self, drain: bool = False) -> Save | AwaitRecovery | Refusal:
        """Stop with a savepoint. `drain`: end the input first."""
        return self._save(drain)

    @_event(Phase.RUNNING)
    def stopped(self, cancel: bool = False) -> StopQuery:
        """End the query: the savepoint is complete, or the drained input has ended."""
        self._saved = True
        self._wish(Wish.CANCEL if cancel else Wish.STOP)
        return StopQuery()

    @_event(*Phase)
    def rescale_requested(self) -> ChangeParallelism | AwaitRecovery | Refusal:
        if self._traits.single_epoch:
            return Refusal.BATCH
        if self.phase in (Phase.ENDING, Phase.ENDED) or self.wish is not Wish.GO_ON or self._input_ended:
            return Refusal.OVER
        return ChangeParallelism() if self.phase is Phase.RUNNING else AwaitRecovery()

    @_event(*Phase)
    def cancel_requested(self) -> StopQuery | None:
        if self.phase in (Phase.ENDING, Phase.ENDED):
            return None
        self._wish(Wish.CANCEL)
        self.gives_up_epoch = True
        return StopQuery(now=True)

    @_event(*Phase)
    def suspend_requested(self, now: bool = False) -> StopQuery | None:
        """`now`: abandon the epoch in progress. The only epoch of a batch is always abandoned."""
        if self.phase in (Phase.ENDING, Phase.ENDED):
            return None
        self._wish(Wish.SUSPEND)
        self.gives_up_epoch = self.gives_up_epoch or now or self._traits.single_epoch
        return StopQuery(self.gives_up_epoch)

    def _save(self, drain: bool) -> Save | AwaitRecovery | Refusal:
        if self._traits.single_epoch:
            return Refusal.BATCH
        if self.phase in (Phase.ENDING, Phase.ENDED) or self.wish is not Wish.GO_ON:
            return Refusal.OVER
        if self.phase is not Phase.RUNNING:
            return AwaitRecovery()
        return Save(first_epoch=not self._has_checkpoint and not drain, drain=drain)

    def _wish(self, wish: Wish) -> None:
        self.wish = max(self.wish, wish)

    # -- the end ---------------------------------------------------------------------------------------------------

    @_event(*Phase)
    def ended(self, failed: bool = False) -> None:
        """`failed`: closing the job's resources failed."""
        self.phase = Phase.ENDED
        if failed or self._end is None:
            self._end = End(JobStatus.FAILED)

    def _ending(self, failed: bool = False, reason: str = "") -> End:
        self.phase = Phase.ENDING
        self._end = self._how_to_end(failed, reason)
        return self._end

    def _how_to_end(self, failed: bool, reason: str) -> End:
        traits = self._traits
        retain = traits.retain and traits.checkpointing
        if self.wish is Wish.CANCEL:
            return self._given_up(JobStatus.CANCELED, retain)
        if self._input_ended:
            return End(JobStatus.FINISHED, end_lineage=True, retain=retain)
        if self.wish is Wish.STOP:
            return self._given_up(JobStatus.FINISHED, retain)
        if self.wish is Wish.SUSPEND and not traits.resumable:
            return self._given_up(JobStatus.CANCELED, retain)
        if self.wish is Wish.SUSPEND or failed:
            status = JobStatus.FAILED if self.wish is Wish.GO_ON else JobStatus.SUSPENDED
            return End(status, end_lineage=not traits.checkpointing, reason=reason)
        return End(JobStatus.FINISHED, end_lineage=True, retain=retain)

    def _given_up(self, status: JobStatus, retain: bool) -> End:
        """End the job before its input ends; no later run resumes it.

        If a savepoint was made, open sink output belongs to the job that restores it, so the sinks are not finished.
        """
        finish = not retain and not self._saved
        return End(status, close=self._traits.checkpointing, finish_sinks=finish, end_lineage=True, retain=retain)
