"""The checkpoint coordinator: a state machine without I/O. Events in, instructions out.

One epoch is one checkpoint. It is TRIGGERED with the set of subtasks that must acknowledge it, each with a report.
When all reports are in and both ends agree on every channel, its manifest can be published, which makes it COMPLETED.
A failure makes it DECLINED and a timeout makes it EXPIRED; the same epoch can then be triggered again.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import NoReturn, overload

from penstock.driver.report_totals import ReportTotals
from penstock.errors import PenstockError
from penstock.runtime.report import EdgeTotals, Report
from penstock.runtime.rows import Failure


class CheckpointStatus(Enum):
    TRIGGERED = "TRIGGERED"
    COMPLETED = "COMPLETED"
    DECLINED = "DECLINED"
    EXPIRED = "EXPIRED"


@dataclass(frozen=True)
class TriggerCheckpoint:
    """An epoch begins. `subtasks` holds (chain, subtask) of every task except sources: Spark decides how many run."""

    epoch: int
    at: int
    subtasks: frozenset[tuple[int, int]]
    source_chains: frozenset[int]


@dataclass(frozen=True)
class Acknowledge:
    report: Report
    at: int


@dataclass(frozen=True)
class Decline:
    epoch: int
    failure: Failure
    at: int


@dataclass(frozen=True)
class AllIn:
    """The engine has finished the epoch: no more reports will arrive."""

    epoch: int
    at: int


@dataclass(frozen=True)
class Published:
    epoch: int
    at: int


@dataclass(frozen=True)
class Expire:
    """The timeout has passed and the engine was stopped."""

    epoch: int
    at: int


Event = TriggerCheckpoint | Acknowledge | Decline | Expire | AllIn | Published


@dataclass(frozen=True)
class Publish:
    """Publish the manifest built from the reports."""

    epoch: int
    totals: ReportTotals = field(default_factory=ReportTotals, compare=False)
    """Of all reports."""


@dataclass(frozen=True)
class CommitSinks:
    epoch: int


@dataclass(frozen=True)
class Abort:
    """The epoch failed and none of its output is visible. `failures` lists user code's first."""

    epoch: int
    status: CheckpointStatus
    failures: tuple[Failure, ...]
    reason: str
    totals: ReportTotals = field(default_factory=ReportTotals, compare=False)
    """Of the reports that arrived before the failure. The output they prepared must be aborted."""


Instruction = Publish | CommitSinks | Abort


class InvalidTransition(PenstockError):
    """An event that is invalid in this state, with the checkpoint's recent events. A bug in Penstock: report it.

    Operator action: report the message as a bug, and start the program again to resume.
    """


@dataclass
class CheckpointAttempt:
    """One attempt at a checkpoint, kept for its history."""

    epoch: int
    triggered_at: int
    waiting_for: set[tuple[int, int]]
    source_chains: frozenset[int]
    status: CheckpointStatus = CheckpointStatus.TRIGGERED
    totals: ReportTotals = field(default_factory=ReportTotals)
    """Of the reports so far."""
    failures: list[Failure] = field(default_factory=list)
    acknowledged_at: dict[tuple[int, int], int] = field(default_factory=dict)
    expired: bool = False
    publishing: bool = False
    """Whether all reports are in and agree, so that only publication can follow."""
    ended_at: int | None = None

    def acknowledged_after(self) -> dict[tuple[int, int], int]:
        """Return how long after the trigger each task acknowledged. Can be called from any thread."""
        return {who: max(0, at - self.triggered_at) for who, at in self.acknowledged_at.copy().items()}


