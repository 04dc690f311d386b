"""The metrics for Prometheus: they parse with its official parser, and have Flink's names and labels."""

import pytest
from fake_gateway import JOB, snapshot
from snapshot_jobs import running

from penstock.driver.job_snapshot import JobSnapshot, OperatorFacts, SubtaskSnapshot, VertexSnapshot
from penstock.rest.prometheus import exposition

parser = pytest.importorskip("prometheus_client.parser")

OF_JOBS = {
    *("uptime", "downtime", "numRestarts", "fullRestarts", "runningTime", "restartingTime"),
    *("numberOfCompletedCheckpoints", "numberOfFailedCheckpoints", "numberOfInProgressCheckpoints"),
    *("totalNumberOfCheckpoints", "lastCheckpointDuration", "lastCheckpointSize", "lastCheckpointFullSize"),
    *("lastCompletedCheckpointId", "lastCheckpointRestoreTimestamp"),
}
OF_TASKS = {
    *("numRecordsIn", "numRecordsOut", "numBytesIn", "numBytesOut", "numRecordsInPerSecond"),
    *("numRecordsOutPerSecond", "numBytesInPerSecond", "numBytesOutPerSecond", "currentInputWatermark"),
    *("busyTimeMsPerSecond", "backPressuredTimeMsPerSecond", "idleTimeMsPerSecond"),
}
OF_CLUSTER = {"numRunningJobs", "numRegisteredTaskManagers", "taskSlotsTotal", "taskSlotsAvailable"}
TASK_LABELS = {"host", "tm_id", "job_id", "job_name", "task_id", "task_name", "subtask_index"}


def parsed(*jobs):
    return {family.name: family for family in parser.text_string_to_metric_families(exposition(jobs, "here"))}


def test_names_and_labels_are_those_of_flink(tmp_path):
    found = parsed(running(tmp_path))
    assert {f"flink_jobmanager_{name}" for name in OF_CLUSTER} <= set(found)
    assert {f"flink_jobmanager_job_{name}" for name in OF_JOBS} <= set(found)
    assert {f"flink_taskmanager_job_task_{name}" for name in OF_TASKS} <= set(found)
    for name, family in found.items():
        for sample in family.samples:
            if name.startswith("flink_taskmanager_job_task_operator_"):
                assert set(sample.labels) == TASK_LABELS | {"operator_id", "operator_name"}
            elif name.startswith("flink_taskmanager_job_task_"):
                assert set(sample.labels) == TASK_LABELS
            elif name.startswith("flink_jobmanager_job_") and "_operator_" not in name:
                assert set(sample.labels) == {"host", "job_id", "job_name"}


def test_values_are_those_of_the_snapshot(tmp_path):
    job = running(tmp_path)
    found = parsed(job)
    for vertex in job.vertices:
        samples = found["flink_taskmanager_job_task_numRecordsIn"].samples
        values = {each.labels["subtask_index"]: each.value for each in samples if each.labels["task_id"] == vertex.id}
        assert values == {str(index): each.records_in for index, each in enumerate(vertex.subtasks)}
    (parsed_lines,) = {
        each.labels["operator_name"] for each in found["flink_taskmanager_job_task_operator_parsed"].samples
    }
    assert parsed_lines == "parse"


def test_a_name_occurs_in_one_block_however_many_jobs_have_it(tmp_path):
    job = running(tmp_path)
    text = exposition([job, snapshot(JOB)], "here")
    types = [line for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(types) == len(set(types))
    ids = {each.labels["job_id"] for each in parsed(job, snapshot(JOB))["flink_jobmanager_job_uptime"].samples}
    assert ids == {job.id, JOB}


def test_hostile_names_and_unusual_numbers_parse():
    hostile = 'a"b\\c\nd{}=é'
    vertex = VertexSnapshot(
        id="1" * 32,
        uid=hostile,
        name=hostile,
        operators=[OperatorFacts(uid=hostile, name=hostile, kind="map")],
        subtasks=[SubtaskSnapshot(host=hostile, records_in=2**70)],
        metrics={f"{hostile}.a-b.c é": [float("nan")], f"{hostile}.inf": [float("inf")], f"{hostile}.none": [None]},
    )
    found = parsed(JobSnapshot(id="1" * 32, name=hostile, state="RUNNING", vertices=[vertex]))
    (sample,) = found["flink_taskmanager_job_task_operator_inf"].samples
    assert sample.labels["operator_name"] == sample.labels["job_name"] == sample.labels["host"] == hostile
    assert sample.value == float("inf")
    assert "flink_taskmanager_job_task_operator_a_b_c__" in found
    assert "flink_taskmanager_job_task_operator_none" not in found


def test_ended_jobs_and_no_jobs_parse():
    assert set(parsed()) == {f"flink_jobmanager_{name}" for name in OF_CLUSTER}
    assert set(parsed(snapshot(JOB, "FINISHED"))) == {f"flink_jobmanager_{name}" for name in OF_CLUSTER}


def test_the_service_exports_all_jobs_and_each_one(service):
    everything = service.get("/metrics")
    assert everything.status == 200
    assert everything.headers["content-type"].startswith("text/plain; version=0.0.4")
    (running_job,) = parser.text_string_to_metric_families(
        "\n".join(
            line
            for line in service.get(f"/jobs/{JOB}/metrics/prometheus").body.decode().splitlines()
            if "numRunningJobs" in line
        )
        + "\n"
    )
    assert running_job.samples[0].value == 1
    assert service.get("/jobs/nothing/metrics/prometheus").status == 404
