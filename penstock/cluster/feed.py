"""The connections of a Dispatcher to JobManagers, whichever Dispatcher started them.

One connection per attempt delivers snapshots as they change. Requests have a connection each, and a deadline.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from penstock.cluster.connection import Connecting
from penstock.cluster.gateway import Conflict, Timeout
from penstock.cluster.other_hosts import NoAgent
from penstock.common.wall_clock import now_ms
from penstock.control.client import RefusedByJob
from penstock.driver.control_messages import Answer, Follow, Refused, Request, decode_answer
from penstock.driver.job_snapshot import JobSnapshot

_RETRY_S = 0.5
_PERIOD_S, _APART_S = 1.0, 0.02
"""A JobManager sends snapshots once per second from the beginning of the connection on.

A new leader follows many jobs at once. Connections that begin apart keep their snapshots apart.
"""

Connect = Callable[[], Connecting]
"""Returns a new connection to the JobManager of an attempt, not opened. Opening it raises OSError."""

_logger = logging.getLogger("penstock")


@dataclass(frozen=True)
class _Followed:
    attempt: int
    task: asyncio.Task[None]


class Feed:
    """Call from one event loop."""

    def __init__(self, on_snapshot: Callable[[JobSnapshot], None]) -> None:
        """`on_snapshot` is called in the event loop."""
        self._on_snapshot = on_snapshot
        self._followed: dict[str, _Followed] = {}
        self._decoding = asyncio.Lock()
        """Held while a snapshot is decoded, which takes 0.3 ms for a job with 20 subtasks.

        Snapshots of many jobs can arrive at the same moment. The lock passes to the next one in another turn of the
        event loop, so requests do not wait for all of them.
        """
        self.heard_ms: dict[tuple[str, int], int] = {}
        """When each JobManager that is followed sent something."""

    def follow(self, job_id: str, attempt: int, connect: Connect) -> None:
        """Receive the snapshots of an attempt from now on, instead of those of earlier attempts."""
        known = self._followed.get(job_id)
        if known is not None and known.attempt == attempt:
            return
        self.leave(job_id)
        wait_s = len(self._followed) * _APART_S % _PERIOD_S
        task = asyncio.get_running_loop().create_task(self._follow(job_id, attempt, connect, wait_s))
        self._followed[job_id] = _Followed(attempt, task)

    def follows(self, job_id: str) -> bool:
        """Return whether snapshots of a job can arrive."""
        return job_id in self._followed

    def leave(self, job_id: str) -> None:
        """Stop receiving snapshots of a job."""
        known = self._followed.pop(job_id, None)
        if known is not None:
            known.task.cancel()
            self.heard_ms.pop((job_id, known.attempt), None)

    def leave_all(self) -> None:
        """Stop receiving snapshots."""
        for job_id in list(self._followed):
            self.leave(job_id)

    async def close(self) -> None:
        tasks = [each.task for each in self._followed.values()]
        self.leave_all()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self, job_id: str, attempt: int, connect: Connect, wait_s: float) -> None:
        await asyncio.sleep(wait_s)
        reported = False
        while True:
            unreadable: Exception | None = None
            # A process that has not opened its control point yet, or ended; the records tell them apart.
            with suppress(OSError, EOFError):
                async with connect() as connection:
                    connection.send(Follow())
                    while unreadable is None:
                        try:
                            line = await connection.receive()
                            self.heard_ms[job_id, attempt] = now_ms()
                            await self._show(line)
                        except (OSError, EOFError):
                            raise
                        except Exception as error:
                            # Of another version, or too long. The process lives, so it must not count as silent.
                            self.heard_ms[job_id, attempt] = now_ms()
                            unreadable = error
            if unreadable is not None and not reported:
                reported = True
                _logger.error("Cannot read the snapshots of job %s, attempt %d: %s", job_id, attempt, unreadable)
            await asyncio.sleep(_RETRY_S)

    async def _show(self, line: bytes) -> None:
        async with self._decoding:
            answer = decode_answer(line)
            if isinstance(answer, JobSnapshot):
                self._on_snapshot(answer)

    async def ask(self, job_id: str, connect: Connect, request: Request, timeout_s: float) -> Answer:
        """Send a request to a JobManager. Raises Conflict if it does not run, Timeout, RefusedByJob, NoAgent."""
        try:
            async with asyncio.timeout(timeout_s), connect() as connected:
                connected.send(request)
                answer: Answer = decode_answer(await connected.receive())
        except TimeoutError:
            raise Timeout(
                f"The JobManager of job {job_id} did not answer within {timeout_s:g} s.",
                fix="Try again. If it persists, look at the log of the JobManager with `penstock logs JOB`.",
            ) from None
        except NoAgent:
            raise
        except ValueError as error:
            raise Conflict(
                f"The answer of the JobManager of job {job_id} cannot be read: {error}.",
                fix="If it runs with another version of Penstock, restart the job from a savepoint.",
            ) from None
        except (OSError, EOFError) as error:
            raise Conflict(
                f"The JobManager of job {job_id} does not run: {error}.",
                fix="Wait until the job runs; `penstock list` shows its state.",
            ) from None
        if isinstance(answer, Refused):
            raise RefusedByJob(answer)
        return answer
