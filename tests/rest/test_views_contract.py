"""Every view answers for jobs in every state, with exactly the fields and types of the contract."""

from __future__ import annotations

import re

import msgspec
import pytest
from msgspec.structs import replace
from rest_contract import check_answer
from snapshot_jobs import EXECUTOR, in_every_state

from penstock.driver.job_snapshot import JobSnapshot
from penstock.rest.endpoints import ENDPOINTS
from penstock.rest.views import VIEWS, BadQuery, NotFound
from penstock.rest.views.shared import ENDED, JOB_STATES

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
        wanted = {"get": "numRecordsIn,0.numRecordsIn,uptime,taskSlotsTotal"}
        if "get" in GETS[path].query:
            found += [(path, one, wanted) for one in choices]
        if "agg" in GETS[path].query:
            found += [(path, one, wanted | {"agg": "max,skew"}) for one in choices]
    return found


def test_every_get_endpoint_has_a_view_or_is_known_to_need_more_than_a_snapshot():
    assert set(GETS) == set(VIEWS) | NOT_FROM_SNAPSHOTS
    assert not set(VIEWS) & NOT_FROM_SNAPSHOTS


EXECUTORS = {path for path in VIEWS if ":taskmanagerid" in path}
CHECKPOINTS = {path for path in VIEWS if ":checkpointid" in path}
VERTICES = {path for path in VIEWS if ":vertexid" in path}
UNAVAILABLE = {
    "CREATED": CHECKPOINTS,
    "INITIALIZING": CHECKPOINTS | VERTICES | EXECUTORS,
    "RUNNING": set(),
    "RESTARTING": set(),
    "FINISHED": EXECUTORS,
    "CANCELED": EXECUTORS,
    "FAILED": EXECUTORS,
}
"""Paths to objects that a job in this state does not have."""


@pytest.mark.parametrize("state", UNAVAILABLE)
def test_every_answer_has_exactly_the_fields_of_the_contract_for_a_job_in_each_state(snapshots, state):
    job = snapshots[state]
    assert job.state == state
    made = calls(job)
    for path, params, query in made:
        answer = VIEWS[path](job if ":jobid" in path else [job], params, query)
        check_answer("GET", path, msgspec.json.encode(answer), query)
    assert set(VIEWS) - {path for path, _, _ in made} == UNAVAILABLE[state]


@pytest.mark.parametrize("state", JOB_STATES)
def test_a_job_of_which_only_the_records_are_left_has_the_fields_of_the_contract(state):
    """Its process died before it sent or stored a snapshot, or its records cannot be read."""
    job = JobSnapshot(
        id="a" * 32, name="bare", state=state, ended_ms=9 if state in ENDED else -1, reason="Its process died."
    )
    paths = [path for path in VIEWS if not {":vertexid", ":taskmanagerid", ":checkpointid"} & set(path.split("/"))]
    assert len(paths) > 15
    for path in paths:
        wanted = {"get": "uptime,numRunningJobs,taskSlotsTotal"}
        for query in ({}, wanted if "get" in GETS[path].query else {}):
            answer = VIEWS[path](job if ":jobid" in path else [job], {"jobid": job.id}, query)
            check_answer("GET", path, msgspec.json.encode(answer), query)


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
