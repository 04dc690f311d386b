"""The agent of a host: it finds processes in the records, and kills none that the records do not give up."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from memory_storage import records_in_memory

from penstock.cluster.agent import HostAgent, logs_of_all
from penstock.cluster.directory import ClusterDirectory
from penstock.cluster.gateway import AttemptProcess, Conflict, LogFile
from penstock.cluster.processes import _stat
from penstock.cluster.records import Claim, Ended, Planned, Records, Submission, UnknownJob, new_job_id
from penstock.driver.assignment import Verdict
from penstock.state.engines.boot import boot_id

JOB = new_job_id()


@pytest.fixture
def records() -> Records:
    records = records_in_memory()
    records.submit(Submission(id=JOB, name="n", program="", file="j.py", submitted_ms=0, python="3", penstock="0"))
    return records


@pytest.fixture
def agent(records: Records, tmp_path: Path) -> HostAgent:
    return HostAgent(records, ClusterDirectory(tmp_path))


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", "import signal; signal.pause()"]
    process = subprocess.Popen(command, start_new_session=True)
    yield process
    process.kill()
    process.wait()


Claimed = Callable[..., Claim]


@pytest.fixture
def claimed(records: Records, process: subprocess.Popen[bytes]) -> Claimed:
    """`claimed(attempt, host)` plans an attempt, which the process claims."""

    def claim(attempt: int = 1, host: str = "") -> Claim:
        stat = _stat(process.pid)
        assert stat is not None
        claim = Claim(
            token="t",
            host=host or socket.gethostname(),
            boot=boot_id(),
            pid=process.pid,
            started=stat.started,
            at_ms=0,
        )
        assert records.plan(JOB, attempt, Planned(leader="a", at_ms=0))
        assert records.claim(JOB, attempt, claim)
        return claim

    return claim


def lose(records: Records, attempt: int = 1) -> None:
    records.end(JOB, attempt, Ended(verdict=Verdict.LOST, by="a", at_ms=0))


def test_processes_of_this_host_are_described_and_others_are_left_out(
    agent: HostAgent, claimed: Claimed, records: Records, process: subprocess.Popen[bytes]
) -> None:
    claimed(1)
    lose(records)
    claimed(2, host="elsewhere")
    alive = AttemptProcess(job=JOB, attempt=1, alive=True, remains=True)
    assert agent.processes([(JOB, 1), (JOB, 2), (JOB, 3), (new_job_id(), 1)]) == [alive]
    process.kill()
    process.wait()
    assert agent.processes([(JOB, 1)]) == [AttemptProcess(job=JOB, attempt=1, alive=False, remains=False)]


def test_an_attempt_that_the_records_do_not_give_up_is_not_killed(
    agent: HostAgent, claimed: Claimed, process: subprocess.Popen[bytes]
) -> None:
    claimed()
    with pytest.raises(Conflict, match=f"Attempt 1 of job {JOB} has not ended, and the job is not cancelled"):
        agent.kill(JOB, 1)
    assert process.poll() is None


def test_an_attempt_that_has_ended_is_killed(
    agent: HostAgent, claimed: Claimed, records: Records, process: subprocess.Popen[bytes]
) -> None:
    claimed()
    lose(records)
    assert agent.kill(JOB, 1)
    # 0 if the agent has already asked the kernel for the exit code of this child.
    assert process.wait(10) in (-9, 0)


def test_an_attempt_of_a_cancelled_job_is_killed(
    agent: HostAgent, claimed: Claimed, records: Records, process: subprocess.Popen[bytes]
) -> None:
    claimed()
    records.request_cancel(JOB)
    assert agent.kill(JOB, 1)
    # 0 if the agent has already asked the kernel for the exit code of this child.
    assert process.wait(10) in (-9, 0)


def test_the_end_of_an_earlier_attempt_does_not_give_up_the_last_one(
    agent: HostAgent, claimed: Claimed, records: Records, process: subprocess.Popen[bytes]
) -> None:
    assert records.plan(JOB, 1, Planned(leader="a", at_ms=0))
    lose(records)
    claimed(2)
    with pytest.raises(Conflict, match="has not ended"):
        agent.kill(JOB, 2)
    assert process.poll() is None


def test_processes_of_other_hosts_are_not_touched(
    agent: HostAgent, claimed: Claimed, records: Records, process: subprocess.Popen[bytes]
) -> None:
    claimed(host="elsewhere")
    lose(records)
    for ask in (agent.kill, agent.connection):
        with pytest.raises(Conflict, match=f"No process on host {socket.gethostname()} has claimed attempt 1"):
            ask(JOB, 1)
    assert process.poll() is None


def test_logs_are_found_by_job_ids_only(agent: HostAgent, tmp_path: Path) -> None:
    for attempt in (10, 9):
        (tmp_path / "jobs" / JOB / str(attempt)).mkdir(parents=True)
        (tmp_path / "jobs" / JOB / str(attempt) / "jobmanager.log").write_text("text")
    assert [(each.name, each.size) for each in agent.logs(JOB)] == [("9-jobmanager.log", 4), ("10-jobmanager.log", 4)]
    assert agent.logs(new_job_id()) == []
    with pytest.raises(UnknownJob):
        agent.logs("../jobs")


def test_a_log_that_is_removed_while_logs_are_listed_is_left_out(agent: HostAgent, tmp_path: Path) -> None:
    folder = tmp_path / "jobs" / JOB / "1"
    folder.mkdir(parents=True)
    (folder / "jobmanager.log").write_text("text")
    # Its name is listed, and it does not exist.
    (folder / "jobmanager.log.5").symlink_to(folder / "rotated away")
    assert [each.name for each in agent.logs(JOB)] == ["1-jobmanager.log"]


def test_the_log_of_the_claim_counts_if_two_hosts_started_an_attempt(records: Records, claimed: Claimed) -> None:
    claimed(1, host="b")
    here = [LogFile(name=f"{n}-jobmanager.log", size=1, modified_ms=1) for n in (1, 2)]
    there = [
        ("b", LogFile(name=f"{n}-jobmanager.log", size=1, modified_ms=1, url=f"http://b/{n}")) for n in (1, 2, 10, 3)
    ]
    found = logs_of_all(here, there, records.view(JOB))
    assert [(each.name.partition("-")[0], each.url) for each in found] == [
        ("1", "http://b/1"),
        ("2", ""),
        ("3", "http://b/3"),
        ("10", "http://b/10"),
    ]
