"""The supervisor with a launcher that the test controls: starts, silence, kills and the end of jobs."""

from collections import Counter
from collections.abc import Callable

import pytest
from memory_storage import records_in_memory

from penstock.cluster.order import Order
from penstock.cluster.records import Claim, Ended, JobView, Planned, Records, Submission
from penstock.cluster.supervision import Policy, Process
from penstock.cluster.supervisor import Supervisor
from penstock.driver.assignment import Verdict

POLICY = Policy()


class Host:
    """Launches simulated processes."""

    def __init__(self, records: Records) -> None:
        self.records = records
        self.now = 0
        self.started: list[tuple[str, int]] = []
        self.refuses = 0
        """How many starts fail."""
        self.alive: set[int] = set()
        self.immortal: set[int] = set()
        self.reported: set[tuple[str, int]] = set()
        """Attempts whose process has reported a running job."""
        self.heard: dict[tuple[str, int], int] = {}
        self.kills: list[int] = []
        self.reachable = True

    def start(self, order: Order) -> None:
        if self.refuses:
            self.refuses -= 1
            raise OSError("no space left on device")
        self.started.append((order.job_id, order.attempt))

    def claim(self, job: str, attempt: int = 1) -> Claim:
        pid = 1000 + len(self.alive) + len(self.kills)
        claim = Claim(token=f"t{pid}", host="h", boot="b", pid=pid, started=1, at_ms=self.now)
        assert self.records.claim(job, attempt, claim)
        self.alive.add(pid)
        return claim

    def state(self, job_id: str, attempt: int, claim: Claim) -> Process:
        if not self.reachable:
            return Process.UNKNOWN
        return Process.ALIVE if claim.pid in self.alive else Process.DEAD

    def start_failure(self, job_id: str, attempt: int) -> str:
        return ""

    def remains(self, job_id: str, attempt: int, claim: Claim) -> bool:
        return claim.pid in self.alive

    def kill(self, job_id: str, attempt: int, claim: Claim) -> bool:
        self.kills.append(claim.pid)
        self.alive -= {claim.pid} - self.immortal
        return claim.pid not in self.alive


@pytest.fixture
def records() -> Records:
    return records_in_memory()


@pytest.fixture
def host(records: Records) -> Host:
    return Host(records)


@pytest.fixture
def changes() -> Counter[str]:
    """How often each job was reported as changed."""
    return Counter()


@pytest.fixture
def supervisor(records: Records, host: Host, changes: Counter[str]) -> Supervisor:
    return Supervisor(
        leader="a",
        records=records,
        launcher=host,
        policy=POLICY,
        most_starts=2,
        order=lambda job, number, finalize: Order(
            job_id=job, attempt=number, finalize=finalize, records="", settings={}, control="", folder=""
        ),
        heard_ms=lambda job, number: host.heard.get((job, number)),
        has_started=lambda job, number: (job, number) in host.reported,
        present=set,
        ask_to_cancel=lambda job, number: None,
        changed=lambda view: changes.update([view.submission.id]),
        broken=lambda job, problem: pytest.fail(problem),
        clean_up=lambda view: None,
        can_act=lambda: True,
        now_ms=lambda: host.now,
    )


@pytest.fixture
def submit(records: Records, supervisor: Supervisor) -> Callable[[], str]:
    """Submit another job."""
    count = iter(range(100))

    def submit() -> str:
        job = f"{next(count):032x}"
        records.submit(Submission(id=job, name="n", program="", file="j.py", submitted_ms=0, python="3", penstock="0"))
        supervisor.add(job)
        return job

    return submit


Submit = Callable[[], str]


def tick(supervisor: Supervisor) -> None:
    """Tick, and wait for kills."""
    supervisor.tick()
    for known in supervisor._jobs.values():
        if known.killing is not None:
            known.killing.result(10)


def wait(supervisor: Supervisor, host: Host, ms: int) -> None:
    """Let some time pass, with ticks."""
    for _ in range(5):
        host.now += ms // 5
        tick(supervisor)


def last_end(view: JobView) -> Ended | None:
    return view.attempts[-1].ended


def test_a_job_starts_when_another_one_runs(supervisor: Supervisor, host: Host, submit: Submit) -> None:
    jobs = [submit() for _ in range(4)]
    tick(supervisor)
    tick(supervisor)
    assert host.started == [(jobs[0], 1), (jobs[1], 1)]
    host.claim(jobs[0])
    tick(supervisor)
    assert len(host.started) == 2
    host.reported.add((jobs[0], 1))
    tick(supervisor)
    assert host.started[2:] == [(jobs[2], 1)]


def test_programs_that_never_execute_a_job_do_not_block_other_jobs_forever(
    supervisor: Supervisor, host: Host, submit: Submit
) -> None:
    stuck, other = [submit(), submit()], submit()
    tick(supervisor)
    for job in stuck:
        host.claim(job)
    host.now = POLICY.start_timeout_ms
    host.heard = {(job, 1): host.now for job in stuck}
    tick(supervisor)
    assert host.started[2:] == [(other, 1)]


