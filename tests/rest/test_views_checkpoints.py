"""What the answers say about checkpoints and savepoints equals the log of checkpoints."""

from __future__ import annotations

import threading

import pytest
from snapshot_jobs import WORDS, harness, program, vertex_id, view

from penstock.driver.epoch_errors import UserFunctionFailed
from penstock.driver.job_snapshot import JobSnapshot
from penstock.testing import JobHarness


@pytest.fixture
def job():
    with harness() as running:
        yield running


def test_checkpoints_have_the_sizes_and_times_of_the_log(job):
    job.set_clock(1000)
    job.push(*WORDS).epoch()
    snapshot = job.snapshot()
    logged = job.checkpoints.latest_completed
    found = view("/checkpoints", snapshot)
    assert found["counts"] == {"restored": 0, "total": 1, "in_progress": 0, "completed": 1, "failed": 0}
    latest = found["latest"]["completed"]
    assert (latest["id"], latest["trigger_timestamp"], latest["external_path"]) == (1, 1000, "")
    assert (latest["checkpointed_size"], latest["state_size"]) == (logged.delta_bytes, logged.state_bytes)
    assert logged.delta_bytes > 0
    assert found["summary"]["checkpointed_size"]["max"] == logged.delta_bytes
    assert latest["num_acknowledged_subtasks"] == latest["num_subtasks"] == 6
    details = view("/checkpoints/details/:checkpointid", snapshot, checkpointid="1")
    last = vertex_id(snapshot, "last")
    assert details["tasks"][last]["state_size"] == logged.state_bytes
    assert sum(task["checkpointed_size"] for task in details["tasks"].values()) == logged.delta_bytes
    path = "/checkpoints/details/:checkpointid/subtasks/:vertexid"
    task = view(path, snapshot, checkpointid="1", vertexid=last)
    assert task["subtasks"] == [{"index": 0, "status": "completed"}, {"index": 1, "status": "completed"}]
    operator = next(each for each in logged.operators if each.uid == "last")
    sizes = [each.delta_bytes for each in operator.subtasks]
    assert (task["summary"]["checkpointed_size"]["min"], task["summary"]["checkpointed_size"]["max"]) == (
        min(sizes),
        max(sizes),
    )


def test_savepoints_are_listed_with_their_path(job, tmp_path):
    job.push(*WORDS).epoch()
    path = job.savepoint(tmp_path)
    found = view("/checkpoints", job.snapshot())
    saved = found["latest"]["savepoint"]
    assert (saved["external_path"], saved["is_savepoint"], saved["checkpoint_type"]) == (path, True, "SAVEPOINT")
    assert saved["state_size"] == job.checkpoints.latest_completed.state_bytes
    assert [each["is_savepoint"] for each in found["history"]] == [True, False]
    assert found["counts"]["completed"] == 2


def test_a_job_from_a_savepoint_says_what_it_restored(job, tmp_path):
    job.push(*WORDS).epoch()
    path = job.stop_with_savepoint(tmp_path)
    last = view("/checkpoints", job.snapshot())["latest"]["savepoint"]
    assert (last["external_path"], last["checkpoint_type"]) == (path, "SYNC_SAVEPOINT")
    with JobHarness(program(), parallelism=2, backend="filesystem", from_savepoint=path) as again:
        restored = view("/checkpoints", again.snapshot())
    assert restored["counts"]["restored"] == 1
    assert (restored["latest"]["restored"]["is_savepoint"], restored["latest"]["restored"]["external_path"]) == (
        True,
        path,
    )


def test_a_recovered_job_says_which_checkpoint_it_restored(job):
    job.push(*WORDS).epoch()
    job.push("z").epoch()
    job.set_clock(5_000_000_000_000)
    job.crash()
    restored = view("/checkpoints", job.snapshot())["latest"]["restored"]
    assert restored == {"id": 2, "restore_timestamp": 5_000_000_000_000, "is_savepoint": False, "external_path": ""}


def test_a_failed_checkpoint_shows_who_acknowledged_it(job):
    job.push("a").epoch()
    with pytest.raises(UserFunctionFailed):
        job.push("fail").epoch()
    snapshot = job.snapshot()
    found = view("/checkpoints", snapshot)
    failed = found["latest"]["failed"]
    assert (failed["id"], failed["status"], found["counts"]["failed"]) == (2, "FAILED", 1)
    assert "cannot parse this" in failed["failure_message"]
    assert failed["failure_timestamp"] >= failed["trigger_timestamp"]
    assert failed["num_acknowledged_subtasks"] < failed["num_subtasks"] == 6


def test_the_history_is_capped_and_newest_first(job):
    for number in range(15):
        job.push(str(number)).epoch()
    history = view("/checkpoints", job.snapshot())["history"]
    assert [each["id"] for each in history] == list(range(15, 5, -1))


def test_a_snapshot_during_an_epoch_does_not_wait_for_it(job, monkeypatch):
    taken: list[JobSnapshot] = []
    pace = job._execution.pace
    end_stage = pace.end_stage

    def look() -> None:
        if not taken:
            thread = threading.Thread(target=lambda: taken.append(job.snapshot()))
            thread.start()
            thread.join(30)
        end_stage()

    monkeypatch.setattr(pace, "end_stage", look)
    job.push("a").epoch()
    (snapshot,) = taken
    found = view("/checkpoints", snapshot)
    assert (found["counts"]["in_progress"], found["counts"]["completed"]) == (1, 0)
    (entry,) = found["history"]
    assert (entry["id"], entry["status"], entry["num_subtasks"]) == (1, "IN_PROGRESS", 6)
    assert entry["num_acknowledged_subtasks"] == 0
    assert job.snapshot().checkpoints.in_progress == 0


def test_the_checkpoint_settings_are_those_of_the_program():
    settings = {
        "execution.checkpointing.interval": "3 s",
        "execution.checkpointing.mode": "AT_LEAST_ONCE",
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
    }
    with harness(**settings) as job:
        found = view("/checkpoints/config", job.snapshot())
    assert (found["interval"], found["max_concurrent"]) == (3000, 1)
    assert found["externalization"] == {"enabled": True, "delete_on_cancellation": False}
    assert found["state_backend"] == "filesystem"


def test_a_job_without_checkpoints_has_the_interval_of_flink(job):
    assert view("/checkpoints/config", job.snapshot())["interval"] == 2**63 - 1
