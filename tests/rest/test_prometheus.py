"""The metrics for Prometheus: they parse with its official parser, and have Flink's names and labels."""

from pathlib import Path

import msgspec
import pytest
from fake_gateway import JOB, snapshot
from snapshot_jobs import EXECUTOR, running

from penstock.driver.job_snapshot import JobSnapshot, OperatorFacts, SubtaskSnapshot, VertexSnapshot
from penstock.driver.prometheus import exposition

parser = pytest.importorskip("prometheus_client.parser")

OF_JOBS = {
    *("uptime", "downtime", "numRestarts", "fullRestarts", "runningTime", "restartingTime"),
    *(
        "lastCheckpointCompletedTimestamp",
        "numberOfCompletedCheckpoints",
        "numberOfFailedCheckpoints",
        "numberOfInProgressCheckpoints",
    ),
    *("totalNumberOfCheckpoints", "lastCheckpointDuration", "lastCheckpointSize", "lastCheckpointFullSize"),
    *("lastCompletedCheckpointId", "lastCheckpointRestoreTimestamp"),
}
OF_TASKS = {
    *("numRecordsIn", "numRecordsOut", "numBytesIn", "numBytesOut", "numRecordsInPerSecond"),
    *("numRecordsOutPerSecond", "numBytesInPerSecond", "numBytesOutPerSecond", "currentInputWatermark"),
    *("busyTimeMsPerSecond", "backPressuredTimeMsPerSecond", "idleTimeMsPerSecond"),
}
OF_CLUSTER = {"numRunningJobs", "numRegisteredTaskManagers", "taskSlotsTotal", "taskSlotsAvailable"}
OF_OPERATORS = {"numRecordsIn", "numRecordsOut", "numRecordsInPerSecond", "numRecordsOutPerSecond", "numBytesOut"}
OF_EXECUTORS = {
    *("Memory_Heap_Used", "Memory_Heap_Max", "Memory_Heap_Committed", "Memory_NonHeap_Used"),
    *("GarbageCollector_Young_Count", "GarbageCollector_Young_Time"),
}
OWN = {
    *("flink_jobmanager_job_epoch", "flink_jobmanager_job_epochRecords", "flink_jobmanager_job_epochDurationMs"),
    *("flink_jobmanager_job_epochCycleMs", "flink_jobmanager_job_slotsNeeded", "flink_jobmanager_job_slotsAvailable"),
    *("flink_taskmanager_taskSlotsTotal", "flink_taskmanager_activeTasks"),
    *("flink_taskmanager_pythonMemoryUsed", "flink_taskmanager_pythonWorkers"),
    *("flink_taskmanager_diskTotal", "flink_taskmanager_diskFree"),
    *("flink_taskmanager_stateBlocks", "flink_taskmanager_stateBytes"),
    *("flink_taskmanager_standbyBlocks", "flink_taskmanager_standbyBytes"),
    *("flink_taskmanager_storageMemoryUsed", "flink_taskmanager_storageMemoryMax"),
}
"""Metrics of Penstock that Flink does not have, in the scopes of Flink."""
OF_THE_PROGRAM = {"parsed", "lengths_count", "lengths_sum", "lengths_min", "lengths_max", "lengths_mean"}
SCOPES = ["taskmanager_job_task_operator", "taskmanager_job_task", "jobmanager_job_operator", "jobmanager_job"]
SCOPES += ["taskmanager", "jobmanager"]
"""A scope comes after those that begin with it."""


def flinks_list() -> dict[str, set[str]]:
    """Return the labels of Flink's metrics by name. The names are those of Flink 2.3, and `fullRestarts` of 1.20."""
    lines = (Path(__file__).parents[1] / "data" / "flink_metrics.tsv").read_text().splitlines()[1:]
    return {name: set(labels.split()) for name, labels in (line.split("\t") for line in lines)}


def parsed(*jobs):
    return {family.name: family for family in parser.text_string_to_metric_families(exposition(jobs, "here"))}


def with_executor(tmp_path) -> JobSnapshot:
    job = running(tmp_path)
    measured = msgspec.structs.replace(EXECUTOR, collectors={"Young": (3, 40)})
    return msgspec.structs.replace(job, executors=[measured], application="app-1")


def test_the_names_are_those_of_flinks_list_or_known_as_our_own(tmp_path):
    found, flink = set(parsed(with_executor(tmp_path))), flinks_list()
    assert {f"flink_jobmanager_{name}" for name in OF_CLUSTER} <= found & flink.keys()
    assert {f"flink_jobmanager_job_{name}" for name in OF_JOBS} <= found & flink.keys()
    assert {f"flink_taskmanager_job_task_{name}" for name in OF_TASKS} <= found & flink.keys()
    assert {f"flink_taskmanager_job_task_operator_{name}" for name in OF_OPERATORS} <= found & flink.keys()
    assert {f"flink_taskmanager_Status_JVM_{name}" for name in OF_EXECUTORS} <= found
    of_operators = "flink_taskmanager_job_task_operator_"
    unknown = {
        name
        for name in found - flink.keys() - OWN
        if name.replace("_Young_", "_<collector>_") not in flink
        and not name.startswith((f"{of_operators}to_", "flink_jobmanager_job_operator_"))
        and name.removeprefix(of_operators) not in OF_THE_PROGRAM | {"numBuffersOut", "bufferFill"}
    }
    assert unknown == set()


def test_every_sample_has_the_labels_that_flink_has_in_its_scope(tmp_path):
    of_scope = {}
    for name, labels in flinks_list().items():
        scope = next(each for each in SCOPES if name.startswith(f"flink_{each}_"))
        of_scope.setdefault(scope, labels)
    seen = set()
    for name, family in parsed(with_executor(tmp_path)).items():
        scope = next(each for each in SCOPES if name.startswith(f"flink_{each}_"))
        seen.add(scope)
        for sample in family.samples:
            assert set(sample.labels) == of_scope[scope], name
    assert seen == set(SCOPES)


def test_the_help_is_that_of_flinks_reporter(tmp_path):
    assert parsed(running(tmp_path))["flink_jobmanager_job_uptime"].documentation == "uptime (scope: jobmanager_job)"


def test_values_of_labels_are_filtered_as_flink_does():
    job = JobSnapshot(id="1" * 32, name="word count, é", state="RUNNING")
    text = exposition([job], "a-host.b", filter_values=True)
    (sample,) = {each.name: each for each in parser.text_string_to_metric_families(text)}[
        "flink_jobmanager_job_uptime"
    ].samples
    assert (sample.labels["job_name"], sample.labels["host"]) == ("word_count___", "a_host_b")


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