class Coordinator:
    """All transitions go through `handle`. `timeout_ms` covers trigger to publication."""

    def __init__(self, timeout_ms: int, keep: int = 100) -> None:
        self._timeout_ms = timeout_ms
        self._kept = keep
        self.current: CheckpointAttempt | None = None
        self.recent: list[CheckpointAttempt] = []
        self._story: deque[str] = deque(maxlen=31)

    @overload
    def handle(self, event: TriggerCheckpoint | Acknowledge | Decline | Expire) -> None: ...
    @overload
    def handle(self, event: AllIn) -> Publish | Abort: ...
    @overload
    def handle(self, event: Published) -> CommitSinks: ...
    def handle(self, event: Event) -> Instruction | None:
        """Process an event and return the resulting instruction, if any. Raises InvalidTransition."""
        self._story.append(_outline(event))
        if isinstance(event, TriggerCheckpoint):
            self._trigger(event)
            return None
        current = self._under_way(event)
        match event:
            case Acknowledge():
                self._acknowledge(current, event)
            case Decline():
                current.failures.append(event.failure)
            case Expire():
                current.expired = True
            case AllIn():
                return self._all_in(current, event)
            case Published():
                return self._published(current, event)
        return None

    def forget(self, at: int) -> None:
        """Drop the checkpoint in progress, because the driver resumes from the last manifest."""
        if self.current is not None and self.current.status is CheckpointStatus.TRIGGERED:
            self._end(self.current, CheckpointStatus.DECLINED, at, "")
        self.current = None

    def _under_way(self, event: Acknowledge | Decline | Expire | AllIn | Published) -> CheckpointAttempt:
        """Return the checkpoint that the event refers to, or raise InvalidTransition if the event is invalid now."""
        current = self.current
        epoch = event.report.epoch if isinstance(event, Acknowledge) else event.epoch
        if current is None or current.epoch != epoch or current.status is not CheckpointStatus.TRIGGERED:
            self._invalid(event)
        if current.publishing is not isinstance(event, Published):
            self._invalid(event)
        return current

    def _trigger(self, event: TriggerCheckpoint) -> None:
        current = self.current
        if current is not None:
            completed = current.status is CheckpointStatus.COMPLETED
            if current.status is CheckpointStatus.TRIGGERED or event.epoch != current.epoch + completed:
                self._invalid(event)
            # Only the last attempt is asked for them, and a hundred attempts of a large job are much memory.
            current.acknowledged_at, current.waiting_for = {}, set()
        self.current = CheckpointAttempt(event.epoch, event.at, set(event.subtasks), event.source_chains)
        self.recent = [*self.recent[-(self._kept - 1) :], self.current]

    def _acknowledge(self, current: CheckpointAttempt, event: Acknowledge) -> None:
        report = event.report
        who = report.chain, report.subtask
        if who in current.acknowledged_at or (
            who not in current.waiting_for and report.chain not in current.source_chains
        ):
            self._invalid(event)
        current.waiting_for.discard(who)
        current.acknowledged_at[who] = event.at
        current.totals.add(report)

    def _all_in(self, current: CheckpointAttempt, event: AllIn) -> Publish | Abort:
        took = event.at - current.triggered_at
        expired = current.expired or took > self._timeout_ms
        if expired and not any(failure.from_user for failure in current.failures):
            reason = f"it took {took} ms, more than the checkpoint timeout of {self._timeout_ms} ms"
            return self._end(current, CheckpointStatus.EXPIRED, event.at, reason)
        if current.failures:
            failures = sorted(current.failures, key=lambda failure: not failure.from_user)
            return self._end(current, CheckpointStatus.DECLINED, event.at, failures[0].error, failures)
        if current.waiting_for:
            missing = ", ".join(f"chain {chain} subtask {subtask}" for chain, subtask in sorted(current.waiting_for))
            return self._end(current, CheckpointStatus.DECLINED, event.at, f"no acknowledgement from {missing}")
        disagreement = _disagreement(current.totals)
        if disagreement is not None:
            return self._end(current, CheckpointStatus.DECLINED, event.at, disagreement)
        current.publishing = True
        return Publish(current.epoch, current.totals)

    def _published(self, current: CheckpointAttempt, event: Published) -> CommitSinks:
        current.status = CheckpointStatus.COMPLETED
        current.ended_at = event.at
        current.totals = ReportTotals()
        return CommitSinks(event.epoch)

    def _end(
        self,
        current: CheckpointAttempt,
        status: CheckpointStatus,
        at: int,
        reason: str,
        failures: list[Failure] | None = None,
    ) -> Abort:
        current.status = status
        current.ended_at = at
        totals, current.totals = current.totals, ReportTotals()
        return Abort(current.epoch, status, tuple(failures or ()), reason, totals)

    def _invalid(self, event: Event) -> NoReturn:
        state = "no checkpoint" if self.current is None else f"{self.current.status.name} {self.current.epoch}"
        raise InvalidTransition(
            f"{_outline(event)} cannot happen in {state}. Recent events:\n" + "\n".join(self._story)
        )


def _outline(event: Event) -> str:
    """Return an event without the contents of reports and the list of subtasks, which grow with the job."""
    match event:
        case Acknowledge(report, at):
            return f"Acknowledge(chain={report.chain}, subtask={report.subtask}, epoch={report.epoch}, at={at})"
        case TriggerCheckpoint(epoch, at, subtasks):
            return f"TriggerCheckpoint(epoch={epoch}, at={at}, subtasks={len(subtasks)})"
    return repr(event)[:200]


def _disagreement(reported: ReportTotals) -> str | None:
    """Describe the first edge whose channels differ between senders and receivers over the epoch, or return None.

    The sums of fingerprints agree only if each channel does: its producer, target, counts and checksum.
    """
    sent, received = reported.sent.totals(), reported.received.totals()
    for edge in sorted(sent.keys() | received.keys()):
        if sent.get(edge) != received.get(edge):
            return f"edge {edge}: sent {_described(sent.get(edge))}, received {_described(received.get(edge))}"
    return None


def _described(totals: EdgeTotals | None) -> str:
    if totals is None:
        return "nothing"
    return (
        f"{totals.records} records in {totals.buffers} buffers over {totals.channels} channels "
        f"(fingerprint {totals.fingerprint:016x})"
    )


__all__ = [
    "Abort",
    "Acknowledge",
    "AllIn",
    "CheckpointAttempt",
    "CheckpointStatus",
    "CommitSinks",
    "Coordinator",
    "Decline",
    "Expire",
    "Publish",
    "Published",
    "TriggerCheckpoint",
]
