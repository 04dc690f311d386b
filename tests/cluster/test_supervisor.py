"""The supervisor with a launcher that the test controls: starts, silence, kills and the end of jobs."""

import threading
from collections import Counter
from collections.abc import Callable

import pytest
from memory_storage import records_in_memory
from simulated_host import Host

from penstock.cluster.order import Order
from penstock.cluster.records import BadRecord, Ended, JobView, Planned, Records, Submission
from penstock.cluster.supervision import Policy
from penstock.cluster.supervisor import Supervisor
from penstock.driver.assignment import Verdict

POLICY = Policy()


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


def test_a_new_leader_counts_the_starts_of_its_predecessor_before_it_starts_a_job(
    supervisor: Supervisor, records: Records, host: Host, submit: Submit
) -> None:
    jobs = [submit() for _ in range(6)]
    for job in jobs[-2:]:
        records.plan(job, 1, Planned(leader="dead", at_ms=0))
        host.claim(job)
    tick(supervisor)
    assert host.started == []
    host.reported.add((jobs[-1], 1))
    for _ in range(2):
        tick(supervisor)
    assert host.started == [(jobs[0], 1)]


def test_starts_are_counted_whatever_the_clock_of_the_host_that_planned_them_shows(
    supervisor: Supervisor, records: Records, host: Host, submit: Submit
) -> None:
    host.now = 10 * POLICY.start_timeout_ms
    slow, fast, other = submit(), submit(), submit()
    records.plan(slow, 1, Planned(leader="b", at_ms=0))
    records.plan(fast, 1, Planned(leader="b", at_ms=2 * host.now))
    tick(supervisor)
    assert {job for job, _ in host.started} == {slow, fast}
    wait(supervisor, host, POLICY.start_timeout_ms)
    assert host.started[2:] == [(other, 1)]
    ends = [last_end(records.view(job)) for job in (slow, fast)]
    assert all(end is not None and "No process claimed" in end.reason for end in ends)


def test_an_error_of_any_kind_about_one_job_does_not_affect_the_others(
    supervisor: Supervisor, records: Records, host: Host, submit: Submit, caplog: pytest.LogCaptureFixture
) -> None:
    odd, other = submit(), submit()
    view = records.view

    def fail(job_id: str) -> JobView:
        if job_id == odd:
            raise RuntimeError("unforeseen")
        return view(job_id)

    records.view = fail  # type: ignore[method-assign]
    for _ in range(3):
        tick(supervisor)
    assert host.started == [(other, 1)]
    assert [record.message for record in caplog.records] == [f"Cannot supervise job {odd} now: unforeseen"]
    records.view = view  # type: ignore[method-assign]
    tick(supervisor)
    assert host.started == [(other, 1), (odd, 1)]


def test_jobs_that_have_not_ended_are_looked_at_before_the_history(
    supervisor: Supervisor, records: Records, host: Host, submit: Submit
) -> None:
    ended, waiting = submit(), submit()
    records.end(ended, 1, Ended(verdict=Verdict.FINISHED, by="t", at_ms=0))
    supervisor.forget_all()
    for job in (ended, waiting):
        supervisor.add(job, records.view(job))
    looked: list[str] = []
    view = records.view
    records.view = lambda job_id: looked.append(job_id) or view(job_id)  # type: ignore[method-assign, func-returns-value]
    tick(supervisor)
    assert looked == [waiting, ended]


def test_a_kill_does_not_wait_until_checkpoints_are_removed(
    supervisor: Supervisor, records: Records, host: Host, submit: Submit
) -> None:
    released = threading.Event()
    supervisor.clean_up = lambda view: released.wait(30) and None
    jobs = [submit() for _ in range(8)]
    for job in jobs:
        records.end(job, 1, Ended(verdict=Verdict.FINISHED, by="t", at_ms=0))
    hung = submit()
    records.plan(hung, 1, Planned(leader="dead", at_ms=0))
    claim = host.claim(hung)
    records.end(hung, 1, Ended(verdict=Verdict.LOST, by="a", at_ms=0))
    tick(supervisor)
    assert host.kills == [claim.pid]
    assert all(map(supervisor.supervises, jobs))
    released.set()
    for job in jobs:
        supervisor._jobs[job].cleaning.result(30)  # type: ignore[union-attr]
    tick(supervisor)
    assert not any(map(supervisor.supervises, jobs))


