"""A job as commands see it, whether it runs by hand or in a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from penstock.control.client import JobNotFound
from penstock.driver.control_messages import Done, Request
from penstock.errors import PenstockError


class NoLog(PenstockError):
    """The job has no log file of this kind. Operator action: follow the message."""


class JobLog(Protocol):
    """One log file of a job."""

    def tail(self, most_bytes: int) -> bytes:
        """Return the end of the file."""
        ...

    def follow(self, most_bytes: int) -> Iterator[bytes]:
        """Yield the end of the file, and then all additions and the logs of further attempts, until the job ends."""
        ...


@dataclass(frozen=True, kw_only=True)
class ListedJob:
    """A job of this host or of a cluster."""

    id: str
    name: str = ""
    status: str
    started_ms: int | None = None
    """None if the job does not answer."""
    ended: bool = False
    epochs: int = 0
    parallelism: Mapping[str, int] = field(default_factory=dict)
    restarts: int = 0
    reason: str = ""
    """Why it waits or restarts."""
    checkpoints: str = ""
    """Location of its checkpoints; empty if they are in the memory of its driver."""
    settings: Callable[[], Mapping[str, str]] = dict
    """Return the settings of the job that are known, with secrets masked."""
    details: Mapping[str, Any]
    """Everything known, for --json."""
    perform: Callable[[Request], Done]
    """Send a request and wait until it is done. Raises PenstockError."""
    log: Callable[[bool, int | None, bool], JobLog]
    """Return the log file, or the standard output, of an attempt; None: of the last one, and when followed of later
    ones. With True, a job that has not started is waited for. Raises NoLog."""

    def __str__(self) -> str:
        return f"{self.id} ('{self.name}')" if self.name else f"{self.id} ({self.status})"

    def row(self) -> tuple[str, ...]:
        """Return the cells of the job's line in `penstock list`."""
        if self.started_ms is None:
            return (self.id, "", self.status, "", "", "", "")
        since = datetime.fromtimestamp(self.started_ms / 1000).strftime("%Y-%m-%d %H:%M:%S")
        numbers = sorted(set(self.parallelism.values()))
        parallelism = " to ".join(str(number) for number in dict.fromkeys(numbers[:1] + numbers[-1:]))
        return (self.id, self.name, self.status, since, str(self.epochs), parallelism, str(self.restarts))


def match(jobs: Sequence[ListedJob], given: str) -> list[ListedJob]:
    """Return the jobs with this id, id prefix or name. A complete id wins over all others."""
    return [job for job in jobs if job.id == given] or [
        job for job in jobs if given and (job.id.startswith(given) or job.name == given)
    ]


def ambiguous(given: str, found: Sequence[ListedJob]) -> JobNotFound:
    """Return the error for several jobs that match."""
    shown = ", ".join(map(str, found))
    return JobNotFound(f"'{given}' matches several jobs: {shown}.", fix="Pass a longer part of the ID.")
