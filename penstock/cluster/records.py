"""The durable records of a cluster's jobs. Each is published once and never changes.

    programs/<sha256>                  an uploaded program, verified by its hash before use
    uploads/<sha256>_<name>            a program that clients can run by this id
    jobs/<id>/job                      the submission: program, and encrypted arguments and configuration
    jobs/<id>/lineage                  the checkpoints of the job, published by its first attempt
    jobs/<id>/cancel                   the job is to be cancelled
    jobs/<id>/removed                  all records of the job are being removed, and the job does not exist any more
    jobs/<id>/failures/<k>             a failure after which the job restarted or ended; the last 100
    jobs/<id>/attempts/<n>/planned     a leader plans attempt n
    jobs/<id>/attempts/<n>/claimed     a process runs attempt n; a process that loses this record exits
    jobs/<id>/attempts/<n>/ended       how attempt n ended: a verdict of its process, or "lost" by a supervisor
    history/<id>                       the last snapshot of a job that has ended

`ended` decides. A process publishes it before it removes anything, and a supervisor publishes "lost" before it plans
the next attempt. Only one of the two succeeds, so a job has at most one verdict. Two leaders can work on the same
records: every step is a put-if-absent, and the loser reads the decision of the winner.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from contextlib import suppress
from typing import TypeVar

import msgspec

from penstock.checkpoint.lineages import SharedStorage
from penstock.cluster.gateway import Conflict
from penstock.cluster.record_files import BadRecord as BadRecord
from penstock.cluster.record_files import RecordFiles
from penstock.cluster.sealing import CannotOpen, Seal
from penstock.driver.assignment import RecordedFailure, Verdict
from penstock.errors import PenstockError
from penstock.state.storage import AlreadyPublished, MissingObject

_ID = re.compile(r"[0-9a-f]{32}")
_ATTEMPT = re.compile(r"attempts/(\d{6})/(planned|claimed|ended)")
_FAILURE = re.compile(r"/failures/(\d{6,})$")
_MOST_FAILURES = 100
_TIME = re.compile(rb"\d{1,18}")
_PROGRAM = re.compile(r"[0-9a-f]{64}")


class UnknownJob(PenstockError):
    """The cluster has no job with this id. Operator action: use an id that `penstock list` shows."""


class Submission(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A submitted job."""

    id: str
    name: str
    program: str
    """The hash of the program."""
    file: str
    """The name under which the program was uploaded."""
    entry: str = ""
    """The file or module of the program that runs; empty: the one that the program names."""
    arguments: list[str] = []
    configuration: dict[str, str] = {}
    savepoint: str = ""
    claim_mode: str = ""
    allow_non_restored_state: bool = False
    sealed: str = ""
    """In the storage: the encrypted arguments, settings and savepoint path, whose own fields are then empty."""
    submitted_ms: int
    python: str
    penstock: str