def test_an_ended_job_is_cleaned_up_once_and_after_its_last_process(
    supervisor: Supervisor, records: Records, host: Host, submit: Submit
) -> None:
    cleaned: list[JobView] = []

    def clean_up(view: JobView) -> None:
        cleaned.append(view)
        raise OSError("the storage does not answer")

    supervisor.clean_up = clean_up
    job = submit()
    tick(supervisor)
    claim = host.claim(job)
    records.end(job, 1, Ended(verdict=Verdict.FINISHED, by="t", at_ms=0))
    for _ in range(3):
        tick(supervisor)
    assert (cleaned, supervisor.supervises(job)) == ([], True)
    host.alive.remove(claim.pid)
    tick(supervisor)
    supervisor._jobs[job].cleaning.result(30)  # type: ignore[union-attr]
    for _ in range(3):
        tick(supervisor)
    assert (cleaned, supervisor.supervises(job)) == ([records.view(job)], False)


def test_the_history_of_a_job_that_ended_long_ago_is_read_once(
    supervisor: Supervisor, records: Records, host: Host, changes: Counter[str], submit: Submit
) -> None:
    """A new leader passes the records that it has found to `changed` itself."""
    old, recent = submit(), submit()
    host.now = 2 * POLICY.exit_grace_ms
    records.end(old, 1, Ended(verdict=Verdict.FINISHED, by="t", at_ms=0))
    records.end(recent, 1, Ended(verdict=Verdict.FINISHED, by="t", at_ms=host.now))
    supervisor.forget_all()
    for job in (old, recent):
        supervisor.add(job, records.view(job))
    tick(supervisor)
    assert changes == {recent: 1}


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


def test_an_attempt_on_a_host_that_is_not_reached_is_lost_unless_its_process_reports_to_zookeeper(
    supervisor: Supervisor, records: Records, host: Host, submit: Submit
) -> None:
    present, absent = submit(), submit()
    supervisor.present = lambda: {(present, 1)}
    tick(supervisor)
    host.claim(present)
    host.claim(absent)
    tick(supervisor)
    host.reachable = False
    tick(supervisor)
    wait(supervisor, host, POLICY.unknown_timeout_ms - 5)
    # One answer in between, and the time begins again.
    host.reachable = True
    tick(supervisor)
    for job in (present, absent):
        host.heard[job, 1] = host.now
    host.reachable = False
    tick(supervisor)
    wait(supervisor, host, POLICY.unknown_timeout_ms - 5)
    assert [last_end(records.view(job)) for job in (present, absent)] == [None, None]
    wait(supervisor, host, 5)
    end = last_end(records.view(absent))
    assert end is not None
    assert "Host h has not answered" in end.reason
    assert last_end(records.view(present)) is None


def test_a_job_whose_records_are_damaged_is_reported_and_left_alone(
    supervisor: Supervisor, records: Records, host: Host, submit: Submit
) -> None:
    damaged, other = submit(), submit()
    broken: list[tuple[str, str]] = []
    supervisor.broken = lambda job, problem: broken.append((job, problem))
    view = records.view

    def viewing(job: str) -> JobView:
        if job == damaged:
            raise BadRecord("The record is damaged.")
        return view(job)

    records.view = viewing  # type: ignore[method-assign]
    tick(supervisor)
    tick(supervisor)
    assert broken == [(damaged, "The record is damaged.")]
    assert not supervisor.supervises(damaged)
    assert host.started == [(other, 1)]


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
    assert supervisor.running() == set()
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
    wait(supervisor, host, POLICY.exit_grace_ms)
    assert host.kills[:1] == [claim.pid]


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
