"""Every view answers for jobs in every state, with exactly the fields and types of the contract."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from snapshot_jobs import EXECUTOR, in_every_state

from penstock.driver.job_snapshot import JobSnapshot
from penstock.rest.endpoints import ENDPOINTS
from penstock.rest.views import VIEWS, BadQuery, NotFound


class MetricId(msgspec.Struct, forbid_unknown_fields=True):
    id: str


class MetricValue(msgspec.Struct, forbid_unknown_fields=True):
    id: str
    value: str


class Aggregated(msgspec.Struct, forbid_unknown_fields=True):
    id: str
    min: float
    max: float
    avg: float
    sum: float
    skew: float


class ExecutionConfig(msgspec.Struct, forbid_unknown_fields=True, rename="kebab"):
    execution_mode: str
    restart_strategy: str
    job_parallelism: int
    object_reuse_mode: bool
    user_config: dict[str, str]


class JobConfig(msgspec.Struct, forbid_unknown_fields=True, rename="kebab"):
    jid: str
    name: str
    execution_config: ExecutionConfig


GETS = {endpoint.path: endpoint for endpoint in ENDPOINTS if endpoint.method == "GET"}
NOT_FROM_SNAPSHOTS = {
    "/config",
    "/jars",
    "/jars/:jarid/plan",
    "/jobmanager/config",
    "/jobmanager/environment",
    "/jobmanager/logs",
    "/jobmanager/thread-dump",
    "/jobs/:jobid/checkpoints/:triggerid",
    "/jobs/:jobid/jobmanager/environment",
    "/jobs/:jobid/jobmanager/log-url",
    "/jobs/:jobid/rescaling/:triggerid",
    "/jobs/:jobid/savepoints/:triggerid",
    "/jobs/:jobid/taskmanagers/:taskmanagerid/log-url",
    "/savepoint-disposal/:triggerid",
    "/taskmanagers/:taskmanagerid/logs",
}


@pytest.fixture(scope="module")
def snapshots(tmp_path_factory) -> dict[str, JobSnapshot]:
    found = in_every_state(tmp_path_factory.mktemp("jobs"))
    return {
        state: replace(job, executors=[EXECUTOR], application=f"app-{state}") if job.vertices else job
        for state, job in found.items()
    }


def decoded(path: str, answer: Any, query: dict[str, str]) -> Any:
    form = GETS[path].answer
    if path.endswith("/metrics") or path.endswith("jm-operator-metrics"):
        aggregated = path in ("/jobs/metrics", "/taskmanagers/metrics") or path.endswith("/subtasks/metrics")
        form = list[MetricId] if "get" not in query else list[Aggregated] if aggregated else list[MetricValue]
    elif path.endswith("/watermarks"):
        form = list[MetricValue]
    elif path == "/jobs/:jobid/config":
        form = JobConfig
    return msgspec.json.decode(msgspec.json.encode(answer), type=form, strict=True)


def calls(job: JobSnapshot) -> list[tuple[str, dict[str, str], dict[str, str]]]:
    """Return every path of VIEWS with parameters that exist in this job, as far as the job has such objects."""
    found = []
    for path in VIEWS:
        choices: list[dict[str, str]] = [{"jobid": job.id}]
        if ":vertexid" in path:
            choices = [one | {"vertexid": vertex.id} for one in choices for vertex in job.vertices]
        if ":subtaskindex" in path:
            choices = [one | {"subtaskindex": number} for one in choices for number in ("0", "1")]
        if ":attempt" in path:
            choices = [one | {"attempt": str(job.restarts)} for one in choices]
        if ":checkpointid" in path:
            with_tasks = [each for each in job.checkpoints.history if not each.savepoint]
            choices = [one | {"checkpointid": str(each.id)} for one in choices for each in with_tasks]
        if ":taskmanagerid" in path:
            live = job.executors and job.state not in ("FINISHED", "CANCELED", "FAILED")
            choices = [one | {"taskmanagerid": f"{job.application}-0"} for one in choices] if live else []
        found += [(path, one, {}) for one in choices]
        if "get" in GETS[path].query:
            found += [(path, one, {"get": "numRecordsIn,0.numRecordsIn,uptime,taskSlotsTotal"}) for one in choices]
    return found


def test_every_get_endpoint_has_a_view_or_is_known_to_need_more_than_a_snapshot():
    assert set(GETS) == set(VIEWS) | NOT_FROM_SNAPSHOTS
    assert not set(VIEWS) & NOT_FROM_SNAPSHOTS


@pytest.mark.parametrize(
    "state", ["CREATED", "INITIALIZING", "RUNNING", "FINISHED", "CANCELED", "FAILED", "RESTARTING"]
)
def test_every_answer_decodes_strictly_for_a_job_in_each_state(snapshots, state):
    job = snapshots[state]
    assert job.state == state
    made = calls(job)
    for path, params, query in made:
        decoded(path, VIEWS[path](job if ":jobid" in path else [job], params, query), query)
    if job.vertices:
        answered = {path for path, _, _ in made}
        # A job without checkpoints has no details, and one that has ended has no task managers.
        assert len(answered) >= len(VIEWS) - 5


def test_a_snapshot_survives_json(snapshots):
    for job in snapshots.values():
        assert msgspec.json.decode(msgspec.json.encode(job), type=JobSnapshot) == job


def test_ids_of_vertices_are_32_hexadecimal_digits_and_stable(snapshots):
    ids = [[vertex.id for vertex in job.vertices] for job in snapshots.values() if job.vertices]
    assert all(re.fullmatch("[0-9a-f]{32}", each) for each in ids[0])
    assert len(set(ids[0])) == 3
    assert all(each == ids[0] for each in ids)


@pytest.mark.parametrize(
    ("path", "params"),
    [
        ("/jobs/:jobid/vertices/:vertexid", {"vertexid": "0" * 32}),
        ("/jobs/:jobid/vertices/:vertexid/subtasks/:subtaskindex", {"subtaskindex": "2"}),
        ("/jobs/:jobid/vertices/:vertexid/subtasks/:subtaskindex/metrics", {"subtaskindex": "7"}),
        (
            "/jobs/:jobid/vertices/:vertexid/subtasks/:subtaskindex/attempts/:attempt",
            {"subtaskindex": "0", "attempt": "3"},
        ),
        ("/jobs/:jobid/checkpoints/details/:checkpointid", {"checkpointid": "999"}),
        ("/taskmanagers/:taskmanagerid", {"taskmanagerid": "nothing"}),
        ("/taskmanagers/:taskmanagerid/metrics", {"taskmanagerid": "../../etc/passwd"}),
    ],
)
def test_an_object_that_does_not_exist_is_not_found(snapshots, path, params):
    job = snapshots["RUNNING"]
    params = {"vertexid": job.vertices[0].id} | params
    with pytest.raises(NotFound):
        VIEWS[path](job if ":jobid" in path else [job], params, {})


@pytest.mark.parametrize(
    ("path", "params", "query"),
    [
        ("/jobs/:jobid/vertices/:vertexid/subtasks/:subtaskindex", {"subtaskindex": "one"}, {}),
        ("/jobs/:jobid/vertices/:vertexid/subtasks/:subtaskindex", {"subtaskindex": "-1"}, {}),
        ("/jobs/:jobid/vertices/:vertexid/subtasks/:subtaskindex", {"subtaskindex": "9" * 5000}, {}),
        ("/jobs/:jobid/checkpoints/details/:checkpointid", {"checkpointid": "¹"}, {}),
        ("/jobs/:jobid/exceptions", {}, {"maxExceptions": "many"}),
        ("/jobs/:jobid/exceptions", {}, {"failureLabelFilter": "restart"}),
        ("/jobs/:jobid/accumulators", {}, {"includeSerializedValue": "perhaps"}),
        ("/jobs/:jobid/vertices/:vertexid/flamegraph", {}, {"type": "SIDEWAYS"}),
        ("/jobs/:jobid/vertices/:vertexid/flamegraph", {}, {"subtaskindex": "x"}),
        ("/jobs/:jobid/vertices/:vertexid/subtasks/metrics", {}, {"get": "numRecordsIn", "agg": "median"}),
        ("/jobs/:jobid/vertices/:vertexid/subtasks/metrics", {}, {"subtasks": "a-b"}),
        ("/jobs/metrics", {}, {"get": "uptime", "agg": "mean"}),
    ],
)
def test_an_invalid_parameter_is_refused(snapshots, path, params, query):
    job = snapshots["RUNNING"]
    params = {"vertexid": job.vertices[0].id} | params
    with pytest.raises(BadQuery):
        VIEWS[path](job if ":jobid" in path else [job], params, query)
