"""The cluster as the REST interface sees it.

The Dispatcher implements `Gateway` for all jobs, and an application (`penstock run --web`) for its only one. Methods
without `async` answer from memory. The others wait for storage or a JobManager, with a deadline.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from penstock.cluster.connection import Connecting
from penstock.driver.control_messages import Answer, Operable, Request
from penstock.driver.job_snapshot import JobSnapshot
from penstock.driver.job_snapshot import Operation as Operation
from penstock.driver.operations import UnknownOperation as UnknownOperation
from penstock.errors import PenstockError


class Conflict(PenstockError):
    """The state of the job or of the service does not permit the request.

    Operator action: wait until the other operation has completed, or look up the state of the job.
    """


class NotLeading(PenstockError):
    """This Dispatcher does not lead, and does not reach the one that does.

    Operator action: try again. If it persists, look at the logs of all Dispatchers of the cluster.
    """


class Timeout(PenstockError):
    """A JobManager did not answer within `web.timeout`.

    Operator action: try again, or look at the JobManager's log with `penstock logs JOB`.
    """


class StoredProgram(msgspec.Struct, frozen=True, kw_only=True):
    """A program that was uploaded."""

    id: str
    """`<sha256>_<file name>`, a plain file name."""
    name: str
    uploaded_ms: int


class RunRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request to run a stored program as a job."""

    program: str
    """The id of the stored program."""
    entry: str = ""
    """The module or file that runs; empty: the only one, or `__main__`."""
    arguments: list[str] = []
    configuration: dict[str, str] = {}
    """Settings that override those of the program, as `penstock run -D` does."""
    savepoint: str = ""
    claim_mode: str = ""
    allow_non_restored_state: bool = False
    job_id: str = ""
    """The id of the new job; empty: the cluster chooses one."""


class LogFile(msgspec.Struct, frozen=True, kw_only=True):
    """A log file of a JobManager or of the Dispatcher."""

    name: str
    size: int
    modified_ms: int
    path: Path = Path()
    url: str = ""
    """Where the Dispatcher of another host serves the file; empty if it is on this host."""


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """A change that a client can follow."""

    number: int
    at_ms: int
    kind: str
    """`job-state`, `leader`, or `gap` where events are lost."""
    job: str = ""
    details: dict[str, str] = {}


class ClusterState(msgspec.Struct, frozen=True, kw_only=True):
    """The service itself."""

    leading: bool
    ready: bool
    """Whether it accepts submissions."""
    draining: bool = False
    problem: str = ""
    """Why it is not ready."""
    leader: str = ""
    """Host and port of the Dispatcher that leads; empty if it is not known."""
    application: bool = False
    """Whether the service is part of one program, in whose process its jobs run."""


class AttemptProcess(msgspec.Struct, frozen=True, kw_only=True):
    """The processes of an attempt, as their host sees them."""

    job: str
    attempt: int
    alive: bool
    """Whether the process that claimed the attempt is alive."""
    remains: bool
    """Whether any process of the attempt is alive, such as the JVM of a JobManager that died."""


class Agent(Protocol):
    """The part of a Dispatcher that serves the leader on another host. Methods block, except `connection`."""

    def connection(self, job_id: str, attempt: int) -> Connecting:
        """Return a connection to the JobManager of an attempt, not opened. Raises Conflict if it is not here."""
        ...

    def processes(self, attempts: Sequence[tuple[str, int]]) -> list[AttemptProcess]:
        """Return the state of attempts. Those of other hosts are left out."""
        ...

    def kill(self, job_id: str, attempt: int) -> bool:
        """Kill all processes of an attempt, and return whether none is left.

        Raises Conflict if the attempt is not here, or if it has not ended and its job is not cancelled.
        """
        ...

    def logs(self, job_id: str) -> list[LogFile]:
        """Return the log files of a job in the directory of this Dispatcher, by attempt."""
        ...


class Gateway(Protocol):
    """The cluster, or one application."""

    @property
    def settings(self) -> Mapping[str, str]:
        """The settings of the service."""
        ...

    @property
    def agent(self) -> Agent | None:
        """The part that serves Dispatchers on other hosts; None if this is an application."""
        ...

    def state(self) -> ClusterState: ...

    def leader(self) -> str | None:
        """Return the address of the Dispatcher to ask instead, or None. Raises NotLeading if it is not known."""
        ...

    # -- jobs --------------------------------------------------------------------------------------------------------

    def jobs(self) -> Sequence[JobSnapshot]:
        """Return the last known snapshots of all jobs, with those that ended and are still remembered."""
        ...

    def job(self, job_id: str) -> JobSnapshot:
        """Return the last known snapshot of a job. Raises UnknownJob."""
        ...

    async def ask(self, job_id: str, request: Request) -> Answer:
        """Send a request to the JobManager. Raises UnknownJob, Conflict (it does not run), Timeout, RefusedByJob."""
        ...

    async def cancel(self, job_id: str) -> None:
        """Record that the job is to be cancelled. The job cancels even if its JobManager is dead."""
        ...

    async def trigger(self, job_id: str, request: Operable, trigger_id: str = "") -> str:
        """Start a long operation (savepoint, stop, checkpoint, rescale) and return its trigger id.

        Repeating a trigger id starts nothing new. Raises UnknownJob, Conflict.
        """
        ...

    async def operation(self, job_id: str, trigger_id: str) -> Operation:
        """Return the state of an operation, which the JobManager keeps. Raises UnknownJob, UnknownOperation."""
        ...

    async def dispose_savepoint(self, path: str, trigger_id: str = "") -> str:
        """Begin to delete a savepoint and return the trigger id. Poll it with an empty job id."""
        ...

    # -- programs ----------------------------------------------------------------------------------------------------

    async def programs(self) -> Sequence[StoredProgram]: ...

    async def upload(self, name: str, file: Path) -> StoredProgram:
        """Store an uploaded file, which is moved or copied. Raises BadProgram if it is not a program."""
        ...

    async def remove_program(self, program_id: str) -> None:
        """Remove a stored program. Raises UnknownProgram. Jobs that run it are not affected."""
        ...

    async def run(self, request: RunRequest) -> str:
        """Submit a job and return its id. The job is durable once this returns. Raises UnknownProgram, Conflict."""
        ...

    async def plan(self, request: RunRequest) -> str:
        """Build the program's job in another process, without running it, and return its plan as JSON.

        The format is that of Flink's plan visualizer, with the fields `batch` and `parallelism` (null if not set).
        """
        ...

    async def dry_run(self, request: RunRequest) -> str:
        """Compare the program's job with the request's savepoint in another process, without running the job.

        Return the JSON that `penstock run --dry-run --json` prints. Raises UnknownProgram, BadProgram.
        """
        ...

    # -- the service -------------------------------------------------------------------------------------------------

    async def logs(self, job_id: str) -> Sequence[LogFile]:
        """Return the log files of a job by attempt, or those of the service if `job_id` is empty."""
        ...

    def events(self, after: int = -1) -> AsyncIterator[Event]:
        """Yield the events after this number, as they happen; an event `gap` stands for those that are not kept."""
        ...

    async def drain(self) -> None:
        """Accept no more jobs, and let another Dispatcher lead, if there are several. Running jobs are not affected."""
        ...

    async def shut_down(self) -> None:
        """Stop the service. Jobs of a cluster keep running until they are cancelled or stopped."""
        ...


class UnknownProgram(PenstockError):
    """No stored program has this id.

    Operator action: upload it again, or look up its id with `GET /jars`.
    """
