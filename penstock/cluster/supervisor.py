"""Carries out the steps of supervision: reads records, observes processes, and starts, kills and decides.

One thread calls `tick` again and again. Everything that can block for seconds runs in other threads: a job whose
process hangs does not delay the others.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field

from penstock.cluster.launcher import Launcher
from penstock.cluster.order import Order
from penstock.cluster.records import Attempt, BadRecord, Ended, JobView, Planned, Records, UnknownJob
from penstock.cluster.supervision import (
    AskToCancel,
    Decide,
    DeclareLost,
    Kill,
    Nothing,
    Observation,
    Policy,
    Process,
    Start,
    Step,
    next_step,
)
from penstock.driver.assignment import Verdict
from penstock.state.storage import StorageError

_KILLERS = 4
_CLEANERS = 4

_logger = logging.getLogger("penstock")


@dataclass
class _Known:
    """A job that has not ended or has a living process, with the memory of this supervisor."""

    view: JobView | None = None
    attempt: int = 0
    """The attempt that the following times are about; 0 before the first look at the job."""
    last: Attempt | None = None
    since_ms: int = 0
    """When this supervisor saw the newest record of the attempt."""
    begun_ms: int = 0
    """When this supervisor saw the attempt."""
    first_seen_ms: int = 0
    """When this supervisor saw the attempt, or the claim of its process."""
    claimed: bool = False
    unknown_since_ms: int | None = None
    known_since_ms: int | None = None
    """Since when the state of the process is known without a gap: since its host was reached."""
    cancel_asked_ms: int | None = None
    killing: Future[bool] | None = None
    cleaning: Future[None] | None = None
    problem: str = ""
    """Why the job could not be supervised the last time."""
    launched: bool = False
    """Whether this supervisor has started a process for the attempt."""
    starting: bool = False
    """Whether the attempt is planned and its process has not reported a running job."""

    def begin(self, attempt: int, now_ms: int) -> None:
        """Forget the previous attempt."""
        self.attempt, self.first_seen_ms, self.begun_ms = attempt, now_ms, now_ms
        self.unknown_since_ms = self.known_since_ms = self.cancel_asked_ms = None
        self.launched = self.claimed = False


@dataclass(kw_only=True)
class Supervisor:
    """Supervises the jobs of a cluster while this Dispatcher leads."""

    leader: str
    """The name of this Dispatcher in the records."""
    records: Records
    launcher: Launcher
    policy: Policy
    most_starts: int
    order: Callable[[str, int, bool], Order]
    """Makes the order for an attempt of a job; the flag says whether it only finalizes."""
    heard_ms: Callable[[str, int], int | None]
    """When the process of an attempt last sent something to this Dispatcher, if ever."""
    has_started: Callable[[str, int], bool]
    """Whether the process of an attempt has reported that the job runs."""
    present: Callable[[], set[tuple[str, int]]]
    """Returns the job and attempt of every JobManager that reports itself alive to the coordination."""
    ask_to_cancel: Callable[[str, int], None]
    changed: Callable[[JobView], None]
    """Called with the records of a job after each change, and when an ended job has no process. Does not block."""
    broken: Callable[[str, str], None]
    """Called with a job whose records cannot be read, and the reason."""
    clean_up: Callable[[JobView], None]
    """Removes what the processes of an ended job left behind."""
    can_act: Callable[[], bool]
    """Whether this Dispatcher leads. Asked before each step."""
    now_ms: Callable[[], int]
    _ticked_ms: int | None = None
    _jobs: dict[str, _Known] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(_KILLERS, "penstock-kill"))
    _cleaners: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(_CLEANERS, "penstock-clean-up"))
    """Others than the killers: a successor waits for a kill, and removing checkpoints can take minutes."""

    def add(self, job_id: str, view: JobView | None = None) -> None:
        """Supervise a job from now on. `view`: its records, if they were read and passed to `changed`."""
        with self._lock:
            self._jobs.setdefault(job_id, _Known(view=view))

    def supervises(self, job_id: str) -> bool:
        """Return whether the job has not ended, or its processes and their leftovers are not removed yet."""
        with self._lock:
            return job_id in self._jobs

    def forget_all(self) -> None:
        """Stop supervising, because another Dispatcher leads."""
        with self._lock:
            self._jobs.clear()

    def running(self) -> set[str]:
        """Return the jobs that have not ended."""
        with self._lock:
            return {job_id for job_id, known in self._jobs.items() if not _has_ended(known)}

    def close(self) -> None:
        for pool in (self._pool, self._cleaners):
            pool.shutdown(wait=False, cancel_futures=True)

    def tick(self, pause: Callable[[], object] = lambda: None) -> None:
        """Look at every job that has not ended or has a living process, and carry out its next step.

        `pause` is called after each job, to leave time to the other threads of this process.
        """
        with self._lock:
            # A new leader finds many jobs that ended long ago: the others do not wait for them.
            jobs = sorted(self._jobs.items(), key=lambda job: _has_ended(job[1]))
        self._forgive_own_silence(known for _, known in jobs)
        starting = sum(self._counts_as_start(job_id, known) for job_id, known in jobs)
        for job_id, known in jobs:
            if not self.can_act():
                return
            try:
                starting += self._look_at(job_id, known, starting)
            except (BadRecord, UnknownJob) as error:
                # Shown as failed, and left to the operator: no other job is affected.
                self.broken(job_id, str(error))
                self._drop(job_id)
            except Exception as error:  # no job prevents the supervision of another one
                if repr(error) != known.problem:
                    unexpected = not isinstance(error, (StorageError, OSError))
                    _logger.warning("Cannot supervise job %s now: %s", job_id, error, exc_info=unexpected)
                known.problem = repr(error)
            else:
                known.problem = ""
            pause()

    def _counts_as_start(self, job_id: str, known: _Known) -> bool:
        """Return whether a job starts. A new leader has to know it of all jobs before it starts another one."""
        if known.attempt == 0:
            with suppress(Exception):  # reported when the job is looked at
                view = known.view or self.records.view(job_id)
                known.starting = self._is_starting(view, known)
        return known.starting

    def _forgive_own_silence(self, jobs: Iterable[_Known]) -> None:
        """Start to wait again for all processes if this one was stopped, or its clock jumped: it heard none of them."""
        now, before = self.now_ms(), self._ticked_ms
        self._ticked_ms = now
        if before is not None and now - before > self.policy.silent_timeout_ms // 2:
            for known in jobs:
                known.first_seen_ms = now
                known.unknown_since_ms = None

    def _look_at(self, job_id: str, known: _Known, starting: int) -> int:
        """Carry out the next step of one job. Return by how much the number of starting jobs changed."""
        if known.cleaning is not None:
            if known.cleaning.done():
                self._drop(job_id)
            return 0
        view, is_new = self.records.view(job_id), known.attempt == 0
        before = known.starting
        seen = self._observe(view, known)
        gone = view.verdict is not None and not seen.remains
        # Its process stored the last snapshot of an ended job before it exited.
        if view != known.view or (gone and not (is_new and self._is_settled(view))):
            known.view = view
            self.changed(view)
        step = next_step(view, seen, self.policy)
        if isinstance(step, Start) and starting >= self.most_starts:
            return 0
        if isinstance(step, Nothing) and self._is_unclaimed(view, known):
            # The leader that planned it might have died before it started a process. Only one process can claim it.
            self._launch(job_id, view.attempts[-1], known)
        elif self.can_act():
            self._carry_out(job_id, view, known, step)
        if gone:
            known.cleaning = self._cleaners.submit(self._clean_up, view)
        return int(known.starting) - int(before)

    def _is_settled(self, view: JobView) -> bool:
        """Return whether a job ended so long ago that its process stored the last snapshot before this one looked."""
        return view.verdict is not None and self.now_ms() > view.verdict.at_ms + self.policy.exit_grace_ms

    def _clean_up(self, view: JobView) -> None:
        try:
            self.clean_up(view)
        except Exception:
            _logger.exception("Job %s has ended, but is not cleaned up.", view.submission.id)

    def _observe(self, view: JobView, known: _Known) -> Observation:
        now, last = self.now_ms(), view.last
        number = 0 if last is None else last.number
        if number != known.attempt:
            known.begin(number, now)
        if last != known.last:
            known.last, known.since_ms = last, now
        if last is not None and last.claim is not None and not known.claimed:
            # A process that took long to start has had no time to report.
            known.claimed, known.first_seen_ms = True, now
        known.starting = self._is_starting(view, known)
        claimed = _newest_claim(view)
        failure = "" if last is None or last.claim else self.launcher.start_failure(view.submission.id, number)
        if last is None or claimed is None or claimed.claim is None:
            return Observation(now_ms=now, since_ms=known.since_ms, start_failure=failure)
        process_of = view.submission.id, claimed.number
        process = self.launcher.state(*process_of, claimed.claim)
        reached = process is not Process.UNKNOWN
        known.known_since_ms = (known.known_since_ms or now) if reached else None
        if not reached and process_of in self.present():
            process = Process.ALIVE
        known.unknown_since_ms = None if process is not Process.UNKNOWN else (known.unknown_since_ms or now)
        heard = self.heard_ms(view.submission.id, number)
        return Observation(
            now_ms=now,
            since_ms=known.since_ms,
            process=process if claimed.number == number else Process.DEAD,
            unknown_since_ms=known.unknown_since_ms,
            cancel_asked_ms=known.cancel_asked_ms,
            # Nothing can be heard from a host that is not reached.
            silent_since_ms=max(known.first_seen_ms, known.known_since_ms or 0, heard or 0) if reached else None,
            start_failure=failure,
            remains=last.ended is not None and self.launcher.remains(*process_of, claimed.claim),
        )

    def _is_starting(self, view: JobView, known: _Known) -> bool:
        """Return whether an attempt counts as a start. A program that never executes its job does so for a time."""
        last = view.last
        if last is None or last.ended is not None or last.planned is None or not last.planned.starts:
            return False
        waits = known.attempt != last.number or self.now_ms() < known.begun_ms + self.policy.start_timeout_ms
        return waits and not self.has_started(view.submission.id, last.number)

    def _carry_out(self, job_id: str, view: JobView, known: _Known, step: Step) -> None:
        name = view.submission.name
        match step:
            case Nothing():
                return
            case Start(number, finalize):
                planned = Planned(leader=self.leader, at_ms=self.now_ms(), finalize=finalize)
                if self.records.plan(job_id, number, planned):
                    _logger.info("Job '%s' (%s): starting attempt %d.%s", name, job_id, number, _after_losses(view))
                    known.begin(number, planned.at_ms)
                    known.starting = True
                    self._launch(job_id, Attempt(number=number, planned=planned), known)
            case DeclareLost(number, reason):
                _logger.warning("Job '%s' (%s): attempt %d is lost. %s", name, job_id, number, reason)
                self._end(job_id, number, Verdict.LOST, reason)
            case Kill(number):
                claim = view.attempts[number - 1].claim
                if claim is not None and (known.killing is None or known.killing.done()):
                    _logger.warning("Job '%s' (%s): killing process %d.", name, job_id, claim.pid)
                    known.killing = self._pool.submit(self.launcher.kill, job_id, number, claim)
            case AskToCancel(number):
                known.cancel_asked_ms = self.now_ms()
                self.ask_to_cancel(job_id, number)
            case Decide(number, verdict, reason):
                planned = Planned(leader=self.leader, at_ms=self.now_ms(), starts=False)
                known_plan = None if number > len(view.attempts) else view.attempts[number - 1].planned
                if (known_plan is not None and not known_plan.starts) or self.records.plan(job_id, number, planned):
                    _logger.info("Job '%s' (%s): %s. %s", name, job_id, verdict.value, reason)
                    self._end(job_id, number, verdict, reason)

    def _is_unclaimed(self, view: JobView, known: _Known) -> bool:
        last = view.last
        return last is not None and last.claim is None and last.ended is None and not known.launched

    def _launch(self, job_id: str, attempt: Attempt, known: _Known) -> None:
        finalize = attempt.planned is not None and attempt.planned.finalize
        self.launcher.start(self.order(job_id, attempt.number, finalize))
        known.launched = True

    def _end(self, job_id: str, number: int, verdict: Verdict, reason: str) -> None:
        self.records.end(job_id, number, Ended(verdict=verdict, by=self.leader, at_ms=self.now_ms(), reason=reason))

    def _drop(self, job_id: str) -> None:
        with self._lock:
            self._jobs.pop(job_id, None)


def _has_ended(known: _Known) -> bool:
    return known.view is not None and known.view.verdict is not None


def _after_losses(view: JobView) -> str:
    """Describe why a job needs another attempt."""
    last = view.last
    return f" {len(view.attempts)} were lost, the last one because: {last.ended.reason}" if last and last.ended else ""


def _newest_claim(view: JobView) -> Attempt | None:
    return next((each for each in reversed(view.attempts) if each.claim is not None), None)