def test_a_start_that_fails_is_tried_again(supervisor: Supervisor, host: Host, submit: Submit) -> None:
    job = submit()
    host.refuses = 1
    tick(supervisor)
    assert host.started == []
    tick(supervisor)
    assert host.started == [(job, 1)]


def test_an_attempt_that_a_dead_leader_planned_is_started(
    supervisor: Supervisor, records: Records, host: Host, submit: Submit
) -> None:
    job = submit()
    records.plan(job, 1, Planned(leader="dead", at_ms=0))
    tick(supervisor)
    tick(supervisor)
    assert host.started == [(job, 1)]


def test_a_process_that_took_long_to_claim_has_time_to_report(
    supervisor: Supervisor, records: Records, host: Host, submit: Submit
) -> None:
    job = submit()
    tick(supervisor)
    host.now = POLICY.silent_timeout_ms + 1
    host.claim(job)
    tick(supervisor)
    assert last_end(records.view(job)) is None
    wait(supervisor, host, POLICY.silent_timeout_ms)
    end = last_end(records.view(job))
    assert end is not None
    assert "has not answered" in end.reason


def test_a_process_on_a_host_that_is_not_reached_is_not_silent_until_it_has_had_time_to_report(
    supervisor: Supervisor, records: Records, host: Host, submit: Submit
) -> None:
    job = submit()
    supervisor.present = lambda: {(job, 1)}
    tick(supervisor)
    host.claim(job)
    host.reachable = False
    for _ in range(3):
        wait(supervisor, host, POLICY.silent_timeout_ms)
    host.reachable = True
    wait(supervisor, host, POLICY.silent_timeout_ms)
    assert records.view(job).attempts[0].ended is None
    wait(supervisor, host, POLICY.silent_timeout_ms // 2)
    end = records.view(job).attempts[0].ended
    assert end is not None
    assert "has not answered" in end.reason
    assert host.kills


def test_processes_are_not_lost_because_the_supervisor_was_stopped(
    supervisor: Supervisor, records: Records, host: Host, submit: Submit
) -> None:
    job = submit()
    tick(supervisor)
    host.claim(job)
    tick(supervisor)
    host.heard[job, 1] = host.now
    host.now += 10 * POLICY.silent_timeout_ms
    tick(supervisor)
    assert last_end(records.view(job)) is None
    wait(supervisor, host, POLICY.silent_timeout_ms)
    assert last_end(records.view(job)) is not None


def test_a_job_whose_process_cannot_be_killed_waits_and_others_go_on(
    supervisor: Supervisor, records: Records, host: Host, submit: Submit
) -> None:
    stuck, other = submit(), submit()
    tick(supervisor)
    claim = host.claim(stuck)
    host.immortal.add(claim.pid)
    host.claim(other)
    host.reported |= {(stuck, 1), (other, 1)}
    for _ in range(20):
        host.now += POLICY.silent_timeout_ms // 5
        host.heard[other, 1] = host.now
        tick(supervisor)
    assert [each.number for each in records.view(stuck).attempts] == [1]
    assert set(host.kills) == {claim.pid}
    assert last_end(records.view(other)) is None
    host.immortal.clear()
    for _ in range(3):
        host.now += POLICY.longest_backoff_ms
        host.heard[other, 1] = host.now
        tick(supervisor)
    assert host.started[-1] == (stuck, 2)


def test_an_ended_job_is_reported_again_when_its_process_has_exited(
    supervisor: Supervisor, records: Records, host: Host, changes: Counter[str], submit: Submit
) -> None:
    job = submit()
    tick(supervisor)
    claim = host.claim(job)
    tick(supervisor)
    records.end(job, 1, Ended(verdict=Verdict.FINISHED, by=claim.token, at_ms=0))
    tick(supervisor)
    before = changes[job]
    tick(supervisor)
    assert changes[job] == before
    assert supervisor.running == 0
    host.alive.clear()
    tick(supervisor)
    assert changes[job] == before + 1
    tick(supervisor)
    assert changes[job] == before + 1


def test_a_process_that_hangs_after_the_end_of_its_job_is_killed(
    supervisor: Supervisor, records: Records, host: Host, submit: Submit
) -> None:
    job = submit()
    tick(supervisor)
    claim = host.claim(job)
    records.end(job, 1, Ended(verdict=Verdict.FINISHED, by=claim.token, at_ms=0))
    tick(supervisor)
    assert host.kills == []
    host.now = POLICY.exit_grace_ms
    tick(supervisor)
    assert host.kills == [claim.pid]


def test_a_cancelled_job_is_decided_once_although_it_was_planned_meanwhile(
    supervisor: Supervisor, records: Records, host: Host, submit: Submit
) -> None:
    """Another leader starts the attempt between this leader's look at the records and its decision."""
    job = submit()
    records.request_cancel(job)
    view = records.view

    def overtaken(job_id: str) -> JobView:
        seen = view(job_id)
        records.view = view  # type: ignore[method-assign]
        records.plan(job, 1, Planned(leader="b", at_ms=0))
        host.claim(job)
        return seen

    records.view = overtaken  # type: ignore[method-assign]
    tick(supervisor)
    assert last_end(records.view(job)) is None
