"""The verdict of a process on its attempt. No JVM is needed."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.common.job import JobStatus
from penstock.driver.assignment import Verdict
from penstock.driver.instructions import End
from penstock.driver.slots import TooFewSlots
from penstock.errors import PenstockError
from penstock.spark.execution import JobExecution


class AFailedJob:
    """The parts of a JobExecution that decide about its verdict."""

    _got_no_slot = JobExecution._got_no_slot

    def __init__(self, error: Exception, *, resumes: bool | None, has_recovered: bool) -> None:
        self.error = error
        self._has_recovered = has_recovered
        self._spec = SimpleNamespace(assignment=None if resumes is None else SimpleNamespace(resumes=resumes))

    def _session_lives(self) -> bool:
        return True

    def verdict(self) -> Verdict:
        return JobExecution._verdict(cast(Any, self), End(JobStatus.FAILED))


@pytest.mark.parametrize(
    ("resumes", "has_recovered", "verdict"),
    [
        (True, False, Verdict.LOST),
        (True, True, Verdict.FAILED),
        (False, False, Verdict.FAILED),
        (None, False, Verdict.FAILED),
    ],
)
def test_an_attempt_without_a_slot_is_repeated_only_if_it_resumes_a_job(
    resumes: bool | None, has_recovered: bool, verdict: Verdict
) -> None:
    job = AFailedJob(TooFewSlots("x"), resumes=resumes, has_recovered=has_recovered)
    assert job.verdict() is verdict


def test_an_attempt_that_cannot_recover_for_another_reason_is_not_repeated() -> None:
    assert AFailedJob(PenstockError("x"), resumes=True, has_recovered=False).verdict() is Verdict.FAILED
