"""Processes that the launcher starts for attempts."""

import time
from pathlib import Path

import msgspec
import pytest

from penstock.cluster.launcher import LocalLauncher
from penstock.cluster.order import LOG, ORDER, Order, write_order
from penstock.cluster.other_hosts import OtherHosts
from penstock.cluster.records import Planned, Records, Submission, new_job_id
from penstock.state.local_storage import LocalStorage

JOB = new_job_id()


def order(tmp_path: Path) -> Order:
    return Order(
        job_id=JOB,
        attempt=1,
        records=str(tmp_path / "records"),
        settings={},
        control=str(tmp_path / "control"),
        folder=str(tmp_path / "attempt"),
    )


def failure_of(launcher: LocalLauncher, ends: bool) -> str:
    deadline = time.monotonic() + 60
    while not (failure := launcher.start_failure(JOB, 1)):
        child, _ = launcher._children[JOB, 1]
        if child.poll() is not None and not ends:
            return ""
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return failure


def test_a_process_that_cannot_start_is_reported_with_the_end_of_its_log(tmp_path: Path) -> None:
    launcher = LocalLauncher(OtherHosts(None, dict))
    launcher.start(order(tmp_path))
    failure = failure_of(launcher, ends=True)
    assert "exited with code 1 before it claimed the attempt" in failure
    assert "has no job" in failure or "UnknownJob" in failure


def test_a_process_that_finds_its_attempt_taken_is_not_a_failure(tmp_path: Path) -> None:
    records = Records(LocalStorage(tmp_path / "records").below("default"))
    records.submit(
        Submission(id=JOB, name="n", program="", file="j.py", submitted_ms=0, python="3", penstock="0"),
    )
    records.plan(JOB, 1, Planned(leader="a", at_ms=0))
    (tmp_path / "records" / "default" / "jobs" / JOB / "attempts" / "000001" / "claimed").write_text("{}")
    launcher = LocalLauncher(OtherHosts(None, dict))
    launcher.start(order(tmp_path))
    assert failure_of(launcher, ends=False) == ""
    assert not (tmp_path / "attempt" / ORDER).exists(), "it contains settings, and no process needs it"


def test_the_exit_codes_of_old_processes_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.cluster.launcher._KEPT_ENDED", 2)
    monkeypatch.setattr("penstock.cluster.launcher.sys.executable", "/bin/false")
    launcher = LocalLauncher(OtherHosts(None, dict))
    jobs = [new_job_id() for _ in range(5)]
    for job_id in jobs:
        launcher.start(msgspec.structs.replace(order(tmp_path), job_id=job_id))
        launcher._children[job_id, 1][0].wait(30)
    assert [job_id for job_id, _ in launcher._children] == jobs[-3:]
    assert "code 1" in launcher.start_failure(jobs[-1], 1)


def test_a_new_attempt_removes_the_programs_and_orders_of_earlier_ones_and_old_logs(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs" / JOB
    for number in range(1, 16):
        path = write_order(msgspec.structs.replace(order(tmp_path), attempt=number, folder=str(jobs / str(number))))
        (path.parent / "program").mkdir()
        (path.parent / "program" / "job.py").touch()
        (path.parent / "upload").touch()
        (path.parent / LOG).touch()
    found = {int(folder.name): {path.name for path in folder.iterdir()} for folder in jobs.iterdir()}
    # A process that died before its claim has left its order, which contains the settings of the service.
    assert found == {number: {LOG} for number in range(6, 15)} | {15: {ORDER, LOG, "program", "upload"}}
    # An attempt that is started again, by a new leader, keeps later ones.
    write_order(msgspec.structs.replace(order(tmp_path), attempt=14, folder=str(jobs / "14")))
    assert (jobs / "15" / "program").exists()


def test_an_order_is_readable_by_its_user_only(tmp_path: Path) -> None:
    launcher = LocalLauncher(OtherHosts(None, dict))
    launcher.start(order(tmp_path))
    assert (tmp_path / "attempt" / ORDER).stat().st_mode & 0o777 == 0o600
    failure_of(launcher, ends=True)
