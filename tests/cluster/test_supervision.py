"""The next step of a supervisor: a function of the records of a job and the state of its process."""

from pathlib import Path
from typing import Any

import pytest

from penstock.cluster.records import Claim, Ended, Planned, Records, Submission, Verdict, new_job_id
from penstock.cluster.supervision import (
    AskToCancel,
    Decide,
    DeclareLost,
    Kill,
    Nothing,
    Observation,
    Policy,
    Process,
    Start,
    Step,
    next_step,
)
from penstock.state.local_storage import LocalStorage

POLICY = Policy()


@pytest.fixture
def records(tmp_path: Path) -> Records:
    return Records(LocalStorage(tmp_path))


def submission(job_id: str) -> Submission:
    return Submission(
        id=job_id, name="counts", program="", file="job.py", submitted_ms=0, python="3.11.7", penstock="0.1.0"
    )


def claim(token: str = "t", at_ms: int = 0) -> Claim:
    return Claim(token=token, host="h", boot="b", pid=7, started=1, at_ms=at_ms)


@pytest.fixture
def job(records: Records) -> str:
    job_id = new_job_id()
    records.submit(submission(job_id))
    return job_id


def running(records: Records, job: str, number: int = 1) -> None:
    records.plan(job, number, Planned(leader="a", at_ms=0))
    records.claim(job, number, claim())


def lost(records: Records, job: str, number: int = 1, at_ms: int = 0) -> None:
    records.end(job, number, Ended(verdict=Verdict.LOST, by="a", at_ms=at_ms, reason="It died."))


