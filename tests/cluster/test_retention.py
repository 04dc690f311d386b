"""Which ended jobs a cluster forgets."""

from penstock.cluster.records import Attempt, Ended, JobView, Submission, new_job_id
from penstock.cluster.retention import expired
from penstock.driver.assignment import Verdict


def job(ended_ms: int | None) -> JobView:
    job_id = new_job_id()
    ended = None if ended_ms is None else Ended(verdict=Verdict.FINISHED, by="t", at_ms=ended_ms)
    return JobView(
        submission=Submission(id=job_id, name="j", program="", file="j.py", submitted_ms=0, python="3", penstock="0"),
        lineage=None,
        cancel_requested=False,
        attempts=[Attempt(number=1, ended=ended)],
    )


def test_the_oldest_ended_jobs_beyond_the_limit_are_forgotten() -> None:
    jobs = [job(30), job(10), job(None), job(20)]
    assert expired(jobs, now_ms=40, most=1, most_age_ms=1000) == [jobs[1].submission.id, jobs[3].submission.id]


def test_ended_jobs_are_forgotten_after_a_while() -> None:
    jobs = [job(10), job(90), job(None)]
    assert expired(jobs, now_ms=100, most=10, most_age_ms=50) == [jobs[0].submission.id]


def test_running_jobs_are_never_forgotten() -> None:
    assert expired([job(None)], now_ms=10**12, most=0, most_age_ms=0) == []
