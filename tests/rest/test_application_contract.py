"""Every endpoint of a program that serves its own job has the fields of the contract."""

from __future__ import annotations

import json
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from fake_gateway import CHECKPOINT, COUNT, EXECUTOR, JOB, snapshot
from program_job import AJob
from rest_contract import check_answer
from rest_requests import RestRequests

from penstock.rest.application_service import served_application
from penstock.rest.command_types import ClusterDescription
from penstock.rest.endpoints import ENDPOINTS, Endpoint
from penstock.rest.own_endpoints import OWN_ENDPOINTS, TEXT_ENDPOINTS
from penstock.rest.state_endpoints import STATE_ENDPOINTS

READS = [each for each in ENDPOINTS if each.method == "GET"]
ABSENT = {"/jars/:jarid/plan": 409, "/penstock/v1/jobs/:jobid/logs/:name": 404, "/jobmanager/logs/:name": 404}
ABSENT |= {each.path: 409 for each in STATE_ENDPOINTS}
ABSENT |= {"/taskmanagers/:taskmanagerid/logs/:name": 404}
"""What a program does not have: other programs, log files, and here queryable state."""
OTHERS = ("/penstock/v1/events", "/jobs/:jobid/yarn-cancel")
"""Never ends, and ends the job."""


@pytest.fixture(scope="module")
def triggers() -> dict[str, str]:
    """The id of an operation by the path of its poll."""
    return {}


@pytest.fixture(scope="module")
def rest(tmp_path_factory: pytest.TempPathFactory, triggers: dict[str, str]) -> Iterator[RestRequests]:
    """A running job whose operations have been triggered."""
    settings = {"cluster.dir": str(tmp_path_factory.mktemp("cluster")), "rest.port": "0", "rest.auth.enabled": "false"}
    with pytest.MonkeyPatch.context() as patched, served_application(settings) as (gateway, address):
        patched.setattr("penstock.rest.application_service._LAST_ANSWERS_S", 0.0)
        job = AJob()
        job.savepoint.set_result("/savepoints/1")
        job.now = snapshot(JOB, name="counts")
        gateway.attach(job, job)  # type: ignore[arg-type]
        rest = RestRequests(int(address.rpartition(":")[2]))
        for method, kind in (("POST", "checkpoints"), ("PATCH", "rescaling?parallelism=3"), ("POST", "stop")):
            _, data = rest.answer(method, f"/jobs/{JOB}/{kind}", {} if method == "POST" else None)
            polled = {"stop": "savepoints"}.get(kind, kind.partition("?")[0])
            triggers[f"/jobs/:jobid/{polled}/:triggerid"] = json.loads(data)["request-id"]
        _, data = rest.answer("POST", "/savepoint-disposal", {"savepoint-path": "/savepoints/none"})
        triggers["/savepoint-disposal/:triggerid"] = json.loads(data)["request-id"]
        yield rest


def path_of(endpoint: Endpoint, triggers: dict[str, str]) -> str:
    path = endpoint.path
    values = {"jobid": JOB, "vertexid": COUNT, "taskmanagerid": EXECUTOR, "checkpointid": str(CHECKPOINT)}
    values |= {"subtaskindex": "1", "attempt": "0", "jarid": "a.py", "name": "a.log", "state": "totals"}
    for name, value in (values | {"triggerid": triggers.get(endpoint.path, "")}).items():
        path = path.replace(f":{name}", value)
    assert ":" not in path
    return path


def name_of(endpoint: Endpoint) -> str:
    return endpoint.path


@pytest.mark.parametrize("endpoint", READS, ids=name_of)
def test_every_read_has_the_fields_of_the_contract(
    rest: RestRequests, triggers: dict[str, str], endpoint: Endpoint
) -> None:
    path = path_of(endpoint, triggers)
    status, data = rest.answer("GET", path)
    if endpoint.path in ABSENT:
        assert (status, list(json.loads(data))) == (ABSENT[endpoint.path], ["errors"])
        return
    assert status == endpoint.status, data
    check_answer("GET", endpoint.path, data)
    if "get" in endpoint.query:
        names = ",".join(each["id"] for each in json.loads(data))
        query = {"get": names} | ({"agg": "min,skew"} if "agg" in endpoint.query else {})
        status, data = rest.answer("GET", f"{path}?" + "&".join(f"{key}={quote(each)}" for key, each in query.items()))
        assert status == endpoint.status
        assert bool(json.loads(data)) == bool(names)
        check_answer("GET", endpoint.path, data, query)


@pytest.mark.parametrize("path", ["checkpoints", "savepoints", "rescaling"])
def test_operations_complete(rest: RestRequests, triggers: dict[str, str], path: str) -> None:
    trigger = triggers[f"/jobs/:jobid/{path}/:triggerid"]
    answer = rest.until(
        lambda: rest.ask("GET", f"/jobs/{JOB}/{path}/{trigger}"), lambda found: found["status"]["id"] == "COMPLETED"
    )
    results = {"checkpoints": {"checkpointId": 8}, "savepoints": {"location": "/savepoints/1"}, "rescaling": {}}
    assert answer["operation"] == results[path]


@pytest.mark.parametrize(
    "endpoint",
    [each for each in (*OWN_ENDPOINTS, *TEXT_ENDPOINTS) if each.method == "GET" and each.path not in OTHERS],
    ids=name_of,
)
def test_every_other_read_answers(rest: RestRequests, triggers: dict[str, str], endpoint: Endpoint) -> None:
    status, data = rest.answer("GET", path_of(endpoint, triggers))
    assert status == ABSENT.get(endpoint.path, endpoint.status), data
    if endpoint.path == "/penstock/v1/jobs":
        assert [(each["name"], each["status"]) for each in json.loads(data)] == [("counts", "RUNNING")]
    if endpoint.answer is ClusterDescription:
        assert json.loads(data)["application"] is True


def test_the_program_is_the_whole_cluster(rest: RestRequests) -> None:
    overview = rest.ask("GET", "/overview")
    assert (overview["jobs-running"], overview["taskmanagers"], overview["slots-total"]) == (1, 1, 2)
    assert [each["name"] for each in rest.ask("GET", "/jobs/overview")["jobs"]] == ["counts"]
    assert rest.ask("GET", "/jars")["files"] == []
