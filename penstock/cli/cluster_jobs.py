"""Jobs of a cluster: commands reach them through REST."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec
import typer

from penstock.cli.listed_job import ListedJob, NoLog
from penstock.control.client import RefusedByJob
from penstock.driver.control_messages import (
    Cancel,
    Done,
    MakeSavepoint,
    Refused,
    Request,
    Rescale,
    Stop,
    TakeCheckpoint,
)
from penstock.rest import contract
from penstock.rest.client import NotNow, RefusedByService, RestClient, ServiceUnreachable
from penstock.rest.command_types import ClusterDescription, JobLine, RescaleRequest

_POLL_S = 0.2
_LONGEST_POLL_S = 2.0
_AWAY_S = 120.0
"""How long a command waits for a service that is away, such as one that restarts or hands over to another."""
_STARTING = ("CREATED", "INITIALIZING")
_LOG = re.compile(r"(\d+)-jobmanager\.(log|out)")

T = TypeVar("T")


class ClusterJobs:
    """The jobs of one service."""

    def __init__(self, client: RestClient) -> None:
        self.client = client

    @property
    def where(self) -> str:
        return f"{self.client.host}:{self.client.port}"

    def jobs(self) -> list[ListedJob]:
        """Return all jobs that the service knows, oldest first, with those that ended."""
        lines = self.client.get("/penstock/v1/jobs", list[JobLine])
        return [self._listed(line) for line in sorted(lines, key=lambda line: (line.started, line.id))]

    def _listed(self, line: JobLine) -> ListedJob:
        return ListedJob(
            id=line.id,
            name=line.name,
            status=line.status,
            started_ms=line.started,
            ended=line.ended >= 0,
            epochs=line.epochs,
            parallelism=line.parallelism,
            restarts=line.restarts,
            reason=line.reason,
            checkpoints=line.checkpoints,
            settings=lambda: self._settings(line.id),
            details={**msgspec.to_builtins(line), "cluster": self.where},
            perform=lambda request: self._perform(line.id, request),
            log=lambda stdout, attempt, awaits: self._log(line.id, stdout, attempt, awaits),
        )

    def _settings(self, job: str) -> dict[str, str]:
        entries = self.client.get(f"/jobs/{job}/jobmanager/config", list[contract.ConfigurationInfoEntry])
        return {entry.key: entry.value for entry in entries}

    # -- requests ------------------------------------------------------------------------------------------------------

    def _perform(self, job: str, request: Request) -> Done:
        """Trigger an operation and poll it until it is done. Raises RefusedByJob with the job's text."""
        # Chosen here: a request that is sent again with the same id starts nothing.
        trigger = secrets.token_hex(16)
        match request:
            case MakeSavepoint(directory=directory) | Cancel(savepoint=True, directory=directory):
                body = contract.SavepointTriggerRequestBody(
                    target_directory=directory, cancel_job=isinstance(request, Cancel), trigger_id=trigger
                )
                return self._operation(job, "savepoints", body)
            case Stop(directory=directory, drain=drain):
                stop = contract.StopWithSavepointRequestBody(
                    target_directory=directory, drain=drain, trigger_id=trigger
                )
                return self._operation(job, "stop", stop, polled="savepoints")
            case TakeCheckpoint():
                return self._operation(job, "checkpoints", contract.CheckpointTriggerRequestBody(trigger_id=trigger))
            case Rescale(parallelism=parallelism):
                body_of_rescale = RescaleRequest(parallelism=parallelism)
                path = f"/penstock/v1/jobs/{job}/rescaling"
                started = self.client.post(path, contract.TriggerResponse, body_of_rescale)
                return self._polled(f"/jobs/{job}/rescaling/{started.request_id}")
            case Cancel():
                self.client.patch(f"/jobs/{job}", dict[str, Any], mode="cancel")
                self.wait(job)
                return Done()
        raise AssertionError(request)

    def _operation(self, job: str, path: str, body: Any, polled: str = "") -> Done:
        started = self.client.post(f"/jobs/{job}/{path}", contract.TriggerResponse, body)
        return self._polled(f"/jobs/{job}/{polled or path}/{started.request_id}")

    def _polled(self, path: str) -> Done:
        result = patiently(
            lambda: self.client.get(path, contract.AsynchronousOperationResult),
            lambda answer: answer.status.id == "COMPLETED",
        )
        found = result.operation if isinstance(result.operation, dict) else {}
        if cause := found.get("failure-cause"):
            kind, text = str(cause.get("class", "")), str(cause.get("stack-trace", ""))
            raise RefusedByJob(Refused(kind=kind, problem=text.removeprefix(f"{kind}: ")))
        return Done(savepoint=found.get("location"), checkpoint=found.get("checkpointId"))

    def wait(self, job: str, changed: Callable[[JobLine], None] = lambda line: None, until: str = "") -> JobLine:
        """Wait until a job ends, or has the status `until`, and return its state. Call `changed` with each state."""

        def look() -> JobLine:
            line = self._line(job)
            changed(line)
            return line

        return patiently(look, lambda line: line.ended >= 0 or line.status == until)

    def _line(self, job: str) -> JobLine:
        for line in self.client.get("/penstock/v1/jobs", list[JobLine]):
            if line.id == job:
                return line
        # The service has just started, and still reads its records.
        raise NotNow(HTTPStatus.SERVICE_UNAVAILABLE, f"The service at {self.where} does not know job {job}.")

    # -- logs ----------------------------------------------------------------------------------------------------------

    def _log(self, job: str, stdout: bool, attempt: int | None, awaits: bool) -> _LogFile:
        found = self._logs(job, stdout)
        if not found:
            self._check_keeps_logs(job, stdout)
        if awaits and not found:
            found = patiently(
                lambda: self._logs(job, stdout), lambda logs: bool(logs) or self._line(job).status not in _STARTING
            )
        if not found:
            raise NoLog(
                f"The service at {self.where} has no log file of job {job}.",
                fix="Wait until the job starts, or look on the host that ran it.",
            )
        if attempt is not None and attempt not in found:
            raise NoLog(
                f"Job {job} has no log file of attempt {attempt}.",
                fix=f"Pass one of the attempts {', '.join(map(str, sorted(found)))}.",
            )
        chosen = max(found) if attempt is None else attempt
        following = (lambda: None) if attempt is not None else (lambda: self._next_log(job, stdout, chosen))
        return _LogFile(self.client, found[chosen], following)

    def _check_keeps_logs(self, job: str, stdout: bool) -> None:
        """Raise NoLog if the service is a program that serves its own job."""
        service = self.client.get("/penstock/v1/cluster", ClusterDescription)
        if service.application:
            printed = "standard output" if stdout else "log, on standard error,"
            raise NoLog(
                f"Job {job} runs inside the program that serves {self.where} (process {service.pid}), which keeps no "
                f"log files: its {printed} goes to where you started it.",
                fix="Look at the terminal of `penstock run --web`, or redirect its output to a file. A job that you "
                "start with `penstock run -d` has log files.",
            )

    def _next_log(self, job: str, stdout: bool, attempt: int) -> _LogFile | None:
        """Return the log of the next attempt, once it exists. None if this attempt is the last one, or still runs."""
        try:
            line = self._line(job)
        except ServiceUnreachable:
            return None
        if line.attempt <= attempt:
            return None
        logs = patiently(
            lambda: self._logs(job, stdout), lambda logs: max(logs, default=0) > attempt or self._line(job).ended >= 0
        )
        later = min((each for each in logs if each > attempt), default=None)
        if later is None:
            return None
        typer.echo(f"Attempt {attempt} has ended. This is the log of attempt {later}:", err=True)
        return _LogFile(self.client, logs[later], lambda: self._next_log(job, stdout, later))

    def _logs(self, job: str, stdout: bool) -> dict[int, str]:
        """Return the paths of the job's logs by attempt."""
        at = f"/penstock/v1/jobs/{job}/logs"
        kind = "out" if stdout else "log"
        names = [each.name for each in self.client.get(at, contract.LogListInfo).logs]
        matches = [match for name in names if (match := _LOG.fullmatch(name)) is not None and match[2] == kind]
        return {int(match[1]): f"{at}/{quote(match[0])}" for match in matches}


