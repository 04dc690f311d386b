"""Which directory below `state.checkpoints.dir` belongs to a job: a different one for every job name.

    orders/                       job "orders": a name that is a plain file name has its own directory
    orders-eu-4a1f6c0d92b7e358/   job "orders/eu": a readable part and a hash of the exact name
        job                       the exact name; published once, when a driver first uses the directory

Earlier versions recorded no name, and mapped every name to its readable part alone: "orders/eu" and "orders eu" shared
a directory. Such a directory is taken over without a question only by the job whose exact name it has.
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
"""What earlier versions made of names without a single Latin letter or digit."""
_LONGEST = 100
_LONGEST_READABLE = 64
_LONGEST_FILE_NAME = 255
_HASHED = re.compile(r".*-[0-9a-f]{16}", re.DOTALL)

_log = logging.getLogger(__name__)


class UnknownOwner(PenstockError):
    """A directory holds checkpoints of an earlier version that do not say which job they belong to.

    Operator action: say with `penstock.checkpoint.unnamed-directory` whether they are this job's.
    """

    retryable = False


class BadJobRecord(PenstockError):
    """The record of a directory's job cannot be read. Operator action: restore it from a copy, or correct it."""

    retryable = False


class Unnamed(Enum):
    """What to do with checkpoints of an earlier version that may be this job's or another's."""

    REFUSE = "refuse"
    ADOPT = "adopt"
    IGNORE = "ignore"


_BY_DEFAULT = Unnamed(UNNAMED_DIRECTORY.default)


def unnamed_directory(configuration: Configuration) -> Unnamed:
    """What to do with checkpoints of an earlier version that do not name their job."""
    return Unnamed(configuration.get(UNNAMED_DIRECTORY))


def readable_part(job: str) -> str:
    """A job's name as part of a file name: ASCII, at most 64 characters. Several names can have the same."""
    return _slug(job)[:_LONGEST_READABLE].strip("-.")


def hashed_name(job: str) -> str:
    """The directory of a job whose name is not a plain file name."""
    exact = hashlib.blake2b(_bytes(job), digest_size=8).hexdigest()
    return f"{readable_part(job)}-{exact}"


def is_plain(job: str) -> bool:
    """Whether the job's directory is called like the job."""
    return _slug(job) == job and job != _NO_NAME and len(job) <= _LONGEST and _HASHED.fullmatch(job) is None


def find_directory(
    checkpoints: SharedStorage, job: str, unnamed: Unnamed = _BY_DEFAULT, origin: str = ""
) -> SharedStorage:
    """The directory of this job, checked; no two names are given the same. Writes nothing: `claim` does.

    `unnamed`: what to do where an earlier version left checkpoints that may be another job's. `origin`: the savepoint
    that the job begins with, as `Lineages.current` has it: other runs are then not resumed in any case.
    """
    own = checkpoints.below(hashed_name(job))
    owner, earlier = _owner(own), _slug(job)
    if owner not in (None, job):
        raise _not_ours(own, job)
    if owner is None and len(earlier) <= _LONGEST_FILE_NAME:
        storage = checkpoints.below(earlier)
        owner = _owner(storage)
        if owner == job or (owner is None and _may_take(storage, own, job, unnamed, origin)):
            storage.check()
            return storage
    own.check()
    return own


def claim(storage: SharedStorage, job: str) -> None:
    """Mark the directory that `find_directory` gave as this job's. Raises BadJobRecord if another job was faster."""
    try:
        storage.publish(RECORD, _bytes(f"{json.dumps(job, ensure_ascii=False)}\n{_checksum(job)}\n"))
    except AlreadyPublished:
        if _owner(storage) != job:
            raise _not_ours(storage, job) from None


def passing_storage(checkpoints: SharedStorage, job: str) -> SharedStorage:
    """The directory of a job without checkpoints, checked. It resumes nothing, so it marks nothing as its own."""
    storage = checkpoints.below(job if is_plain(job) else hashed_name(job))
    storage.check()
    return storage


def _may_take(storage: SharedStorage, own: SharedStorage, job: str, unnamed: Unnamed, origin: str) -> bool:
    """Whether this job may mark a directory as its own that no record gives to a job."""
    if not _resumable(storage, origin):
        return is_plain(job)
    called_like_job = _slug(job) == job != _NO_NAME
    if called_like_job or unnamed is Unnamed.ADOPT:
        _log.warning("Job '%s' takes over %s, which an earlier version of Penstock wrote.", job, storage.where)
        return True
    if unnamed is Unnamed.IGNORE:
        return False
    raise UnknownOwner(
        f"{storage.where} holds checkpoints that an earlier version of Penstock wrote. They do not say for which job, "
        f"and job '{job}' is one of several names that version put there.",
        fix=f"If they are this job's, start it once with -D {UNNAMED_DIRECTORY.key}=adopt. If they are another job's, "
        f"start it once with -D {UNNAMED_DIRECTORY.key}=ignore: it then begins without them, in {own.where}.",
    )


def _resumable(storage: SharedStorage, origin: str) -> bool:
    """Whether a driver that used this directory would go on with a run that is not over."""
    lineages = Lineages(storage)
    lineage = lineages.unfinished(origin)
    return lineage is not None and bool(lineages.storage_of(lineage).list("manifests/"))


def _owner(storage: SharedStorage) -> str | None:
    """The job whose directory this is; None where no record says so."""
    try:
        text = storage.read(RECORD).decode("utf-8", "surrogatepass")
        name, checksum, _ = text.split("\n")
        job = json.loads(name)
        if not isinstance(job, str) or checksum != _checksum(job):
            raise ValueError("it does not have the checksum it was written with")
        return job
    except MissingObject:
        return None
    except ValueError as error:
        raise BadJobRecord(
            f"{storage.where}/{RECORD}, which names the job of this directory, is damaged: {error}.",
            fix="Restore it from a copy. If you know the job, delete the file: the next start of that job writes it.",
        ) from None


def _not_ours(storage: SharedStorage, job: str) -> BadJobRecord:
    return BadJobRecord(
        f"{storage.where} is the directory of job {job!r}, but its record names job {_owner(storage)!r}.",
        fix=f"Start the job again. If the directory was copied or renamed, correct {storage.where}/{RECORD} or choose "
        f"another job name.",
    )


def _slug(job: str) -> str:
    """The directory that earlier versions gave a job."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", job).strip("-.") or _NO_NAME


def _bytes(job: str) -> bytes:
    return job.encode("utf-8", "surrogatepass")


def _checksum(job: str) -> str:
    return hashlib.blake2b(_bytes(job), digest_size=8).hexdigest()
