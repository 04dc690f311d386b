"""`penstock logs`: files of attempts, read and followed. The cluster behind REST is a fake."""

import json
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from called_commands import call
from fake_gateway import JOB, JOBS, snapshot
from http_service import Service

from penstock.cluster.gateway import LogFile


@pytest.fixture
def attempts(cluster: Service, folder: Path) -> Path:
    """Log files of two attempts of the job."""
    for name in ("1-jobmanager.log", "2-jobmanager.log", "2-jobmanager.out", "2-jobmanager.log.1"):
        (folder / name).write_text("".join(f"{name} line {number}\n" for number in range(1, 301)))

    async def logs(job_id: str) -> list[LogFile]:
        return [
            LogFile(name=path.name, size=path.stat().st_size, modified_ms=0, path=path)
            for path in sorted(folder.glob("*-jobmanager*"))
        ]

    cluster.gateway.logs = logs
    return folder


def test_the_end_of_the_last_attempt_is_printed(attempts: Path) -> None:
    lines = call("logs", "counts").stdout.splitlines()
    assert len(lines) == 100
    assert lines[-1] == "2-jobmanager.log line 300"


def test_options_choose_attempt_output_and_length(attempts: Path) -> None:
    assert call("logs", "counts", "--attempt", "1", "-n", "1").stdout == "1-jobmanager.log line 300\n"
    assert call("logs", "counts", "--stdout", "-n", "1").stdout == "2-jobmanager.out line 300\n"
    assert json.loads(call("logs", "counts", "-n", "1", "--json").stdout) == ["2-jobmanager.log line 300"]


def test_an_empty_log_prints_nothing(attempts: Path) -> None:
    os.truncate(attempts / "2-jobmanager.out", 0)
    done = call("logs", "counts", "--stdout")
    assert (done.exit_code, done.output) == (0, "")


def test_a_missing_attempt_names_those_that_exist(attempts: Path) -> None:
    done = call("logs", "counts", "--attempt", "3")
    assert done.exit_code == 1
    assert "Pass one of the attempts 1, 2." in done.stderr


def test_a_followed_log_ends_with_its_job(cluster: Service, attempts: Path) -> None:
    cluster.gateway.by_id[JOB] = snapshot(JOB, "FINISHED", name="counts")
    done = call("logs", "-f", "counts", "-n", "2")
    assert done.stdout == "2-jobmanager.log line 299\n2-jobmanager.log line 300\n"


def test_a_followed_log_goes_on_with_the_next_attempt(cluster: Service, attempts: Path) -> None:
    (second := attempts / "2-jobmanager.log").unlink()
    gateway, looks = cluster.gateway, iter(range(100))

    def job(job_id: str) -> Any:
        """The second attempt begins while the log of the first one is followed, and ends later."""
        if (look := next(looks)) >= 3:
            second.write_text("first line of attempt 2\n")
            gateway.by_id[JOB] = snapshot(JOB, "RUNNING" if look < 8 else "FINISHED", name="counts", attempt=2)
        return gateway.by_id[job_id]

    gateway.by_id[JOB] = snapshot(JOB, name="counts", attempt=1)
    gateway.job = job
    done = call("logs", "-f", "counts", "-n", "1")
    assert done.stdout == "1-jobmanager.log line 300\nfirst line of attempt 2\n"
    assert done.stderr == "Attempt 1 has ended. This is the log of attempt 2:\n"


def test_one_attempt_can_be_followed_alone(cluster: Service, attempts: Path) -> None:
    cluster.gateway.by_id[JOB] = snapshot(JOB, name="counts", attempt=2)
    done = call("logs", "-f", "counts", "-n", "1", "--attempt", "1")
    assert (done.stdout, done.stderr) == ("1-jobmanager.log line 300\n", "")


def test_a_job_that_has_not_started_is_waited_for(
    cluster: Service, attempts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden = (attempts / "1-jobmanager.log").rename(attempts / "hidden")
    (attempts / "2-jobmanager.log").unlink()
    cluster.gateway.by_id[JOB] = snapshot(JOB, "INITIALIZING", name="counts")

    def sleep(seconds: float) -> None:
        hidden.rename(attempts / "1-jobmanager.log")
        cluster.gateway.by_id[JOB] = snapshot(JOB, "FINISHED", name="counts")

    monkeypatch.setattr("penstock.cli.cluster_jobs.time", SimpleNamespace(sleep=sleep, monotonic=time.monotonic))
    assert call("logs", "counts").exit_code == 1
    assert call("logs", "-f", "counts", "-n", "1").stdout == "1-jobmanager.log line 300\n"


def test_a_running_job_without_log_files_is_not_waited_for(cluster: Service) -> None:
    async def none(job_id: str) -> list[LogFile]:
        return []

    cluster.gateway.logs = none
    done = call("logs", "-f", "counts")
    assert done.exit_code == 1
    assert "has no log file of job" in done.stderr


@pytest.mark.parametrize(
    ("states", "chosen"),
    [
        (["FINISHED", "RUNNING", "CANCELED"], "RUNNING"),
        (["FINISHED", "INITIALIZING"], "INITIALIZING"),
        (["FINISHED", "CANCELED", "FAILED"], "FAILED"),
        (["FAILED", "CANCELED", "FINISHED"], "FINISHED"),
    ],
)
def test_a_name_means_the_running_or_else_the_newest_job(
    states: list[str], chosen: str, cluster: Service, folder: Path
) -> None:
    cluster.gateway.by_id.clear()
    for age, state in enumerate(reversed(states)):
        job = snapshot(JOBS[state], state, name="counts", started_ms=1_000_000 - age)
        cluster.gateway.by_id[job.id] = job

    async def logs(job_id: str) -> list[LogFile]:
        (folder / "log").write_text(f"{job_id}\n")
        return [LogFile(name="1-jobmanager.log", size=33, modified_ms=0, path=folder / "log")]

    cluster.gateway.logs = logs
    assert call("logs", "counts").stdout == f"{JOBS[chosen]}\n"


def test_a_newer_job_that_has_no_name_yet_is_pointed_out(cluster: Service, attempts: Path) -> None:
    ended = snapshot(JOBS["FINISHED"], "FINISHED", name="visits", started_ms=1000)
    newer = snapshot(JOBS["INITIALIZING"], "INITIALIZING", name="job", started_ms=2000)
    cluster.gateway.by_id |= {ended.id: ended, newer.id: newer}
    done = call("logs", "visits", "-n", "1")
    assert done.stdout == "2-jobmanager.log line 300\n"
    assert f"'visits' is {ended.id}, which is FINISHED." in done.stderr
    assert f"{newer.id} ('job') was submitted later and has no final name yet" in done.stderr
    older = snapshot(newer.id, "INITIALIZING", name="job", started_ms=500)
    cluster.gateway.by_id[newer.id] = older
    assert call("logs", "visits").stderr == ""
