"""Answers of views while the clock stands still, and parts of them that several tests expect."""

from __future__ import annotations

from typing import Any

import msgspec
from numbered_job import JOB
from rest_contract import check_answer

from penstock.driver.job_snapshot import JobSnapshot
from penstock.rest.views import VIEWS

TASK_STATES = dict.fromkeys(
    (
        *("CREATED", "SCHEDULED", "DEPLOYING", "RUNNING", "FINISHED", "CANCELING", "CANCELED", "FAILED"),
        *("RECONCILING", "INITIALIZING"),
    ),
    0,
)
ATTEMPT = 22
"""The number of restarts of the job."""


def answer(path: str, job: JobSnapshot, query: dict[str, str] | None = None, **params: str) -> Any:
    """Return the answer of a path, as a client decodes it."""
    return _encoded(path, job, {"jobid": JOB} | params, query or {})


def _encoded(path: str, job: Any, params: dict[str, str], query: dict[str, str]) -> Any:
    body = msgspec.json.encode(VIEWS[path](job, params, query))
    check_answer("GET", path, body, query)
    return msgspec.json.decode(body)


def of_all(path: str, jobs: list[JobSnapshot], query: dict[str, str] | None = None, **params: str) -> Any:
    return _encoded(path, jobs, params, query or {})


def values(path: str, job: JobSnapshot, **params: str) -> dict[str, str]:
    """Return all metrics of a path."""
    names = [each["id"] for each in answer(path, job, **params)]
    return {each["id"]: each["value"] for each in answer(path, job, {"get": ",".join(names)}, **params)}


def io(base: int) -> dict[str, Any]:
    return {
        "read-bytes": base + 3,
        "read-bytes-complete": True,
        "write-bytes": base + 4,
        "write-bytes-complete": True,
        "read-records": base + 1,
        "read-records-complete": True,
        "write-records": base + 2,
        "write-records-complete": True,
        "accumulated-backpressured-time": base + 7,
        "accumulated-idle-time": base + 6,
        "accumulated-busy-time": base + 5.25,
    }
