"""What the answers say about checkpoints and savepoints equals the log of checkpoints."""

from __future__ import annotations

import threading

import pytest
from snapshot_jobs import WORDS, harness, program, vertex_id, view

from penstock.common import Types
from penstock.datastream import CheckpointedFunction, KeyedProcessFunction, MapFunction, StreamExecutionEnvironment
from penstock.datastream.state import ListStateDescriptor, ValueStateDescriptor
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


class Fussy(KeyedProcessFunction):
    def open(self, runtime_context):
        self.last = runtime_context.get_state(ValueStateDescriptor("last", str))

    def process_element(self, value, ctx):
        if value == "fail":
            raise ValueError("cannot keep this")
        self.last.update(value)
        yield value


def test_a_failed_checkpoint_has_the_times_and_sizes_of_the_tasks_that_acknowledged_it():
    env = StreamExecutionEnvironment.get_execution_environment()
    stream = env.from_collection([]).uid("in").key_by(lambda word: word).process(Fussy()).uid("last")
    with JobHarness(stream, parallelism=8) as job:
        job.set_clock(1000)
        job.set_pace(0.01, "in")
        with pytest.raises(UserFunctionFailed):
            job.push("fail", *map(str, range(30))).epoch()
        snapshot = job.snapshot()
    failed = view("/checkpoints", snapshot)["latest"]["failed"]
    tasks = view("/checkpoints/details/:checkpointid", snapshot, checkpointid="1")["tasks"]
    read, kept = tasks[vertex_id(snapshot, "in")], tasks[vertex_id(snapshot, "last")]
    assert read["num_acknowledged_subtasks"] == 8
    assert 0 < kept["num_acknowledged_subtasks"] < 8
    for task in (read, kept):
        assert 0 < task["end_to_end_duration"] <= failed["end_to_end_duration"]
        assert task["latest_ack_timestamp"] == failed["trigger_timestamp"] + task["end_to_end_duration"]
    assert failed["latest_ack_timestamp"] == kept["latest_ack_timestamp"]
    assert failed["checkpointed_size"] == kept["checkpointed_size"] > 0


class Listed(MapFunction, CheckpointedFunction):
    """Keeps its records in operator state."""

    def initialize_state(self, context):
        self.kept = context.get_operator_state_store().get_list_state(ListStateDescriptor("kept", Types.STRING()))

    def snapshot_state(self, context):
        pass

    def map(self, value):
        self.kept.add(value)
        return value


def test_the_sizes_of_a_checkpoint_include_operator_state():
    env = StreamExecutionEnvironment.get_execution_environment()
    stream = env.from_collection([]).uid("in").rebalance().map(Listed()).uid("listed")
    with JobHarness(stream, parallelism=2) as job:
        sizes = []
        for word in ("a" * 500, "b" * 700):
            job.push(word).epoch()
            snapshot = job.snapshot()
            latest = view("/checkpoints", snapshot)["latest"]["completed"]
            details = view("/checkpoints/details/:checkpointid", snapshot, checkpointid=str(latest["id"]))
            task = details["tasks"][vertex_id(snapshot, "listed")]
            assert (task["checkpointed_size"], task["state_size"]) == (
                latest["checkpointed_size"],
                latest["state_size"],
            )
            # A manifest contains all operator state.
            assert latest["checkpointed_size"] == latest["state_size"]
            sizes.append(latest["state_size"])
        assert 500 <= sizes[0] < 600
        assert 1200 <= sizes[1] < 1400
        path = "/checkpoints/details/:checkpointid/subtasks/:vertexid"
        parts = view(path, snapshot, checkpointid="2", vertexid=vertex_id(snapshot, "listed"))
        assert parts["summary"]["state_size"]["max"] + parts["summary"]["state_size"]["min"] == sizes[1]


def test_a_savepoint_has_the_tasks_of_its_checkpoint(job, tmp_path):
    job.push(*WORDS).epoch()
    job.savepoint(tmp_path)
    snapshot = job.snapshot()
    saved = next(each for each in snapshot.checkpoints.history if each.savepoint)
    assert (saved.subtasks, saved.acknowledged) == (6, 6)
    assert [task.vertex for task in saved.tasks] == [vertex.id for vertex in snapshot.vertices]
    assert sum(task.state_bytes for task in saved.tasks) == saved.state_bytes == saved.checkpointed_bytes > 0
    assert {task.latest_ack_ms for task in saved.tasks} == {saved.latest_ack_ms}
    assert saved.latest_ack_ms == saved.triggered_ms + saved.duration_ms


def test_no_task_has_acknowledged_a_savepoint_that_is_being_written(job):
    job.push(*WORDS).epoch()
    with job._driver.pinned_last() as (manifest, _), job.checkpoints.saving(manifest, ends_job=False) as completed:
        under_way = next(each for each in job.snapshot().checkpoints.history if each.savepoint)
        assert (under_way.status, under_way.subtasks, under_way.acknowledged) == ("IN_PROGRESS", 6, 0)
        completed("/savepoints/1")
    with (
        pytest.raises(OSError),
        job._driver.pinned_last() as (manifest, _),
        job.checkpoints.saving(manifest, ends_job=False),
    ):
        raise OSError("the disk is full")
    failed = job.snapshot().checkpoints.latest_failed
    assert (failed.subtasks, failed.acknowledged, failed.failure) == (6, 0, "the disk is full")


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