class TestNextStep:
    def step(self, records: Records, job: str, **seen: Any) -> Step:
        return next_step(records.view(job), Observation(**{"now_ms": 0, "since_ms": 0, **seen}), POLICY)

    def test_a_submitted_job_is_started(self, records: Records, job: str) -> None:
        assert self.step(records, job) == Start(1)

    def test_a_job_cancelled_before_its_start_never_starts(self, records: Records, job: str) -> None:
        records.request_cancel(job)
        step = self.step(records, job)
        assert isinstance(step, Decide)
        assert (step.attempt, step.verdict) == (1, Verdict.CANCELED)

    def test_an_attempt_without_a_claim_is_lost_after_the_start_timeout(self, records: Records, job: str) -> None:
        records.plan(job, 1, Planned(leader="a", at_ms=0))
        assert self.step(records, job) == Nothing(POLICY.start_timeout_ms)
        assert isinstance(self.step(records, job, now_ms=POLICY.start_timeout_ms), DeclareLost)

    def test_an_attempt_whose_process_ended_before_its_claim_is_lost_at_once(self, records: Records, job: str) -> None:
        records.plan(job, 1, Planned(leader="a", at_ms=0))
        assert self.step(records, job, start_failure="It exited.") == DeclareLost(1, "It exited.")

    def test_a_living_process_is_left_alone(self, records: Records, job: str) -> None:
        running(records, job)
        assert isinstance(self.step(records, job, process=Process.ALIVE), Nothing)

    def test_a_dead_process_loses_its_attempt(self, records: Records, job: str) -> None:
        running(records, job)
        assert self.step(records, job, process=Process.DEAD) == DeclareLost(1, "Process 7 on h died.")

    def test_an_unreachable_host_loses_its_attempts_after_a_while(self, records: Records, job: str) -> None:
        running(records, job)
        assert isinstance(self.step(records, job, process=Process.UNKNOWN), Nothing)
        late: dict[str, Any] = {"process": Process.UNKNOWN, "unknown_since_ms": 0, "now_ms": POLICY.unknown_timeout_ms}
        assert isinstance(self.step(records, job, **late), DeclareLost)

    def test_a_lost_attempt_is_followed_by_another_after_a_growing_delay(self, records: Records, job: str) -> None:
        running(records, job)
        lost(records, job)
        assert self.step(records, job) == Nothing(1_000)
        assert self.step(records, job, now_ms=1_000) == Start(2)
        running(records, job, 2)
        lost(records, job, 2, at_ms=1_000)
        assert self.step(records, job, now_ms=1_000, since_ms=1_000) == Nothing(3_000)

    def test_an_attempt_that_ran_for_long_resets_the_delay(self, records: Records, job: str) -> None:
        for number in (1, 2, 3):
            running(records, job, number)
            lost(records, job, number, at_ms=100)
        assert self.step(records, job, since_ms=100) == Nothing(100 + 4_000)
        running(records, job, 4)
        lost(records, job, 4, at_ms=POLICY.stable_ms)
        assert self.step(records, job, since_ms=POLICY.stable_ms) == Nothing(POLICY.stable_ms + 1_000)
        # Its host's clock is fast.
        assert self.step(records, job, since_ms=500) == Nothing(1_500)

    def test_a_lost_process_that_still_lives_is_killed_before_the_next_attempt(
        self, records: Records, job: str
    ) -> None:
        running(records, job)
        lost(records, job)
        assert self.step(records, job, now_ms=10_000, remains=True) == Kill(1)

    def test_a_job_that_cannot_resume_fails_instead_of_restarting(self, records: Records, job: str) -> None:
        running(records, job)
        records.bind_lineage(job, "")
        lost(records, job)
        step = self.step(records, job, now_ms=10_000)
        assert isinstance(step, Decide)
        assert step.verdict is Verdict.FAILED
        assert step.reason.startswith("It died.")

    def test_a_running_job_is_asked_to_cancel_and_killed_after_the_grace_period(
        self, records: Records, job: str
    ) -> None:
        running(records, job)
        records.request_cancel(job)
        assert self.step(records, job, process=Process.ALIVE) == AskToCancel(1)
        asked: dict[str, Any] = {"process": Process.ALIVE, "cancel_asked_ms": 0}
        assert self.step(records, job, **asked) == Nothing(POLICY.cancel_grace_ms)
        assert self.step(records, job, now_ms=POLICY.cancel_grace_ms, **asked) == Kill(1)

    def test_a_cancelled_job_with_a_checkpoint_is_finalized_a_limited_number_of_times(
        self, records: Records, job: str
    ) -> None:
        running(records, job)
        records.bind_lineage(job, "file:///checkpoints/x")
        records.request_cancel(job)
        lost(records, job)
        for number in range(2, 2 + POLICY.finalizing_attempts):
            assert self.step(records, job, now_ms=10**6) == Start(number, finalize=True)
            records.plan(job, number, Planned(leader="a", at_ms=0, finalize=True))
            records.claim(job, number, claim())
            lost(records, job, number)
        step = self.step(records, job, now_ms=10**6)
        assert isinstance(step, Decide)
        assert step.verdict is Verdict.CANCELED
        assert "could not be committed" in step.reason

    @pytest.mark.parametrize("lineage", [None, ""])
    def test_a_cancelled_job_without_a_checkpoint_is_not_finalized(
        self, records: Records, job: str, lineage: str | None
    ) -> None:
        running(records, job)
        if lineage is not None:
            records.bind_lineage(job, lineage)
        records.request_cancel(job)
        lost(records, job)
        step = self.step(records, job, now_ms=10**6)
        assert step == Decide(2, Verdict.CANCELED, "The job was cancelled and has no checkpoint to commit.")

    def test_a_living_process_that_stays_silent_loses_its_attempt(self, records: Records, job: str) -> None:
        running(records, job)
        silent: dict[str, Any] = {"process": Process.ALIVE, "silent_since_ms": 0}
        assert isinstance(self.step(records, job, now_ms=POLICY.silent_timeout_ms - 1, **silent), Nothing)
        assert isinstance(self.step(records, job, now_ms=POLICY.silent_timeout_ms, **silent), DeclareLost)

    def test_a_finalizing_attempt_is_killed_after_its_time_limit(self, records: Records, job: str) -> None:
        records.request_cancel(job)
        records.plan(job, 1, Planned(leader="a", at_ms=0, finalize=True))
        records.claim(job, 1, claim())
        limit = POLICY.finalize_timeout_ms
        assert self.step(records, job, process=Process.ALIVE, now_ms=limit - 1) == Nothing(limit)
        assert self.step(records, job, process=Process.ALIVE, now_ms=limit) == Kill(1)

    def test_an_ended_job_needs_nothing(self, records: Records, job: str) -> None:
        running(records, job)
        records.end(job, 1, Ended(verdict=Verdict.FINISHED, by="t", at_ms=0))
        assert self.step(records, job, process=Process.DEAD) == Nothing()

    def test_a_process_that_does_not_exit_after_the_end_of_its_job_is_killed(self, records: Records, job: str) -> None:
        running(records, job)
        records.end(job, 1, Ended(verdict=Verdict.FINISHED, by="t", at_ms=0))
        due = POLICY.exit_grace_ms
        assert self.step(records, job, process=Process.ALIVE, remains=True, now_ms=due - 1) == Nothing(due)
        assert self.step(records, job, process=Process.ALIVE, remains=True, now_ms=due) == Kill(1)

    def test_a_decision_whose_leader_died_is_made_by_the_next_leader(self, records: Records, job: str) -> None:
        running(records, job)
        records.bind_lineage(job, "")
        lost(records, job)
        decision = self.step(records, job, now_ms=10_000)
        records.plan(job, 2, Planned(leader="a", at_ms=0, starts=False))
        assert self.step(records, job, now_ms=10_000) == decision
