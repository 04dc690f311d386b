"""The connections of a Dispatcher to the JobManagers on its host, whichever Dispatcher started them.

One connection per attempt delivers snapshots as they change. Requests have a connection each, and a deadline. The claim
of an attempt names the directory of its control point.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from penstock.cluster.gateway import Conflict, Timeout
from penstock.cluster.order import socket_name
from penstock.common.wall_clock import now_ms
from penstock.control.client import RefusedByJob
from penstock.control.place import SUFFIX, address, opened
from penstock.driver.control_messages import Answer, Follow, Refused, Request, decode_answer, encode
from penstock.driver.job_snapshot import JobSnapshot

_RETRY_S = 0.5
_PERIOD_S, _APART_S = 1.0, 0.02
"""A JobManager sends snapshots once per second from the beginning of the connection on.

A new leader follows many jobs at once. Connections that begin apart keep their snapshots apart.
"""
_LINE_BYTES = 64 << 20
"""The longest snapshot: a job with thousands of subtasks."""

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

    def follow(self, job_id: str, attempt: int, control: str) -> None:
        """Receive the snapshots of an attempt from now on, instead of those of earlier attempts.

        `control` is the directory of its control point.
        """
        known = self._followed.get(job_id)
        if known is not None and known.attempt == attempt:
            return
        self.leave(job_id)
        wait_s = len(self._followed) * _APART_S % _PERIOD_S
        task = asyncio.get_running_loop().create_task(self._follow(job_id, attempt, control, wait_s))
        self._followed[job_id] = _Followed(attempt, task)

    def leave(self, job_id: str) -> None:
        """Stop receiving snapshots of a job."""
        known = self._followed.pop(job_id, None)
        if known is not None:
            known.task.cancel()
            self.heard_ms.pop((job_id, known.attempt), None)

    async def close(self) -> None:
        tasks = [each.task for each in self._followed.values()]
        for job_id in list(self._followed):
            self.leave(job_id)
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self, job_id: str, attempt: int, control: str, wait_s: float) -> None:
        await asyncio.sleep(wait_s)
        reported = False
        while True:
            unreadable: Exception | None = None
            # A process that has not opened its control point yet, or ended; the records tell them apart.
            with suppress(OSError, EOFError):
                async with _Connection(control, socket_name(job_id, attempt)) as connection:
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

    async def ask(self, job_id: str, attempt: int, control: str, request: Request, timeout_s: float) -> Answer:
        """Send a request to a JobManager. Raises Conflict if it does not run, Timeout, RefusedByJob."""
        try:
            async with asyncio.timeout(timeout_s), _Connection(control, socket_name(job_id, attempt)) as connected:
                connected.send(request)
                answer: Answer = decode_answer(await connected.receive())
        except TimeoutError:
            raise Timeout(
                f"The JobManager of job {job_id} did not answer within {timeout_s:g} s.",
                fix="Try again. If it persists, look at the log of the JobManager with `penstock logs JOB`.",
            ) from None
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


class _Connection:
    """A connection to a control point, as a context manager."""

    def __init__(self, directory: str, name: str) -> None:
        self._directory, self._name = directory, name

    async def __aenter__(self) -> _Connection:
        with opened(self._directory) as folder:
            path = address(folder, self._name + SUFFIX)
            self._reader, self._writer = await asyncio.open_unix_connection(path, limit=_LINE_BYTES)
        return self

    async def __aexit__(self, *error: object) -> None:
        self._writer.close()

    def send(self, request: Request) -> None:
        self._writer.write(encode(request) + b"\n")

    async def receive(self) -> bytes:
        """Return the next answer, encoded."""
        line = await self._reader.readline()
        if not line.endswith(b"\n"):
            raise EOFError("the connection was closed")
        return line