class _LogFile:
    def __init__(self, client: RestClient, path: str, following: Callable[[], _LogFile | None]) -> None:
        self._client, self._path, self._following = client, path, following

    def tail(self, most_bytes: int) -> bytes:
        try:
            return b"".join(self._client.text(self._path, last_bytes=most_bytes))
        except RefusedByService as error:
            if error.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                # The file is empty.
                return b""
            raise

    def follow(self, most_bytes: int | None) -> Iterator[bytes]:
        yield from self._client.follow(self._path, last_bytes=most_bytes)
        following = self._following()
        if following is not None:
            yield from following.follow(None)


def patiently(look: Callable[[], T], is_done: Callable[[T], bool]) -> T:
    """Look until it is done, and return the last answer. A service that is away is waited for, for a while."""
    pause, away_since = _POLL_S, None
    while True:
        try:
            answer = look()
            away_since = None
            if is_done(answer):
                return answer
        except (ServiceUnreachable, NotNow) as error:
            if isinstance(error, NotNow) and error.status != HTTPStatus.SERVICE_UNAVAILABLE:
                raise
            away_since = away_since or time.monotonic()
            if time.monotonic() - away_since > _AWAY_S:
                raise
        time.sleep(pause)
        pause = min(pause * 1.2, _LONGEST_POLL_S)
