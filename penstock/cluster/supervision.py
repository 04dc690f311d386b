"""The next step of a supervisor for a job: a pure function of the job's records and the state of its process.

No I/O and no clock: `next_step` takes a view of the records and returns an instruction. Several supervisors can follow
it at the same time. Each instruction is a put-if-absent or can be repeated, so the loser of a race reads the decision
of the winner and continues from there.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from penstock.cluster.records import Attempt, JobView
from penstock.driver.assignment import Verdict


class Process(Enum):
    """The state of the process that claimed an attempt."""

    ALIVE = "alive"
    DEAD = "dead"
    UNKNOWN = "unknown"
    """Its host does not answer."""


@dataclass(frozen=True, kw_only=True)
class Policy:
    """Limits of a supervisor, in milliseconds."""

    start_timeout_ms: int = 120_000
    """Time from the plan of an attempt to its claim, after which it counts as lost."""
    unknown_timeout_ms: int = 60_000
    """Time without an answer from a host, after which its attempts count as lost."""
    silent_timeout_ms: int = 50_000
    """Time without a sign of life from a living process, after which its attempt counts as lost."""
    finalize_timeout_ms: int = 120_000
    """Time for an attempt that only commits the output of the last checkpoint."""
    cancel_grace_ms: int = 10_000
    """Time for a process to end by itself after a cancel request."""
    exit_grace_ms: int = 600_000
    """Time for a process to remove its checkpoints and exit after it decided the end of the job."""
    first_backoff_ms: int = 1_000
    longest_backoff_ms: int = 60_000
    stable_ms: int = 600_000
    """Time that an attempt has to run to reset the backoff."""
    finalizing_attempts: int = 3
    """Attempts to commit the output of the last checkpoint of a cancelled job."""


@dataclass(frozen=True)
class Nothing:
    """The job has ended, or the supervisor has nothing to do before `until_ms`."""

    until_ms: int | None = None


@dataclass(frozen=True)
class Start:
    """Plan the attempt, and start a process for it if the plan is accepted."""

    attempt: int
    finalize: bool = False


@dataclass(frozen=True)
class DeclareLost:
    """Decide that the attempt is lost. Its process, if any, is dead or out of reach."""

    attempt: int
    reason: str


@dataclass(frozen=True)
class Kill:
    """Kill the process tree of the attempt, and its Spark application."""

    attempt: int


@dataclass(frozen=True)
class AskToCancel:
    """Ask the process of the attempt to cancel the job."""

    attempt: int


@dataclass(frozen=True)
class Decide:
    """Decide the end of the job, in the records of an attempt that has no process.

    Plan the attempt as one that does not start. Decide only if the plan is accepted, or was made to decide: otherwise
    another leader has started the attempt.
    """

    attempt: int
    verdict: Verdict
    reason: str


Step = Nothing | Start | DeclareLost | Kill | AskToCancel | Decide


@dataclass(frozen=True, kw_only=True)
class Observation:
    """The knowledge of a supervisor apart from the records."""

    now_ms: int
    since_ms: int
    """When this supervisor saw the newest record of the newest attempt. The clocks of other hosts can differ."""
    process: Process = Process.UNKNOWN
    """Of the newest attempt that was claimed."""
    unknown_since_ms: int | None = None
    cancel_asked_ms: int | None = None
    """When this supervisor asked the process to cancel."""
    silent_since_ms: int | None = None
    """Since when a living process has not answered this supervisor."""
    start_failure: str = ""
    """Why the process that this supervisor started for the newest attempt ended without a claim."""
    remains: bool = False
    """Whether any process of the newest claimed attempt is alive, such as its JVM."""


def next_step(job: JobView, seen: Observation, policy: Policy) -> Step:
    """Return what to do next for a job."""
    last = job.last
    if job.verdict is not None:
        # A process that decided the end cleans up and exits by itself. One that hangs would keep its cores.
        due = seen.since_ms + policy.exit_grace_ms
        claimed = [each.number for each in job.attempts if each.claim]
        if not claimed or not seen.remains:
            return Nothing()
        return Kill(claimed[-1]) if seen.now_ms >= due else Nothing(due)
    if last is None:
        return _decision(job, 1) if job.cancel_requested else Start(1)
    if last.ended is None:
        return _supervise(job, last, seen, policy)
    return _continue_after(job, last, seen, policy)


def _supervise(job: JobView, last: Attempt, seen: Observation, policy: Policy) -> Step:
    """Handle an attempt that has not ended."""
    if last.planned and not last.planned.starts:
        # The leader that planned to decide died before it did.
        return _decision(job, last.number)
    if last.claim is None:
        deadline = seen.since_ms + policy.start_timeout_ms
        if job.cancel_requested and last.planned and not last.planned.finalize:
            return DeclareLost(last.number, "The job was cancelled before the attempt started.")
        if seen.start_failure:
            return DeclareLost(last.number, seen.start_failure)
        if seen.now_ms < deadline:
            return Nothing(deadline)
        return DeclareLost(last.number, f"No process claimed the attempt within {policy.start_timeout_ms} ms.")
    if seen.process is Process.DEAD:
        return DeclareLost(last.number, f"Process {last.claim.pid} on {last.claim.host} died.")
    if seen.process is Process.UNKNOWN:
        since = seen.now_ms if seen.unknown_since_ms is None else seen.unknown_since_ms
        deadline = since + policy.unknown_timeout_ms
        if seen.now_ms < deadline:
            return Nothing(deadline)
        return DeclareLost(last.number, f"Host {last.claim.host} has not answered for {policy.unknown_timeout_ms} ms.")
    if seen.silent_since_ms is not None and seen.now_ms >= seen.silent_since_ms + policy.silent_timeout_ms:
        return DeclareLost(last.number, f"Process {last.claim.pid} has not answered for {policy.silent_timeout_ms} ms.")
    if last.planned and last.planned.finalize:
        deadline = seen.since_ms + policy.finalize_timeout_ms
        return Nothing(deadline) if seen.now_ms < deadline else Kill(last.number)
    if job.cancel_requested:
        if seen.cancel_asked_ms is None:
            return AskToCancel(last.number)
        deadline = seen.cancel_asked_ms + policy.cancel_grace_ms
        return Nothing(deadline) if seen.now_ms < deadline else Kill(last.number)
    return Nothing(seen.now_ms + policy.unknown_timeout_ms)


def _continue_after(job: JobView, last: Attempt, seen: Observation, policy: Policy) -> Step:
    """Handle a job whose newest attempt was lost."""
    assert last.ended is not None
    following = last.number + 1
    if last.claim is not None and seen.remains:
        # It holds cores and memory that its successor would wait for.
        return Kill(last.number)
    if job.cancel_requested:
        tried = _finalizing(job)
        return (
            Start(following, finalize=True)
            if job.lineage and tried < policy.finalizing_attempts
            else _decision(job, following)
        )
    if job.lineage == "":
        return _decision(job, following)
    # A new leader does not wait again. A host whose clock is fast does not delay the job.
    due = min(last.ended.at_ms, seen.since_ms) + backoff_ms(job, policy)
    return Start(following) if seen.now_ms >= due else Nothing(due)


def _decision(job: JobView, number: int) -> Decide:
    """Return the decision on a job that is not started again. Every leader makes the same one."""
    if job.cancel_requested and not any(each.claim for each in job.attempts):
        return Decide(number, Verdict.CANCELED, "The job was cancelled before it started.")
    if job.cancel_requested and not job.lineage:
        return Decide(number, Verdict.CANCELED, "The job was cancelled and has no checkpoint to commit.")
    if job.cancel_requested:
        reason = f"The output of the last checkpoint could not be committed in {_finalizing(job)} attempts."
        return Decide(number, Verdict.CANCELED, reason)
    lost = next((each.ended.reason for each in reversed(job.attempts) if each.ended), "")
    reason = f"{lost} The job has no checkpoints to resume from, so it is not restarted."
    return Decide(number, Verdict.FAILED, reason)


def _finalizing(job: JobView) -> int:
    """Return how many attempts have tried to commit the output of the last checkpoint."""
    return sum(1 for each in job.attempts if each.planned and each.planned.finalize)


def backoff_ms(job: JobView, policy: Policy) -> int:
    """Return the delay before the next attempt: it doubles with each lost attempt, until one has run for long."""
    lost = 0
    for each in reversed(job.attempts):
        ran_ms = each.ended.at_ms - each.claim.at_ms if each.ended and each.claim else 0
        if ran_ms >= policy.stable_ms:
            break
        lost += 1
    return min(policy.longest_backoff_ms, policy.first_backoff_ms << min(max(lost - 1, 0), 30))
