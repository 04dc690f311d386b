"""The durable records of a cluster's jobs. Each is published once and never changes.

    programs/<sha256>                  an uploaded program, verified by its hash before use
    jobs/<id>/job                      the submission: program, arguments, configuration
    jobs/<id>/lineage                  the checkpoints of the job, published by its first attempt
    jobs/<id>/cancel                   the job is to be cancelled
    jobs/<id>/attempts/<n>/planned     a leader plans attempt n
    jobs/<id>/attempts/<n>/claimed     a process runs attempt n; a process that loses this record exits
    jobs/<id>/attempts/<n>/ended       how attempt n ended: a verdict of its process, or "lost" by a supervisor

`ended` decides. A process publishes it before it removes anything, and a supervisor publishes "lost" before it plans
the next attempt. Only one of the two succeeds, so a job has at most one verdict. Two leaders can work on the same
records: every step is a put-if-absent, and the loser reads the decision of the winner.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from contextlib import suppress
from enum import Enum
from typing import TypeVar

import msgspec

from penstock.checkpoint.lineages import SharedStorage
from penstock.errors import PenstockError
from penstock.state.storage import AlreadyPublished

_ID = re.compile(r"[0-9a-f]{32}")
_ATTEMPT = re.compile(r"attempts/(\d{6})/(planned|claimed|ended)")
_PROGRAM = re.compile(r"[0-9a-f]{64}")


class BadRecord(PenstockError):
    """A record of the cluster is damaged, or was written by a newer version.

    Operator action: restore the file that the message names from a backup, or run the version that wrote it.
    """

    retryable = False


class UnknownJob(PenstockError):
    """The cluster has no job with this id. Operator action: use an id that `penstock list` shows."""


class Verdict(Enum):
    """How an attempt ended."""

    FINISHED = "finished"
    FAILED = "failed"
    CANCELED = "canceled"
    STOPPED = "stopped"
    """Ended with a savepoint, on request."""
    LOST = "lost"
    """The process died, or could not reach what it needs. The job continues with another attempt."""


class Submission(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A submitted job."""

    id: str
    name: str
    program: str
    """The hash of the program, or empty if it was started by hand."""
    entry: str
    """The file or module of the program that runs."""
    arguments: list[str] = []
    configuration: dict[str, str] = {}
    savepoint: str = ""
    claim_mode: str = ""
    allow_non_restored_state: bool = False
    submitted_ms: int
    python: str
    penstock: str


