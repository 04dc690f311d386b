"""The jobs that a new leader finds. One that cannot be read is reported, never left out."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from penstock.cluster.coordination import Coordination
from penstock.cluster.records import JobView, Records
from penstock.errors import PenstockError

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class FoundJob:
    """A job that a leader has to continue, or to show as failed."""

    job_id: str
    view: JobView | None
    """Its records; None if they cannot be read."""
    problem: str = ""
    """Why the job cannot be continued; shown as the reason of its failure."""


def found_jobs(coordination: Coordination, records: Records) -> list[FoundJob]:
    """Return every job that has a pointer or a record, by id.

    A leader that died between the record and the pointer leaves a record alone, so both are read. Nothing is removed
    here, however much is missing: a listing can be empty because a server has lost its data. If the storage or
    ZooKeeper cannot be listed, this raises, and the leader tries again.
    """
    pointers = coordination.pointers()
    return [_found(job_id, pointers.get(job_id, ""), records) for job_id in sorted({*pointers, *records.job_ids()})]


def _found(job_id: str, refused: str, records: Records) -> FoundJob:
    try:
        if not refused:
            return FoundJob(job_id=job_id, view=records.view(job_id))
        problem = refused
    except PenstockError as error:
        problem = str(error)
    _log.error("Job %s cannot be recovered: %s", job_id, problem)
    return FoundJob(job_id=job_id, view=None, problem=problem)
