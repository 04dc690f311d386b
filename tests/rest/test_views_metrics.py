"""Metrics of jobs, vertices, subtasks and executors: listed, read and aggregated."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from rest_contract import check_answer
from snapshot_jobs import EXECUTOR, WORDS, harness, vertex_id, view

from penstock.datastream import MapFunction, StreamExecutionEnvironment
from penstock.driver.job_snapshot import JobSnapshot, SubtaskSnapshot, VertexSnapshot
from penstock.rest.views import VIEWS
from penstock.testing import JobHarness

FLINKS = {
    "numRecordsIn",
    "numRecordsOut",
    "numBytesIn",
    "numBytesOut",
    "numRecordsInPerSecond",
    "numRecordsOutPerSecond",
    "currentInputWatermark",
    "busyTimeMsPerSecond",
    "idleTimeMsPerSecond",
    "backPressuredTimeMsPerSecond",
    "isBackPressured",
}


@pytest.fixture(scope="module")
def job():
    with harness() as running:
        yield running.push(*WORDS)


@pytest.fixture(scope="module")
def snapshot(job):
    job.epoch()
    return job.snapshot()


def test_a_subtask_has_the_metrics_of_flink_and_those_of_its_operators(job, snapshot):
    words = vertex_id(snapshot, "words")
    path = "/vertices/:vertexid/subtasks/:subtaskindex/metrics"
    listed = {each["id"] for each in view(path, snapshot, vertexid=words, subtaskindex="0")}
    assert listed >= FLINKS | {"parse.parsed", "parse.lengths.max", "words.numRecordsIn"}
    wanted = {"get": "parse.parsed,parse.lengths.max,no such metric"}
    values = view(path, snapshot, wanted, vertexid=words, subtaskindex="0")
    assert values == [{"id": "parse.parsed", "value": "7"}, {"id": "parse.lengths.max", "value": "3"}]


def test_an_operators_metrics_are_known_by_its_name_and_by_its_uid(snapshot):
    vertex = VertexSnapshot(
        id="0" * 32,
        uid="u",
        name="Count",
        operators=[msgspec.convert(["u", "Count", "Map"], type=type(snapshot.vertices[0].operators[0]))],
        subtasks=[SubtaskSnapshot()],
        metrics={"u.seen": [3]},
    )
    listed = view("/vertices/:vertexid/metrics", replace(snapshot, vertices=[vertex]), vertexid=vertex.id)
    assert {"0.u.seen", "0.Count.seen"} <= {each["id"] for each in listed}


def test_metrics_of_a_vertex_start_with_the_subtask(job, snapshot):
    last = vertex_id(snapshot, "last")
    counts = job.metrics().subtasks("last.numRecordsIn")
    wanted = {"get": "0.numRecordsIn,1.numRecordsIn,2.numRecordsIn,x.numRecordsIn,0.nothing"}
    values = view("/vertices/:vertexid/metrics", snapshot, wanted, vertexid=last)
    assert values == [{"id": f"{number}.numRecordsIn", "value": str(counts[number])} for number in (0, 1)]


def test_subtasks_are_aggregated_as_asked(job, snapshot):
    last, counts = vertex_id(snapshot, "last"), job.metrics().subtasks("last.numRecordsIn")
    path = "/vertices/:vertexid/subtasks/metrics"
    (found,) = view(path, snapshot, {"get": "numRecordsIn", "agg": "min,max,sum"}, vertexid=last)
    assert found == {
        "id": "numRecordsIn",
        "min": min(counts.values()),
        "max": max(counts.values()),
        "sum": sum(counts.values()),
    }
    (second,) = view(path, snapshot, {"get": "numRecordsIn", "agg": "sum", "subtasks": "1-5"}, vertexid=last)
    assert second["sum"] == counts[1]
    assert view(path, snapshot, {"get": "isBackPressured"}, vertexid=last) == []


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=20))
def test_aggregations_follow_their_definitions(counts):
    vertex = VertexSnapshot(
        id="1" * 32, uid="u", name="u", subtasks=[SubtaskSnapshot(records_in=count) for count in counts]
    )
    job = JobSnapshot(id="0" * 32, name="job", state="RUNNING", vertices=[vertex])
    (found,) = view("/vertices/:vertexid/subtasks/metrics", job, {"get": "numRecordsIn"}, vertexid=vertex.id)
    mean = sum(counts) / len(counts)
    assert (found["min"], found["max"], found["sum"]) == (min(counts), max(counts), sum(counts))
    assert found["avg"] == pytest.approx(mean)
    deviation = sum(abs(count - mean) for count in counts) / len(counts)
    assert found["skew"] == (pytest.approx(100 * deviation / mean) if mean else 0)


class Gauges(MapFunction):
    """A user function whose gauges have no value that JSON has, as a mean has before its first record."""

    def open(self, runtime_context):
        metrics = runtime_context.get_metrics_group()
        for name in ("nan", "inf", "-inf", "1e308", "7"):
            metrics.gauge(f"g{name}", lambda name=name: float(name))
        self.sizes = metrics.distribution("sizes")

    def map(self, value):
        self.sizes.update(float("nan"))
        return value


def test_numbers_that_json_does_not_have_are_left_out():
    env = StreamExecutionEnvironment.get_execution_environment()
    words = env.from_collection([]).uid("words").key_by(lambda word: word).map(Gauges()).uid("gauges")
    with JobHarness(words, parallelism=2, backend="filesystem") as running:
        running.push(*WORDS).epoch()
        job = running.snapshot()
    # A cluster's job sends its snapshot as JSON, and an application's does not.
    assert msgspec.json.decode(msgspec.json.encode(job), type=JobSnapshot) == job
    vertex = vertex_id(job, "gauges")
    names = [each["id"] for each in view("/vertices/:vertexid/subtasks/metrics", job, vertexid=vertex)]
    query = {"get": ",".join(names)}
    path = "/jobs/:jobid/vertices/:vertexid/subtasks/metrics"
    check_answer("GET", path, msgspec.json.encode(VIEWS[path](job, {"vertexid": vertex}, query)), query)
    found = {each["id"]: each for each in view("/vertices/:vertexid/subtasks/metrics", job, query, vertexid=vertex)}
    assert {name for name in found if name.startswith("gauges.g")} == {"gauges.g1e308", "gauges.g7"}
    assert found["gauges.g7"] == {"id": "gauges.g7", "min": 7, "max": 7, "avg": 7, "sum": 14, "skew": 0}
    assert found["gauges.g1e308"]["max"] == 1e308
    assert found["gauges.sizes.count"]["sum"] == len(WORDS)
    assert "gauges.sizes.mean" not in found


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=5))
def test_aggregations_of_all_numbers_are_numbers(values):
    vertex = VertexSnapshot(
        id="1" * 32, uid="u", name="u", metrics={"u.gauge": values}, subtasks=[SubtaskSnapshot() for _ in values]
    )
    job = JobSnapshot(id="0" * 32, name="job", state="RUNNING", vertices=[vertex])
    (found,) = view("/vertices/:vertexid/subtasks/metrics", job, {"get": "u.gauge"}, vertexid=vertex.id)
    assert all(isinstance(each, float) for name, each in found.items() if name != "id")
    assert (found["min"], found["max"]) == (min(values), max(values))


def test_a_jobs_metrics_describe_its_checkpoints(job, snapshot):
    last = job.checkpoints.latest_completed
    wanted = {"get": "numberOfCompletedCheckpoints,lastCheckpointSize,lastCheckpointFullSize,epoch"}
    assert {each["id"]: int(each["value"]) for each in view("/metrics", snapshot, wanted)} == {
        "numberOfCompletedCheckpoints": 1,
        "lastCheckpointSize": last.delta_bytes,
        "lastCheckpointFullSize": last.state_bytes,
        "epoch": 1,
    }


def cluster(path: str, jobs: list[JobSnapshot], query: dict[str, str] | None = None, **params: str) -> Any:
    return msgspec.json.decode(msgspec.json.encode(VIEWS[path](jobs, params, query or {})))


def jobs_with_executors() -> list[JobSnapshot]:
    bare = JobSnapshot(id="a" * 32, name="one", state="RUNNING", application="app-1", executors=[EXECUTOR])
    second = replace(EXECUTOR, id="1", slots=4, active_tasks=0, heap_used=100, excluded=True)
    other = replace(bare, id="b" * 32, application="app-2", executors=[EXECUTOR, second])
    return [bare, other, replace(bare, id="c" * 32, state="FINISHED", application="app-3")]


def test_metrics_of_jobs_are_aggregated_over_the_selected_ones():
    jobs = [replace(job, restarts=number) for number, job in enumerate(jobs_with_executors(), 1)]
    (found,) = cluster("/jobs/metrics", jobs, {"get": "numRestarts", "agg": "sum,avg"})
    assert found == {"id": "numRestarts", "sum": 6, "avg": 2}
    wanted = {"get": "numRestarts", "agg": "sum", "jobs": f"{jobs[0].id},{jobs[2].id}"}
    assert cluster("/jobs/metrics", jobs, wanted) == [{"id": "numRestarts", "sum": 4}]


def test_executors_of_all_running_jobs_are_task_managers():
    jobs = jobs_with_executors()
    listed = cluster("/taskmanagers", jobs)["taskmanagers"]
    assert [each["id"] for each in listed] == ["app-1-0", "app-2-0", "app-2-1"]
    assert [(each["slotsNumber"], each["freeSlots"]) for each in listed] == [(2, 1), (2, 1), (4, 4)]
    details = cluster("/taskmanagers/:taskmanagerid", jobs, taskmanagerid="app-2-0")
    assert [slot["jobId"] for slot in details["allocatedSlots"]] == ["b" * 32]
    assert (details["metrics"]["heapUsed"], details["metrics"]["heapMax"]) == (400, 1000)
    (slots,) = cluster("/taskmanagers/metrics", jobs, {"get": "taskSlotsTotal", "agg": "sum"})
    assert slots["sum"] == 8
    chosen = {"get": "Status.JVM.Memory.Heap.Used", "agg": "max", "taskmanagers": "app-2-1"}
    assert cluster("/taskmanagers/metrics", jobs, chosen)[0]["max"] == 100


def test_the_overview_counts_jobs_and_slots():
    found = cluster("/overview", jobs_with_executors())
    assert (found["jobs-running"], found["jobs-finished"], found["jobs-failed"]) == (2, 1, 0)
    assert (found["taskmanagers"], found["slots-total"], found["slots-available"]) == (3, 8, 6)
    assert (found["taskmanagers-blocked"], found["slots-free-and-blocked"]) == (1, 4)
    values = cluster("/jobmanager/metrics", jobs_with_executors(), {"get": "taskSlotsAvailable,numRunningJobs"})
    assert values == [{"id": "taskSlotsAvailable", "value": "6"}, {"id": "numRunningJobs", "value": "2"}]
