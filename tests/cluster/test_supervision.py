"""The next step of a supervisor, and two supervisors with random interleavings on the same records."""

import random
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
        id=job_id, name="counts", program="", entry="job.py", submitted_ms=0, python="3.11.7", penstock="0.1.0"
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
        return next_step(records.view(job), Observation(**{"now_ms": 0, **seen}), POLICY)

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
        assert self.step(records, job, now_ms=1_000) == Nothing(3_000)

    def test_a_lost_process_that_still_lives_is_killed_before_the_next_attempt(
        self, records: Records, job: str
    ) -> None:
        running(records, job)
        lost(records, job)
        assert self.step(records, job, now_ms=10_000, process=Process.ALIVE) == Kill(1)

    def test_a_job_that_cannot_resume_fails_instead_of_restarting(self, records: Records, job: str) -> None:
        running(records, job)
        lost(records, job)
        step = self.step(records, job, now_ms=10_000, resumable=False)
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

    def test_an_ended_job_needs_nothing(self, records: Records, job: str) -> None:
        running(records, job)
        records.end(job, 1, Ended(verdict=Verdict.FINISHED, by="t", at_ms=0))
        assert self.step(records, job, process=Process.DEAD) == Nothing()


class Machine:
    """Simulated hosts: processes that claim, finish, die and hang at random, with two supervisors."""

    def __init__(self, records: Records, chance: random.Random) -> None:
        self.records, self.chance = records, chance
        self.now = 0
        self.alive: dict[tuple[str, int], str] = {}
        """By job and attempt that is claimed and runs, the token of the process."""
        self.launched: list[tuple[str, int, bool]] = []
        self.verdicts: dict[str, list[Verdict]] = {}
        self.asked: dict[tuple[str, str, int], int] = {}
        self.calm = False

    def supervise(self, leader: str, job: str) -> None:
        view = self.records.view(job)
        last = view.last
        claimed = [each.number for each in view.attempts if each.claim]
        process = Process.ALIVE if claimed and (job, claimed[-1]) in self.alive else Process.DEAD
        asked = self.asked.get((leader, job, last.number)) if last else None
        seen = Observation(now_ms=self.now, process=process, cancel_asked_ms=asked)
        # Between the view and the step, the other supervisor and the processes act.
        self.interleave(job)
        match next_step(view, seen, POLICY):
            case Start(number, finalize):
                if self.records.plan(job, number, Planned(leader=leader, at_ms=self.now, finalize=finalize)):
                    self.launched.append((job, number, finalize))
            case DeclareLost(number, reason):
                self.records.end(job, number, Ended(verdict=Verdict.LOST, by=leader, at_ms=self.now, reason=reason))
            case Kill(number):
                self.alive.pop((job, number), None)
            case AskToCancel(number):
                self.asked[leader, job, number] = self.now
                if self.chance.random() < 0.7:
                    self.finish(job, number, Verdict.CANCELED)
            case Decide(number, verdict, reason):
                ended = Ended(verdict=verdict, by=leader, at_ms=self.now, reason=reason)
                self.records.end(job, number, ended)

    def interleave(self, job: str) -> None:
        if not self.calm and self.chance.random() < 0.3:
            self.act(job)

    def act(self, job: str) -> None:
        """Let one process do something."""
        mine = [each for each in self.launched if each[0] == job]
        if mine and self.chance.random() < 0.6:
            launched = self.chance.choice(mine)
            self.launched.remove(launched)
            token = f"{self.chance.random()}"
            if self.chance.random() < 0.8 and self.records.claim(job, launched[1], claim(token)):
                self.alive[job, launched[1]] = token
                self.records.bind_lineage(job, f"lineage of {job}")
                if launched[2]:
                    self.finish(job, launched[1], Verdict.CANCELED)
            return
        alive = [each for each in self.alive if each[0] == job]
        if alive:
            _, number = self.chance.choice(alive)
            if self.chance.random() < 0.5:
                self.alive.pop((job, number))
            elif self.chance.random() < 0.5:
                self.finish(job, number, Verdict.FINISHED)

    def finish(self, job: str, number: int, verdict: Verdict) -> None:
        """A process decides its end, and cleans up only if its decision counts."""
        token = self.alive.get((job, number))
        if token is None:
            return
        decided = self.records.end(job, number, Ended(verdict=verdict, by=token, at_ms=self.now))
        self.alive.pop((job, number), None)
        if decided.by == token and decided.verdict is verdict:
            self.verdicts.setdefault(job, []).append(verdict)


@pytest.mark.parametrize("seed", range(20))
def test_two_supervisors_keep_the_invariants_in_any_interleaving(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    records = Records(LocalStorage(tmp_path, synced=True))
    machine = Machine(records, chance)
    jobs = [new_job_id() for _ in range(4)]
    for job in jobs:
        records.submit(submission(job))
    for _ in range(120):
        machine.now += chance.choice([0, 100, 5_000, 200_000])
        job = chance.choice(jobs)
        roll = chance.random()
        if roll < 0.03:
            records.request_cancel(job)
        elif roll < 0.6:
            machine.supervise(chance.choice("ab"), job)
        else:
            machine.act(job)
        for each in jobs:
            view = records.view(each)
            ends = [attempt.ended for attempt in view.attempts if attempt.ended]
            assert sum(end.verdict is not Verdict.LOST for end in ends) <= 1
            assert len(machine.verdicts.get(each, [])) <= 1
            # No attempt follows a verdict, and none is planned before its predecessor has ended.
            assert all(attempt.ended for attempt in view.attempts[:-1])
            if view.verdict is not None:
                assert view.attempts[-1].ended is view.verdict or view.attempts[-1].ended == view.verdict
    # Without further faults every job ends or runs.
    machine.calm = True
    for _ in range(60):
        machine.now += 200_000
        for job in jobs:
            machine.supervise("a", job)
            for launched in [each for each in machine.launched if each[0] == job]:
                machine.launched.remove(launched)
                if records.claim(job, launched[1], claim("last")):
                    machine.alive[job, launched[1]] = "last"
                    records.bind_lineage(job, f"lineage of {job}")
                    if launched[2]:
                        machine.finish(job, launched[1], Verdict.CANCELED)
    for job in jobs:
        view = records.view(job)
        if view.verdict is None:
            assert view.last is not None
            assert (job, view.last.number) in machine.alive
            assert not view.cancel_requested
