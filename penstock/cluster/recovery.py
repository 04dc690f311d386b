"""The jobs that a new leader finds. One that cannot be read is reported, never left out."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from penstock.cluster.coordination import Coordination
from penstock.cluster.records import BadRecord, JobView, Records, UnknownJob

_READERS = 16
"""Jobs that are read at the same time: a read from an object store takes tens of milliseconds."""


@dataclass(frozen=True, kw_only=True)
class FoundJob:
    """A job that a leader has to continue, or to show as failed."""

    job_id: str
    view: JobView | None
    """Its records; None if they cannot be read."""
    problem: str = ""
    """Why the job cannot be continued; shown as its reason."""
    retryable: bool = False
    """Whether the job is to be read again soon, because the storage did not answer."""


def found_jobs(coordination: Coordination, records: Records, known: Collection[str] = ()) -> Iterator[list[FoundJob]]:
    """Yield every job that has a pointer, and then every other job that has a record, except the known ones.

    Jobs that run have a pointer, so they do not wait until the history is read. A leader that died between the record
    and the pointer leaves a record alone, so both are read. Nothing is removed here, however much is missing: a listing
    can be empty because a server has lost its data. If the storage or ZooKeeper cannot be listed, this raises, and the
    leader tries again.
    """
    pointers = coordination.pointers()
    with ThreadPoolExecutor(_READERS, "penstock-read") as readers:
        find = partial(_found, pointers, records)
        yield list(readers.map(find, sorted({*pointers}.difference(known))))
        yield list(readers.map(find, sorted({*records.job_ids()}.difference(known, pointers))))


def _found(pointers: Mapping[str, str], records: Records, job_id: str) -> FoundJob:
    retryable, problem = False, pointers.get(job_id, "")
    if not problem:
        try:
            return FoundJob(job_id=job_id, view=records.view(job_id))
        except (BadRecord, UnknownJob) as error:
            problem = str(error)
        except Exception as error:  # no job prevents the recovery of another one
            retryable, problem = True, str(error) or repr(error)
    return FoundJob(job_id=job_id, view=None, problem=problem, retryable=retryable)
