"""The knowledge of a Dispatcher about jobs: their records, the last snapshots of their JobManagers, and what to show.

All of it is in memory and belongs to one event loop. A snapshot is the same object until it changes.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

import msgspec

from penstock.cluster.connection import LocalConnection
from penstock.cluster.events import Events
from penstock.cluster.feed import Connect, Feed
from penstock.cluster.gateway import Conflict
from penstock.cluster.other_hosts import NoAgent, OtherHosts
from penstock.cluster.records import Claim, JobView, UnknownJob
from penstock.cluster.shown import shown
from penstock.common.wall_clock import now_ms
from penstock.driver.control_messages import Answer, Request
from penstock.driver.job_snapshot import JobSnapshot, Operation
from penstock.driver.operations import stops
from penstock.state.storage import StorageError

_NOT_STARTED = ("INITIALIZING", "CREATED")

_logger = logging.getLogger("penstock")


class JobTable:
    """Methods run in the event loop, except those that say so."""

    def __init__(self, history: Callable[[str], bytes | None], events: Events, others: OtherHosts) -> None:
        """`history` reads the last snapshot of an ended job from the storage, and blocks."""
        self._history, self._events, self._others = history, events, others
        self._views: dict[str, JobView] = {}
        self._pushed: dict[str, JobSnapshot] = {}
        self._shown: dict[str, JobSnapshot] = {}
        self._broken: set[str] = set()
        self._feed = Feed(self._received)
        self._follows = True
        self._reading: set[asyncio.Task[None]] = set()
        self._news = asyncio.Event()
        """Set and replaced when the shown state of any job can have changed."""

    async def close(self) -> None:
        await self._feed.close()

    # -- for any thread ------------------------------------------------------------------------------------------------

    def views(self) -> list[JobView]:
        """Return the records of all jobs that can be read."""
        return list(self._views.values())

    def broken(self) -> list[str]:
        """Return the jobs whose records could not be read."""
        return list(self._broken)

    def heard_ms(self, job_id: str, attempt: int) -> int | None:
        """Return when the process of an attempt last sent something, if ever."""
        return self._feed.heard_ms.get((job_id, attempt))

    def has_started(self, job_id: str, attempt: int) -> bool:
        """Return whether the process of an attempt has reported that its job runs."""
        pushed = self._pushed.get(job_id)
        return pushed is not None and pushed.attempt == attempt and pushed.state not in _NOT_STARTED

    # -- leadership ----------------------------------------------------------------------------------------------------

    def follow_all(self) -> None:
        """Follow the JobManagers of jobs that are passed to `changed` from now on, as the leader."""
        self._follows = True

    def leave_all(self) -> None:
        """Follow no JobManager and forget what they sent, because another Dispatcher can lead now.

        The records stay until the jobs are adopted again: a sweep that has begun must not miss any.
        """
        self._follows = False
        self._feed.leave_all()
        self._pushed.clear()
        self._wake()

    # -- changes -------------------------------------------------------------------------------------------------------

    def changed(self, view: JobView) -> None:
        """Take over the records of a job."""
        job_id, last = view.submission.id, view.last
        self._broken.discard(job_id)
        self._views[job_id] = view
        if view.verdict is not None:
            self._feed.leave(job_id)
            task = asyncio.ensure_future(self._read_history(job_id))
            self._reading.add(task)
            task.add_done_callback(self._reading.discard)
        elif self._follows and last is not None and last.claim is not None and last.ended is None:
            # Without leadership, this is the end of a step that had begun before.
            self._feed.follow(job_id, last.number, self._connect(job_id, last.number, last.claim))
        self._show(job_id)

    def cannot_read(self, job_id: str, problem: str, retryable: bool = False) -> None:
        """Show a job as failed because its records cannot be read, or as reconciling if they are read again soon."""
        now, before = now_ms(), self._shown.get(job_id)
        self._broken.add(job_id)
        state = "RECONCILING" if retryable else "FAILED"
        if before is not None and (before.state, before.reason) == (state, problem):
            return
        self._shown[job_id] = JobSnapshot(
            id=job_id,
            name=job_id,
            state=state,
            ended_ms=-1 if retryable else now,
            state_since_ms={state: now},
            reason=problem,
        )

    def forget(self, job_id: str) -> None:
        """Remove a job whose records were removed."""
        self._broken.discard(job_id)
        self._feed.leave(job_id)
        for known in (self._views, self._pushed, self._shown):
            known.pop(job_id, None)
        self._wake()

    async def _read_history(self, job_id: str) -> None:
        stored = await self.stored(job_id)
        if stored is not None and job_id in self._views:
            self._pushed[job_id] = stored
            self._show(job_id)

    async def stored(self, job_id: str) -> JobSnapshot | None:
        """Return the last snapshot of an ended job, or None if its process has stored none that can be read."""
        try:
            stored = await asyncio.to_thread(self._history, job_id)
            return None if stored is None else msgspec.json.decode(stored, type=JobSnapshot)
        except (StorageError, ValueError, OSError) as error:
            _logger.warning("Cannot read the history of job %s: %s", job_id, error)
            return None

    def _received(self, snapshot: JobSnapshot) -> None:
        if snapshot.id in self._views:
            self._pushed[snapshot.id] = snapshot
            self._show(snapshot.id)

    def _show(self, job_id: str) -> None:
        before, after = self._shown.get(job_id), shown(self._views[job_id], self._pushed.get(job_id))
        self._shown[job_id] = after
        self._wake()
        if before is None or before.state != after.state:
            self._events.add("job-state", job_id, {"state": after.state, "name": after.name})

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    # -- reads and requests --------------------------------------------------------------------------------------------

    def all(self) -> Sequence[JobSnapshot]:
        """Return the snapshots of all jobs."""
        return list(self._shown.values())

    def find(self, job_id: str) -> JobSnapshot:
        """Return the snapshot of a job. Raises UnknownJob."""
        snapshot = self._shown.get(job_id)
        if snapshot is None:
            raise UnknownJob(f"The cluster has no job {job_id}.", fix="`penstock list` shows the jobs.")
        return snapshot

    async def await_effect(self, job_id: str, result: Operation, timeout_s: float) -> None:
        """Wait until a job is shown with the effect of an operation, but not longer than this.

        Does not wait if no snapshots arrive.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._feed.follows(job_id) and not self._shows(job_id, result):
                    await self._news.wait()

    def _shows(self, job_id: str, result: Operation) -> bool:
        snapshot = self._shown[job_id]
        if snapshot.ended_ms >= 0:
            return True
        return result in snapshot.operations and not stops(result)

    def name_of_last(self, program: str, entry: str, arguments: Sequence[str]) -> str:
        """Return the name of the newest job that runs or ran this program with these arguments; empty without one."""
        wanted = (program, entry, list(arguments))
        given = [view.submission for job_id, view in self._views.items() if job_id not in self._broken]
        same = [each for each in given if (each.program, each.entry, each.arguments) == wanted]
        newest = max(same, key=lambda each: each.submitted_ms, default=None)
        return "" if newest is None else self._shown[newest.id].name

    def view(self, job_id: str) -> JobView | None:
        """Return the records of a job, if they can be read."""
        return self._views.get(job_id)

    async def ask(self, job_id: str, request: Request, timeout_s: float) -> Answer:
        """Send a request to the JobManager of a job. Raises UnknownJob, Conflict, Timeout, RefusedByJob."""
        snapshot, view = self.find(job_id), self._views.get(job_id)
        last = None if view is None or view.verdict is not None else view.last
        if last is None or last.claim is None or last.ended is not None:
            raise Conflict(
                f"Job {job_id} is {snapshot.state}, so it has no JobManager that could do this.",
                fix="Wait until the job runs, if it has not ended.",
            )
        connect = self._connect(job_id, last.number, last.claim)
        try:
            return await self._feed.ask(job_id, connect, request, timeout_s)
        except NoAgent as error:
            raise Conflict(
                f"The JobManager of job {job_id} runs on host {last.claim.host}, which this Dispatcher does not reach: "
                f"{error}.",
                fix=f"Start a Dispatcher on {last.claim.host}, or check the network. The job can be cancelled without.",
            ) from None

    def _connect(self, job_id: str, attempt: int, claim: Claim) -> Connect:
        if claim.host == socket.gethostname():
            return partial(LocalConnection, claim.control, job_id, attempt)
        return partial(self._others.connection, claim.host, job_id, attempt)