class _Private(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a submission that can hold secrets."""

    arguments: list[str]
    configuration: dict[str, str]
    savepoint: str


class Planned(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A leader decided to start an attempt."""

    leader: str
    at_ms: int
    finalize: bool = False
    """Whether the attempt only commits the output of the last checkpoint, because the job is cancelled."""
    starts: bool = True
    """Whether a process runs the attempt. Otherwise the leader takes its number to decide the end of the job."""


class Claim(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A process runs an attempt. Process ids are reused, so the start time identifies the process."""

    token: str
    host: str
    boot: str
    pid: int
    started: int
    """Start time of the process, in clock ticks since the boot."""
    at_ms: int
    control: str = ""
    """Directory of the process's control point, on its host. Each Dispatcher of a host can have its own directory."""


class Ended(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How an attempt ended."""

    verdict: Verdict
    by: str
    """The token of the claim, or the leader that declared the attempt lost."""
    at_ms: int
    reason: str = ""
    savepoint: str = ""
    removes_checkpoints: bool = False
    """Whether the checkpoints of the job are not needed any more."""


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
    """Where the job keeps its checkpoints; empty if it keeps none that outlive its process, None before it started."""
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
        self._key: Seal | None = None
        self._opened: dict[str, Submission] = {}
        """Submissions by job id, with the parts that are encrypted in the storage."""
        self._files = RecordFiles(storage)

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

    def programs(self) -> set[str]:
        """Return the hashes of all stored programs."""
        return {name.removeprefix("programs/") for name in self._storage.list("programs/")}

    def remove_program(self, name: str) -> None:
        """Remove a program that no job and no upload names."""
        self._storage.delete(f"programs/{name}")

    def store_upload(self, name: str, program: str, uploaded_ms: int) -> None:
        """List a stored program under the plain file name that its user gave it."""
        self._storage.write(f"uploads/{program}_{name}", str(uploaded_ms).encode())

    def uploads(self) -> dict[str, int]:
        """Return the listed programs, as `<sha256>_<name>`, with the times of their uploads."""
        names = [name.removeprefix("uploads/") for name in self._storage.list("uploads/")]
        found = {}
        for name in names:
            with suppress(MissingObject):  # another process removes it
                time = self._storage.read(f"uploads/{name}")
                # A damaged time makes no program unusable.
                found[name] = int(time) if _TIME.fullmatch(time) else 0
        return found

    def remove_upload(self, upload: str) -> None:
        """Remove a program from the list. Jobs keep it."""
        self._storage.delete(f"uploads/{upload}")

    # -- jobs ----------------------------------------------------------------------------------------------------------

    def submit(self, submission: Submission) -> None:
        """Record a job. It exists once this returns. Raise AlreadyPublished if the id is taken."""
        folder = f"jobs/{checked_id(submission.id)}"
        names = set(self._storage.list(f"{folder}/"))
        if names and (f"{folder}/job" not in names or f"{folder}/removed" in names):
            raise _being_removed(submission.id)
        private = _Private(
            arguments=submission.arguments, configuration=submission.configuration, savepoint=submission.savepoint
        )
        sealed = self._seal().close(msgspec.json.encode(private))
        public = msgspec.structs.replace(submission, arguments=[], configuration={}, savepoint="", sealed=sealed)
        self._files.publish(f"{folder}/job", public)
        # An earlier job can have had this id, and another process has removed it.
        self._forget(submission.id)
        if self._storage.exists(f"{folder}/removed"):
            raise _being_removed(submission.id)

    def _submission(self, job_id: str) -> Submission:
        known = self._opened.get(job_id)
        if known is not None:
            return known
        public = self._files.read(f"jobs/{job_id}/job", Submission)
        try:
            private = msgspec.json.decode(self._seal().open(public.sealed), type=_Private)
        except CannotOpen as error:
            raise BadRecord(f"The submission of job {job_id} cannot be read: {error.problem}", fix=error.fix) from None
        except ValueError as error:
            raise BadRecord(
                f"The submission of job {job_id} cannot be read: {error}.",
                fix=f"Restore the record jobs/{job_id}/job from a backup.",
            ) from None
        if public.id != job_id:
            raise BadRecord(
                f"The record jobs/{job_id}/job in {self._storage.where} is that of job {public.id}.",
                fix="Restore the file from a backup.",
            )
        submission = msgspec.structs.replace(public, sealed="", **msgspec.structs.asdict(private))
        self._opened[job_id] = submission
        return submission

    def _seal(self) -> Seal:
        if self._key is None:
            self._key = Seal(self._storage)
        return self._key

    def job_ids(self) -> list[str]:
        """Return the ids of all recorded jobs."""
        names = self._storage.list("jobs/")
        return sorted(_jobs_with("job", names) - _jobs_with("removed", names))

    def view(self, job_id: str) -> JobView:
        """Return the records of a job. Raise UnknownJob if it was never submitted."""
        prefix = f"jobs/{checked_id(job_id)}/"
        names = {name.removeprefix(prefix) for name in self._storage.list(prefix)}
        if "job" not in names or "removed" in names:
            self._forget(job_id)
            raise _unknown(job_id)
        numbers = sorted({int(match[1]) for name in names if (match := _ATTEMPT.fullmatch(name))})
        if numbers != list(range(1, len(numbers) + 1)):
            raise BadRecord(
                f"Job {job_id} in {self._storage.where} lacks the records of an attempt: it has {numbers}.",
                fix="Restore the missing files from a backup.",
            )
        return JobView(
            submission=self._submission(job_id),
            lineage=self._files.text(f"{prefix}lineage") if "lineage" in names else None,
            cancel_requested="cancel" in names,
            attempts=[self._attempt(prefix, number, names) for number in numbers],
        )

    def _attempt(self, prefix: str, number: int, names: set[str]) -> Attempt:
        folder = attempt_folder(number)

        def read(kind: str, form: type[R]) -> R | None:
            return self._files.read(f"{prefix}{folder}/{kind}", form) if f"{folder}/{kind}" in names else None

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
            return self._files.text(name)
        return lineage

    # -- failures ------------------------------------------------------------------------------------------------------

    def add_failure(self, job_id: str, failure: RecordedFailure) -> RecordedFailure:
        """Record a failure of a job under the next number, and return it with that number."""
        numbers = self._failure_numbers(job_id)
        number = numbers[-1] + 1 if numbers else 1
        while not self._files.won(_failure(job_id, number), failure := msgspec.structs.replace(failure, number=number)):
            number += 1
        for old in numbers:
            if old <= number - _MOST_FAILURES:
                self._storage.delete(_failure(job_id, old))
        return failure

    def failures(self, job_id: str) -> list[RecordedFailure]:
        """Return the recent failures of a job, oldest first."""
        found = []
        for number in self._failure_numbers(job_id):
            # Another process records a failure and removes this one, or it is damaged: one that is lost is not counted.
            with suppress(MissingObject, BadRecord):
                found.append(self._files.read(_failure(job_id, number), RecordedFailure))
        return found

    def _failure_numbers(self, job_id: str) -> list[int]:
        names = self._storage.list(f"jobs/{checked_id(job_id)}/failures/")
        return sorted(int(match[1]) for name in names if (match := _FAILURE.search(name)))

    # -- history -------------------------------------------------------------------------------------------------------

    def store_history(self, job_id: str, snapshot: bytes) -> None:
        """Store the last snapshot of a job that has ended."""
        self._storage.write(f"history/{checked_id(job_id)}", snapshot)

    def history(self, job_id: str) -> bytes | None:
        """Return the last snapshot of a job that has ended, if its process stored one."""
        try:
            return self._storage.read(f"history/{checked_id(job_id)}")
        except MissingObject:
            return None

    # -- attempts ------------------------------------------------------------------------------------------------------

    def plan(self, job_id: str, number: int, planned: Planned) -> bool:
        """Plan an attempt. Return False if another leader has planned it."""
        return self._files.won(f"jobs/{checked_id(job_id)}/{attempt_folder(number)}/planned", planned)

    def claim(self, job_id: str, number: int, claim: Claim) -> bool:
        """Claim an attempt for this process. Return False if another process runs it or it has ended: then exit."""
        folder = f"jobs/{checked_id(job_id)}/{attempt_folder(number)}"
        # After the claim: a supervisor that declares the attempt lost later sees the claim and kills the process.
        return self._files.won(f"{folder}/claimed", claim) and not self._storage.exists(f"{folder}/ended")

    def claimed(self, job_id: str, number: int) -> Claim | None:
        """Return the claim of an attempt, if a process has claimed it."""
        try:
            return self._files.read(f"jobs/{checked_id(job_id)}/{attempt_folder(number)}/claimed", Claim)
        except MissingObject:
            return None

    def end(self, job_id: str, number: int, ended: Ended) -> Ended:
        """Decide how an attempt ended, and return the decision, which can be an earlier one."""
        name = f"jobs/{checked_id(job_id)}/{attempt_folder(number)}/ended"
        if self._files.won(name, ended):
            return ended
        return self._files.read(name, Ended)

    def remove(self, job_id: str) -> None:
        """Remove all records of a job that has ended."""
        if self.view(job_id).verdict is None:
            raise BadRecord(f"Job {job_id} has not ended; its records are needed.", fix="Cancel the job first.")
        # Durable before anything is removed: without its end or its attempts, the job would run again from the start.
        self._storage.write(f"jobs/{job_id}/removed", b"")
        self._remove(job_id)

    def finish_removals(self) -> None:
        """Remove the records of jobs whose removal was interrupted."""
        for job_id in _jobs_with("removed", self._storage.list("jobs/")):
            self._remove(job_id)

    def _remove(self, job_id: str) -> None:
        self._forget(job_id)
        mark = f"jobs/{job_id}/removed"
        names = [name for name in self._storage.list(f"jobs/{job_id}/") if name != mark]
        for name in sorted(names, key=lambda name: name != f"jobs/{job_id}/job"):
            self._storage.delete(name)
        self._storage.delete(f"history/{job_id}")
        # Makes the removal of the other files in this folder durable before that of the mark.
        self._storage.write(mark, b"")
        self._storage.delete(mark)

    def forget_all(self) -> None:
        """Read all records again: another leader could have removed jobs whose ids are used again."""
        self._opened.clear()
        self._files.forget_all()

    def _forget(self, job_id: str) -> None:
        self._opened.pop(job_id, None)
        self._files.forget(f"jobs/{job_id}")


def _jobs_with(record: str, names: list[str]) -> set[str]:
    """Return the ids of the jobs that have a record, from the names of all files."""
    parts = [name.split("/") for name in names if name.endswith(f"/{record}")]
    return {part[1] for part in parts if len(part) == 3 and is_job_id(part[1])}


def _being_removed(job_id: str) -> Conflict:
    return Conflict(
        f"An earlier job had the id {job_id}, and its records are not completely removed.",
        fix="Choose another job id, or let the service choose one.",
    )


def _unknown(job_id: str) -> UnknownJob:
    return UnknownJob(f"The cluster has no job {job_id}.", fix="`penstock list` shows the jobs.")


def _failure(job_id: str, number: int) -> str:
    return f"jobs/{checked_id(job_id)}/failures/{number:06}"


def attempt_folder(number: int) -> str:
    """Return the folder of an attempt below its job."""
    return f"attempts/{number:06}"


def new_job_id() -> str:
    """Return a new job id: 32 hex digits."""
    return secrets.token_hex(16)


def is_job_id(text: str) -> bool:
    """Return whether a text has the form of a job id."""
    return _ID.fullmatch(text) is not None


def checked_id(job_id: str) -> str:
    """Return the id if it is one; ids become paths. Raise UnknownJob otherwise."""
    if not is_job_id(job_id):
        raise UnknownJob(f"'{job_id}' is not a job id.", fix="A job id has 32 hex digits; `penstock list` shows them.")
    return job_id
