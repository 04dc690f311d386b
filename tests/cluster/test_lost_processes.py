"""JobManagers and JVMs that die or stop while their job runs, and jobs that are cancelled meanwhile."""

import os
import signal
from pathlib import Path

import pytest
from service import PER_EPOCH, Service, crash, expected_sums, jvm_of, kill, output_of, wait_for

from penstock.cluster.launcher import LocalLauncher
from penstock.cluster.processes import remains
from penstock.cluster.records import Claim
from penstock.driver.assignment import Verdict
from penstock.driver.control_messages import Describe, Description

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def submit_and_stop(service: Service, folder: Path, records: int) -> tuple[str, Claim]:
    """Submit a job whose driver stops in its third epoch. Return the job, and the claim of its process."""
    marker = folder / "stopped"
    job = service.submit_sums(folder / "out", records, f"stopped-driver:triggered:3:{marker}")
    claim = service.claim(job)
    wait_for(marker.exists, "the driver stops in its third epoch")
    return job, claim


def resume(claim: Claim) -> None:
    """Continue a process that stops itself, and has just written that it does."""
    wait_for(lambda: is_stopped(claim), "the process has stopped")
    os.kill(claim.pid, signal.SIGCONT)


def is_stopped(claim: Claim) -> bool:
    return Path(f"/proc/{claim.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def test_a_job_resumes_after_its_jvm_is_killed_while_it_runs_and_while_it_starts(
    service: Service, tmp_path: Path
) -> None:
    records = 10 * PER_EPOCH
    job, first = submit_and_stop(service, tmp_path, records)
    kill(jvm_of(first))
    resume(first)
    kill(jvm_of(service.claim(job, 2)))
    finished = service.wait_until(job, "FINISHED", attempt=3)
    assert output_of(tmp_path / "out") == expected_sums(records)
    # Each death once, and not as an error of the bridge to the JVM.
    assert [(each.attempt, "JVM" in each.message) for each in finished.exceptions] == [(1, True), (2, True)]
    verdicts = [each.ended.verdict for each in service.view(job).attempts if each.ended]
    assert verdicts == [Verdict.LOST, Verdict.LOST, Verdict.FINISHED]


def test_a_process_that_gets_sigterm_ends_its_attempt_as_lost_and_the_next_one_resumes_the_job(
    service: Service, tmp_path: Path
) -> None:
    records = 20 * PER_EPOCH
    job, first = submit_and_stop(service, tmp_path, records)
    os.kill(first.pid, signal.SIGTERM)
    resume(first)
    service.wait_for_exit(first)
    service.wait_until(job, "FINISHED", attempt=2)
    assert output_of(tmp_path / "out") == expected_sums(records)
    ended = [each.ended for each in service.view(job).attempts if each.ended]
    assert [each.verdict for each in ended] == [Verdict.LOST, Verdict.FINISHED]
    # The process stopped between two epochs and decided, rather than its supervisor.
    assert ended[0].by == first.token
    assert "stops after the current epoch" in service.log(job)


def test_a_job_that_is_cancelled_while_its_driver_and_the_dispatcher_are_down_commits_its_last_checkpoint(
    service: Service, tmp_path: Path
) -> None:
    plans, [marker] = crash(tmp_path, "published:3")
    stopped = tmp_path / "stopped"
    job = service.submit_sums(tmp_path / "out", 1000 * PER_EPOCH, f"stopped-driver:triggered:3:{stopped};{plans}")
    claim = service.claim(job)
    wait_for(stopped.exists, "the driver stops before it dies")
    service.close()
    try:
        resume(claim)
        wait_for(marker.exists, "the driver dies")
        assert output_of(tmp_path / "out") == expected_sums(2 * PER_EPOCH)
        service.dispatcher._records.request_cancel(job)
    finally:
        service.start()
    service.wait_until(job, "CANCELED")
    attempts = service.view(job).attempts
    assert [each.ended.verdict for each in attempts if each.ended] == [Verdict.LOST, Verdict.CANCELED]
    assert [each.planned.finalize for each in attempts if each.planned] == [False, True]
    service.wait_for_exit(claim)
    service.wait_for_exit(service.claim(job, 2))
    assert output_of(tmp_path / "out") == expected_sums(3 * PER_EPOCH)


class OutOfReach(LocalLauncher):
    """Cannot kill or see the processes of one claim, as on a host that is cut off."""

    lost: Claim | None = None

    def kill(self, job_id: str, attempt: int, claim: Claim) -> bool:
        return False if claim == self.lost else super().kill(job_id, attempt, claim)

    def start_failure(self, job_id: str, attempt: int) -> str:
        return ""

    def remains(self, job_id: str, attempt: int, claim: Claim) -> bool:
        return False if claim == self.lost else super().remains(job_id, attempt, claim)


def test_a_stopped_process_is_replaced_and_does_no_harm_when_it_continues(tmp_path: Path) -> None:
    """One stopped process is killed; another cannot be, and continues after its successor has started."""
    records = 20 * PER_EPOCH
    with Service(tmp_path, heartbeat__timeout="12 s") as service:
        launcher = service.dispatcher._supervisor.launcher = OutOfReach(service.dispatcher._others)
        markers, gate = [tmp_path / "stopped", tmp_path / "to be killed"], tmp_path / "gate"
        stopped = service.submit_sums(tmp_path / "a", records, f"stopped-driver:published:3:{markers[0]}", gate)
        killed = service.submit_sums(tmp_path / "b", 5 * PER_EPOCH, f"stopped-driver:triggered:2:{markers[1]}")
        old = service.claim(stopped)
        launcher.lost = old
        for marker in markers:
            wait_for(marker.exists, "a process stops")

        service.wait_until(stopped, "RUNNING", attempt=2)
        new = service.claim(stopped, 2)
        os.kill(old.pid, signal.SIGCONT)
        wait_for(lambda: not remains(old), "the first process exits by itself")
        description = service.ask(stopped, Describe())
        assert isinstance(description, Description)
        assert description.pid == new.pid
        gate.touch()

        service.wait_until(killed, "FINISHED", attempt=2)
        service.wait_until(stopped, "FINISHED")
        assert output_of(tmp_path / "a") == expected_sums(records)
        assert output_of(tmp_path / "b") == expected_sums(5 * PER_EPOCH)
        for job in (stopped, killed):
            attempts = service.view(job).attempts
            assert [each.ended.verdict for each in attempts if each.ended] == [Verdict.LOST, Verdict.FINISHED]
            assert attempts[1].ended is not None
            assert attempts[1].claim is not None
            assert attempts[1].ended.by == attempts[1].claim.token