class Planned(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A leader decided to start an attempt."""

    leader: str
    at_ms: int
    finalize: bool = False
    """Whether the attempt only commits the output of the last checkpoint, because the job is cancelled."""


class Claim(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A process runs an attempt. Process ids are reused, so the start time identifies the process."""

    token: str
    host: str
    boot: str
    pid: int
    started: int
    """Start time of the process, in clock ticks since the boot."""
    at_ms: int


class Ended(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How an attempt ended."""

    verdict: Verdict
    by: str
    """The token of the claim, or the leader that declared the attempt lost."""
    at_ms: int
    reason: str = ""
    savepoint: str = ""


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """The records of one attempt, as far as they exist."""

    number: int
    planned: Planned | None = None
    claim: Claim | None = None
    ended: Ended | None = None


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """The records of one job at one moment."""

    submission: Submission
    lineage: str | None
    cancel_requested: bool
    attempts: list[Attempt]
    """In order of their numbers, without gaps."""

    @property
    def last(self) -> Attempt | None:
        """The newest attempt."""
        return self.attempts[-1] if self.attempts else None

    @property
    def verdict(self) -> Ended | None:
        """The end of the job, once an attempt ended otherwise than lost."""
        return next(
            (each.ended for each in self.attempts if each.ended and each.ended.verdict is not Verdict.LOST), None
        )


R = TypeVar("R", bound=msgspec.Struct)


class Records:
    """The records in one storage. Safe to use from several threads and processes."""

    def __init__(self, storage: SharedStorage) -> None:
        self._storage = storage

    # -- programs ------------------------------------------------------------------------------------------------------

    def store_program(self, content: bytes) -> str:
        """Store an uploaded program and return its hash."""
        name = hashlib.sha256(content).hexdigest()
        self._storage.write(f"programs/{name}", content)
        return name

    def read_program(self, name: str) -> bytes:
        """Return a program. Raise BadRecord if its content does not have the hash in its name."""
        if not _PROGRAM.fullmatch(name):
            raise BadRecord(f"'{name}' is not the hash of a program.")
        content = self._storage.read(f"programs/{name}")
        if hashlib.sha256(content).hexdigest() != name:
            raise BadRecord(
                f"The program programs/{name} in {self._storage.where} is damaged: its content has another hash.",
                fix="Upload the program again, or restore the file from a backup.",
            )
        return content

    # -- jobs ----------------------------------------------------------------------------------------------------------

    def submit(self, submission: Submission) -> None:
        """Record a job. It exists once this returns. Raise AlreadyPublished if the id is taken."""
        self._publish(f"jobs/{checked_id(submission.id)}/job", submission)

    def job_ids(self) -> list[str]:
        """Return the ids of all recorded jobs."""
        folders = {name.split("/")[1] for name in self._storage.list("jobs/") if name.endswith("/job")}
        return sorted(folder for folder in folders if _ID.fullmatch(folder))

    def view(self, job_id: str) -> JobView:
        """Return the records of a job. Raise UnknownJob if it was never submitted."""
        prefix = f"jobs/{checked_id(job_id)}/"
        names = {name.removeprefix(prefix) for name in self._storage.list(prefix)}
        if "job" not in names:
            raise _unknown(job_id)
        numbers = sorted({int(match[1]) for name in names if (match := _ATTEMPT.fullmatch(name))})
        if numbers != list(range(1, len(numbers) + 1)):
            raise BadRecord(
                f"Job {job_id} in {self._storage.where} lacks the records of an attempt: it has {numbers}.",
                fix="Restore the missing files from a backup.",
            )
        return JobView(
            submission=self._read(f"{prefix}job", Submission),
            lineage=self._storage.read(f"{prefix}lineage").decode() if "lineage" in names else None,
            cancel_requested="cancel" in names,
            attempts=[self._attempt(prefix, number, names) for number in numbers],
        )

    def _attempt(self, prefix: str, number: int, names: set[str]) -> Attempt:
        folder = attempt_folder(number)

        def read(kind: str, form: type[R]) -> R | None:
            return self._read(f"{prefix}{folder}/{kind}", form) if f"{folder}/{kind}" in names else None

        return Attempt(
            number=number, planned=read("planned", Planned), claim=read("claimed", Claim), ended=read("ended", Ended)
        )

    def request_cancel(self, job_id: str) -> None:
        """Record that a job is to be cancelled. Can be called repeatedly."""
        if not self._storage.exists(f"jobs/{checked_id(job_id)}/job"):
            raise _unknown(job_id)
        with suppress(AlreadyPublished):
            self._storage.publish(f"jobs/{job_id}/cancel", secrets.token_bytes(8))

    def bind_lineage(self, job_id: str, lineage: str) -> str:
        """Bind a job to its lineage, unless an earlier attempt has, and return the one it is bound to."""
        name = f"jobs/{checked_id(job_id)}/lineage"
        try:
            self._storage.publish(name, lineage.encode())
        except AlreadyPublished:
            return self._storage.read(name).decode()
        return lineage

    # -- attempts ------------------------------------------------------------------------------------------------------

    def plan(self, job_id: str, number: int, planned: Planned) -> bool:
        """Plan an attempt. Return False if another leader has planned it."""
        return self._won(f"jobs/{checked_id(job_id)}/{attempt_folder(number)}/planned", planned)

    def claim(self, job_id: str, number: int, claim: Claim) -> bool:
        """Claim an attempt for this process. Return False if another process runs it or it has ended: then exit."""
        folder = f"jobs/{checked_id(job_id)}/{attempt_folder(number)}"
        # After the claim: a supervisor that declares the attempt lost later sees the claim and kills the process.
        return self._won(f"{folder}/claimed", claim) and not self._storage.exists(f"{folder}/ended")

    def end(self, job_id: str, number: int, ended: Ended) -> Ended:
        """Decide how an attempt ended, and return the decision, which can be an earlier one."""
        name = f"jobs/{checked_id(job_id)}/{attempt_folder(number)}/ended"
        if self._won(name, ended):
            return ended
        return self._read(name, Ended)

    def remove(self, job_id: str) -> None:
        """Remove all records of a job that has ended."""
        if self.view(job_id).verdict is None:
            raise BadRecord(f"Job {job_id} has not ended; its records are needed.", fix="Cancel the job first.")
        self._storage.delete_below(f"jobs/{job_id}")

    # -- files ---------------------------------------------------------------------------------------------------------

    def _won(self, name: str, record: msgspec.Struct) -> bool:
        try:
            self._publish(name, record)
        except AlreadyPublished:
            return False
        return True

    def _publish(self, name: str, record: msgspec.Struct) -> None:
        self._storage.publish(name, msgspec.json.encode(record))

    def _read(self, name: str, form: type[R]) -> R:
        try:
            return msgspec.json.decode(self._storage.read(name), type=form)
        except msgspec.MsgspecError as error:
            raise BadRecord(
                f"The record {name} in {self._storage.where} cannot be read: {error}.",
                fix="Restore the file from a backup, or run the version of Penstock that wrote it.",
            ) from None


def _unknown(job_id: str) -> UnknownJob:
    return UnknownJob(f"The cluster has no job {job_id}.", fix="`penstock list` shows the jobs.")


def attempt_folder(number: int) -> str:
    """Return the folder of an attempt below its job."""
    return f"attempts/{number:06}"


def new_job_id() -> str:
    """Return a new job id: 32 hex digits."""
    return secrets.token_hex(16)


def checked_id(job_id: str) -> str:
    """Return the id if it is one; ids become paths. Raise UnknownJob otherwise."""
    if not _ID.fullmatch(job_id):
        raise UnknownJob(f"'{job_id}' is not a job id.", fix="A job id has 32 hex digits; `penstock list` shows them.")
    return job_id
