"""Maps each job name to a separate directory below `state.checkpoints.dir`.

    orders/                       job "orders": a name that is a plain file name is used unchanged
    orders-eu-4a1f6c0d92b7e358/   job "orders/eu": a readable part and a hash of the exact name
        job                       the exact name; published once, when a driver first uses the directory

Earlier versions recorded no name and mapped every name to its readable part alone: "orders/eu" and "orders eu" shared a
directory. A job takes over such a directory without confirmation only if the directory has the job's exact name.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from enum import Enum

from penstock.checkpoint.lineages import Lineages, SharedStorage
from penstock.common.configuration import Configuration
from penstock.common.options.checkpoints import UNNAMED_DIRECTORY
from penstock.errors import PenstockError
from penstock.state.storage import AlreadyPublished, MissingObject

RECORD = "job"

_NO_NAME = "job"
"""The directory that earlier versions used for names without a Latin letter or digit."""
_LONGEST = 100
_LONGEST_READABLE = 64
_LONGEST_FILE_NAME = 255
_HASHED = re.compile(r".*-[0-9a-f]{16}", re.DOTALL)

_log = logging.getLogger(__name__)


class UnknownOwner(PenstockError):
    """A directory holds checkpoints of an earlier version that do not record the job they belong to.

    Operator action: set `penstock.checkpoint.unnamed-directory` to adopt or to ignore them.
    """

    retryable = False


class BadJobRecord(PenstockError):
    """The record of a directory's job is unusable. Operator action: restore it from a copy, or correct it."""

    retryable = False


class Unnamed(Enum):
    """What to do with checkpoints of an earlier version that could belong to this job or to another."""

    REFUSE = "refuse"
    ADOPT = "adopt"
    IGNORE = "ignore"


_BY_DEFAULT = Unnamed(UNNAMED_DIRECTORY.default)


def unnamed_directory(configuration: Configuration) -> Unnamed:
    """Return what to do with checkpoints of an earlier version that do not name their job."""
    return Unnamed(configuration.get(UNNAMED_DIRECTORY))


def readable_part(job: str) -> str:
    """Return a job's name as part of a file name: ASCII, at most 64 characters, not unique."""
    return _slug(job)[:_LONGEST_READABLE].strip("-.")


def hashed_name(job: str) -> str:
    """Return the directory of a job whose name is not a plain file name."""
    exact = hashlib.blake2b(_bytes(job), digest_size=8).hexdigest()
    return f"{readable_part(job)}-{exact}"


def is_plain(job: str) -> bool:
    """Return whether the job's directory has the name of the job."""
    return _slug(job) == job and job != _NO_NAME and len(job) <= _LONGEST and _HASHED.fullmatch(job) is None


def find_directory(
    checkpoints: SharedStorage, job: str, unnamed: Unnamed = _BY_DEFAULT, origin: str = ""
) -> SharedStorage:
    """Return and check the directory of this job, which is unique per name. Writes nothing; `claim` does.

    `unnamed`: what to do with checkpoints of an earlier version that could belong to another job. `origin`: the
    savepoint that the job starts from, as in `Lineages.current`; other runs are then never resumed.
    """
    own = checkpoints.below(hashed_name(job))
    owner, earlier = owner_of(own), _slug(job)
    if owner not in (None, job):
        raise _not_ours(own, job)
    if owner is None and len(earlier) <= _LONGEST_FILE_NAME:
        storage = checkpoints.below(earlier)
        owner = owner_of(storage)
        if owner == job or (owner is None and _can_take(storage, own, job, unnamed, origin)):
            storage.check()
            return storage
    own.check()
    return own


def claim(storage: SharedStorage, job: str) -> None:
    """Record this job as owner of the directory from `find_directory`. Raises BadJobRecord if another job owns it."""
    try:
        storage.publish(RECORD, _bytes(f"{json.dumps(job, ensure_ascii=False)}\n{_checksum(job)}\n"))
    except AlreadyPublished:
        if owner_of(storage) != job:
            raise _not_ours(storage, job) from None


def passing_storage(checkpoints: SharedStorage, job: str) -> SharedStorage:
    """Return and check the directory of a job without checkpoints. The job resumes nothing, so it claims nothing."""
    storage = checkpoints.below(job if is_plain(job) else hashed_name(job))
    storage.check()
    return storage


def _can_take(storage: SharedStorage, own: SharedStorage, job: str, unnamed: Unnamed, origin: str) -> bool:
    """Return whether this job can claim a directory without a job record."""
    if not _resumable(storage, origin):
        return is_plain(job)
    called_like_job = _slug(job) == job != _NO_NAME
    if called_like_job or unnamed is Unnamed.ADOPT:
        _log.warning("Job '%s' takes over %s, which an earlier version of Penstock wrote.", job, storage.where)
        return True
    if unnamed is Unnamed.IGNORE:
        return False
    raise UnknownOwner(
        f"{storage.where} holds checkpoints written by an earlier version of Penstock that do not name their job. "
        f"That version used this directory for several job names, including '{job}'.",
        fix=f"If they belong to this job, start it once with -D {UNNAMED_DIRECTORY.key}=adopt. If they belong to "
        f"another job, start it once with -D {UNNAMED_DIRECTORY.key}=ignore: it starts without them, in {own.where}.",
    )


def _resumable(storage: SharedStorage, origin: str) -> bool:
    """Return whether a driver that used this directory would resume an unfinished run."""
    lineages = Lineages(storage)
    lineage = lineages.unfinished(origin)
    return lineage is not None and bool(lineages.storage_of(lineage).list("manifests/"))


def owner_of(storage: SharedStorage) -> str | None:
    """Return the job that owns this directory, or None if it has no record."""
    try:
        text = storage.read(RECORD).decode("utf-8", "surrogatepass")
        name, checksum, _ = text.split("\n")
        job = json.loads(name)
        if not isinstance(job, str) or checksum != _checksum(job):
            raise ValueError("its checksum does not match")
        return job
    except MissingObject:
        return None
    except ValueError as error:
        raise BadJobRecord(
            f"{storage.where}/{RECORD}, which names the job of this directory, is damaged: {error}.",
            fix="Restore it from a copy. If you know the job, delete the file: the next start of that job rewrites it.",
        ) from None


def _not_ours(storage: SharedStorage, job: str) -> BadJobRecord:
    return BadJobRecord(
        f"{storage.where} is the directory of job {job!r}, but its record names job {owner_of(storage)!r}.",
        fix=f"Start the job again. If the directory was copied or renamed, correct {storage.where}/{RECORD} or choose "
        f"another job name.",
    )


def _slug(job: str) -> str:
    """Return the directory that earlier versions used for a job."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", job).strip("-.") or _NO_NAME


def _bytes(job: str) -> bytes:
    return job.encode("utf-8", "surrogatepass")


def _checksum(job: str) -> str:
    return hashlib.blake2b(_bytes(job), digest_size=8).hexdigest()
