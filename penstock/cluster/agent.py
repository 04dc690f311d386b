"""The part of a Dispatcher that serves the leader on another host: the agent of this host.

The leader reaches JobManagers here through it. An agent observes, passes requests on and kills; it decides nothing. A
request names a job and an attempt, never a process: the agent finds the process in the records.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from penstock.cluster.connection import LocalConnection
from penstock.cluster.directory import ClusterDirectory
from penstock.cluster.gateway import AttemptProcess, Conflict, LogFile
from penstock.cluster.processes import kill_tree, remaining, state_of
from penstock.cluster.records import Claim, JobView, Records, checked_id
from penstock.cluster.supervision import Process


class HostAgent:
    """Implements `Agent` for the host of this process."""

    def __init__(self, records: Records, directory: ClusterDirectory) -> None:
        self._records, self._directory = records, directory

    def _claim(self, job_id: str, attempt: int) -> Claim | None:
        """Return the claim of an attempt, if a process of this host made it."""
        claim = self._records.claimed(job_id, attempt)
        return claim if claim is not None and claim.host == socket.gethostname() else None

    def connection(self, job_id: str, attempt: int) -> LocalConnection:
        claim = self._claim(job_id, attempt)
        if claim is None:
            raise _elsewhere(job_id, attempt)
        return LocalConnection(claim.control, job_id, attempt)

    def processes(self, attempts: Sequence[tuple[str, int]]) -> list[AttemptProcess]:
        claims = {key: claim for key in attempts if (claim := self._claim(*key)) is not None}
        left = remaining(list(claims.values()))
        return [
            AttemptProcess(job=job_id, attempt=attempt, alive=state_of(claim) is Process.ALIVE, remains=remains)
            for ((job_id, attempt), claim), remains in zip(claims.items(), left, strict=True)
        ]

    def kill(self, job_id: str, attempt: int) -> bool:
        claim = self._claim(job_id, attempt)
        if claim is None:
            raise _elsewhere(job_id, attempt)
        view = self._records.view(job_id)
        # The leader decides before it kills. Only one that works with other records asks for anything else.
        if view.attempts[attempt - 1].ended is None and not view.cancel_requested:
            raise Conflict(
                f"Attempt {attempt} of job {job_id} has not ended, and the job is not cancelled.",
                fix="Cancel the job.",
            )
        return kill_tree(claim)

    def logs(self, job_id: str) -> list[LogFile]:
        folder = self._directory.jobs / checked_id(job_id)
        paths = sorted(folder.glob("*/jobmanager.*"), key=lambda path: (int(path.parent.name), path.name))
        return log_files({f"{path.parent.name}-{path.name}": path for path in paths})


def logs_of_all(own: Sequence[LogFile], others: Sequence[tuple[str, LogFile]], view: JobView | None) -> list[LogFile]:
    """Return the log files of a job on all hosts. If two hosts started an attempt, the one that claimed it counts."""
    claims = {each.number: each.claim.host for each in (view.attempts if view else []) if each.claim}
    found: dict[str, LogFile] = {}
    for host, log in [(socket.gethostname(), each) for each in own] + list(others):
        attempt = log.name.partition("-")[0]
        if log.name not in found or (attempt.isdecimal() and claims.get(int(attempt)) == host):
            found[log.name] = log
    return sorted(found.values(), key=lambda log: (int(log.name.partition("-")[0]), log.name))


def log_files(paths: Mapping[str, Path]) -> list[LogFile]:
    """Return the descriptions of files, by name. One that was rotated or removed in the meantime is left out."""
    files = []
    for name, path in paths.items():
        with suppress(FileNotFoundError):
            found = os.stat(path)
            files.append(LogFile(name=name, size=found.st_size, modified_ms=int(found.st_mtime * 1000), path=path))
    return files


def _elsewhere(job_id: str, attempt: int) -> Conflict:
    return Conflict(
        f"No process on host {socket.gethostname()} has claimed attempt {attempt} of job {job_id}.",
        fix="Ask the leader.",
    )
