"""Flink's REST API over a real service: jobs in every state, compared with the facts of their programs."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode

import pytest
from rest_contract import check_answer
from rest_requests import RestRequests
from service import Service, jvm_of

from penstock.rest.endpoints import ENDPOINTS, Endpoint

pytestmark = pytest.mark.slow

ENDLESS = """
from penstock.datastream import MapFunction, StreamExecutionEnvironment

class Counting(MapFunction):
    def open(self, context):
        self.seen = context.get_metrics_group().counter("seen")
    def map(self, value):
        self.seen.inc()
        return value

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)
env.set_max_parallelism(16)
numbers = env.from_sequence(1, 10**9)
keyed = numbers.map(Counting()).uid("count").key_by(lambda n: n % 7)
keyed.reduce(lambda a, b: a + b).uid("sums").name("Sums").filter(lambda n: n < 0).uid("none").print().uid("out")
env.execute("endless")
"""
FINITE = """
from penstock.datastream import StreamExecutionEnvironment
env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
env.from_sequence(1, 100).uid("numbers").key_by(lambda n: n % 3).reduce(lambda a, b: a + b).uid("sums").print()
env.execute("finite")
"""
FAILING = """
from penstock.datastream import StreamExecutionEnvironment
env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
def look_up(n):
    if n > 60:
        raise ValueError("no such customer")
    return n
looked_up = env.from_sequence(1, 10**9).map(look_up).uid("lookup")
looked_up.key_by(lambda n: n % 3).reduce(lambda a, b: a + b).uid("sums").print()
env.execute("failing")
"""
"""With 20 records per epoch, it fails in the fourth one."""
STATES = ("RUNNING", "FINISHED", "FAILED", "CANCELED", "RESTARTING")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    # Ten checkpoints must last longer than the second between two snapshots of a job.
    settings = {"spark__driver__memory": "512m", "execution__checkpointing__interval": "500 ms"}
    with Service(tmp_path_factory.mktemp("cluster"), **settings) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def service(cluster: Service) -> RestRequests:
    return cluster.rest


@pytest.fixture(scope="module")
def jobs(service: RestRequests) -> dict[str, str]:
    """One job in each state, by state."""
    slow = {"flinkConfiguration": {"penstock.epoch.max-records": "1000"}}
    endless = service.upload("endless.py", ENDLESS)
    finite, failing = service.upload("finite.py", FINITE), service.upload("failing.py", FAILING)
    never = {"restart-strategy": "none"}
    later = {"restart-strategy": "fixed-delay", "restart-strategy.fixed-delay.delay": "1 h"}
    found = {
        "FINISHED": service.run(finite),
        "FAILED": service.run(failing, flinkConfiguration=never),
        "RESTARTING": service.run(failing, flinkConfiguration=later),
        "CANCELED": service.run(endless, **slow),
    }
    service.await_state(found["CANCELED"], "RUNNING", within_s=200)
    await_checkpoints(service, found["CANCELED"])
    service.ask("PATCH", f"/jobs/{found['CANCELED']}?mode=cancel")
    found["RUNNING"] = service.run(endless, **slow)
    for state, job in found.items():
        service.await_state(job, state, within_s=200)
    await_checkpoints(service, found["RUNNING"])
    return found


def await_checkpoints(service: RestRequests, job: str) -> None:
    service.until(
        lambda: service.ask("GET", f"/jobs/{job}/checkpoints")["counts"]["completed"], lambda completed: completed > 2
    )


@contextmanager
def paused(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def details(service: RestRequests, job: str) -> Any:
    return service.ask("GET", f"/jobs/{job}")


def checkpoints(service: RestRequests, job: str, status: str) -> list[int]:
    """Return the ids of the checkpoints in the history that have this status."""
    history = service.ask("GET", f"/jobs/{job}/checkpoints")["history"]
    return [each["id"] for each in history if each["status"] == status]


def reads_of_jobs() -> list[Endpoint]:
    return [each for each in ENDPOINTS if each.method == "GET" and "/jobs/:jobid" in each.path]


def read(service: RestRequests, endpoint: Endpoint, **parameters: str) -> None:
    """Read an endpoint, with the values of all its metrics if it has some, and compare with the contract."""
    path = endpoint.path
    for name, value in parameters.items():
        path = path.replace(f":{name}", value)
    assert ":" not in path
    status, data = service.answer("GET", path)
    assert status == endpoint.status, (path, data)
    check_answer("GET", endpoint.path, data)
    if "get" not in endpoint.query:
        return
    wanted = {"get": ",".join(each["id"] for each in json.loads(data))}
    for query in (wanted, wanted | {"agg": "min,sum"}) if "agg" in endpoint.query else (wanted,):
        status, data = service.answer("GET", f"{path}?{urlencode(query)}")
        assert status == endpoint.status, (path, data)
        check_answer("GET", endpoint.path, data, query)


@pytest.mark.parametrize("state", STATES)
def test_every_read_of_a_job_in_any_state_has_the_fields_of_the_contract(
    service: RestRequests, jobs: dict[str, str], state: str
) -> None:
    job = jobs[state]
    failed = checkpoints(service, job, "FAILED")
    assert failed == ([4] if state in ("FAILED", "RESTARTING") else [])
    vertices = [each["id"] for each in details(service, job)["vertices"]]
    assert vertices
    subtasks = service.ask("GET", f"/jobs/{job}/vertices/{vertices[-1]}")["subtasks"]
    values = {"jobid": job, "vertexid": vertices[-1], "subtaskindex": "0", "attempt": str(subtasks[0]["attempt"])}
    for endpoint in reads_of_jobs():
        if ":triggerid" in endpoint.path or ":taskmanagerid" in endpoint.path:
            # Below, for running jobs.
            continue
        if ":checkpointid" in endpoint.path:
            # A running job soon has ten newer ones, and then no longer shows this one.
            newest = max(checkpoints(service, job, "COMPLETED"))
            for checkpoint in (newest, *failed):
                read(service, endpoint, checkpointid=str(checkpoint), **values)
        else:
            read(service, endpoint, **values)


def test_every_read_of_a_task_manager_has_the_fields_of_the_contract(
    service: RestRequests, jobs: dict[str, str]
) -> None:
    managers = [each["id"] for each in service.ask("GET", "/taskmanagers")["taskmanagers"]]
    vertex = details(service, jobs["RUNNING"])["vertices"][-1]["id"]
    tasks = service.ask("GET", f"/jobs/{jobs['RUNNING']}/vertices/{vertex}")["subtasks"]
    assert {each["taskmanager-id"] for each in tasks} <= set(managers)
    for endpoint in ENDPOINTS:
        if endpoint.method == "GET" and ":taskmanagerid" in endpoint.path:
            read(service, endpoint, jobid=jobs["RUNNING"], taskmanagerid=tasks[0]["taskmanager-id"])


def test_every_read_of_the_service_has_the_fields_of_the_contract(service: RestRequests, jobs: dict[str, str]) -> None:
    endpoints = [each for each in ENDPOINTS if each.method == "GET" and ":" not in each.path]
    for endpoint in endpoints:
        read(service, endpoint)
    assert len(endpoints) == 13
    for path in ("/jobmanager/log", "/jobmanager/stdout"):
        assert service.answer("GET", path)[0] == 200


@pytest.mark.parametrize(
    ("kind", "method", "query"),
    [("savepoints", "POST", ""), ("checkpoints", "POST", ""), ("rescaling", "PATCH", "?parallelism=2")],
)
def test_a_poll_of_an_operation_has_the_fields_of_the_contract(
    service: RestRequests, jobs: dict[str, str], kind: str, method: str, query: str
) -> None:
    path = f"/jobs/{jobs['RUNNING']}/{kind}"
    trigger = service.ask(method, path + query, {} if method == "POST" else None)["request-id"]
    (endpoint,) = [each for each in reads_of_jobs() if each.path == f"/jobs/:jobid/{kind}/:triggerid"]
    read(service, endpoint, jobid=jobs["RUNNING"], triggerid=trigger)
    service.until(lambda: service.ask("GET", f"{path}/{trigger}")["status"]["id"], lambda id: id == "COMPLETED")
    read(service, endpoint, jobid=jobs["RUNNING"], triggerid=trigger)


def test_the_graph_of_a_job_is_that_of_its_program(service: RestRequests, jobs: dict[str, str]) -> None:
    job = details(service, jobs["RUNNING"])
    assert (job["name"], job["state"], job["maxParallelism"]) == ("endless", "RUNNING", 16)
    source, sums = job["vertices"]
    assert source["name"].startswith("Source: Sequence")
    assert (sums["parallelism"], sums["maxParallelism"]) == (2, 16)
    (read,) = job["plan"]["nodes"][1]["inputs"]
    assert (read["id"], read["ship_strategy"]) == (source["id"], "HASH")


def test_record_counts_are_those_of_the_input(service: RestRequests, jobs: dict[str, str]) -> None:
    job = details(service, jobs["FINISHED"])
    source, sums = (vertex["metrics"] for vertex in job["vertices"])
    assert (source["write-records"], sums["read-records"]) == (100, 100)


def test_a_failed_job_shows_the_exception_of_its_function(service: RestRequests, jobs: dict[str, str]) -> None:
    entries = service.ask("GET", f"/jobs/{jobs['FAILED']}/exceptions")["exceptionHistory"]["entries"]
    assert "no such customer" in entries[0]["stacktrace"]
    result = service.ask("GET", f"/jobs/{jobs['FAILED']}/execution-result")
    assert result["status"]["id"] == "COMPLETED"
    assert "no such customer" in str(result["job-execution-result"])


def test_a_restarting_job_shows_the_failure_that_it_recovers_from(service: RestRequests, jobs: dict[str, str]) -> None:
    entries = service.ask("GET", f"/jobs/{jobs['RESTARTING']}/exceptions")["exceptionHistory"]["entries"]
    assert "no such customer" in entries[0]["stacktrace"]


def test_the_overview_counts_the_jobs_by_state(service: RestRequests, jobs: dict[str, str]) -> None:
    overview = service.ask("GET", "/overview")
    assert overview["jobs-finished"] == 1
    assert overview["jobs-failed"] == 1
    assert overview["jobs-cancelled"] == 1
    # One executor with one slot for each job that has a Spark application.
    assert overview["taskmanagers"] == overview["slots-total"] == 2


def test_a_savepoint_is_polled_until_its_path_is_known(service: RestRequests, jobs: dict[str, str]) -> None:
    job = jobs["RUNNING"]
    trigger = service.ask("POST", f"/jobs/{job}/savepoints", {"triggerId": "a" * 32})["request-id"]
    assert trigger == "a" * 32
    again = service.ask("POST", f"/jobs/{job}/savepoints", {"triggerId": "a" * 32})["request-id"]
    assert again == trigger
    poll = service.until(
        lambda: service.ask("GET", f"/jobs/{job}/savepoints/{trigger}"),
        lambda answer: answer["status"]["id"] == "COMPLETED",
    )
    assert "savepoint-endless" in poll["operation"]["location"]


def test_a_rescaled_job_shows_its_new_parallelism(service: RestRequests, jobs: dict[str, str]) -> None:
    job = jobs["RUNNING"]
    trigger = service.ask("PATCH", f"/jobs/{job}/rescaling?parallelism=3")["request-id"]
    service.until(
        lambda: service.ask("GET", f"/jobs/{job}/rescaling/{trigger}")["status"]["id"], lambda id: id == "COMPLETED"
    )
    service.until(lambda: details(service, job)["vertices"][1]["parallelism"], lambda parallelism: parallelism == 3)
    assert require(service, job, 2) == (200, b"{}")
    service.until(lambda: details(service, job)["vertices"][1]["parallelism"], lambda parallelism: parallelism == 2)


def require(service: RestRequests, job: str, bound: int) -> tuple[int, bytes]:
    """Set the upper bound of all vertices except the sources, as Flink's autoscaler does, and return the answer."""
    path = f"/jobs/{job}/resource-requirements"
    bounds = service.ask("GET", path)
    sources = [each["id"] for each in details(service, job)["plan"]["nodes"] if not each["inputs"]]
    for vertex, requirements in bounds["jobVertexResourceRequirements"].items():
        requirements["parallelism"]["upperBound"] = 1000 if vertex in sources else bound
    return service.answer("PUT", path, bounds)


def test_a_parallelism_that_no_operator_can_have_is_not_acknowledged(
    service: RestRequests, jobs: dict[str, str]
) -> None:
    job = jobs["RUNNING"]
    status, data = require(service, job, 17)
    assert status == 400
    assert b"exceeds its maximum parallelism of 16" in data
    path = f"/jobs/{job}/rescaling"
    trigger = service.ask("PATCH", f"{path}?parallelism=17")["request-id"]
    poll = service.until(
        lambda: service.ask("GET", f"{path}/{trigger}"), lambda answer: answer["status"]["id"] == "COMPLETED"
    )
    assert poll["operation"]["failure-cause"]["class"] == "CannotRescale"
    assert details(service, job)["vertices"][1]["parallelism"] < 17


def test_a_stopped_job_refuses_other_operations_and_ends_as_finished_with_its_savepoint(
    cluster: Service, service: RestRequests
) -> None:
    job = service.run(service.upload("endless.py", ENDLESS), flinkConfiguration={"penstock.epoch.max-records": "1000"})
    service.await_state(job, "RUNNING", within_s=200)
    await_checkpoints(service, job)
    trigger = "b" * 32
    with paused(jvm_of(cluster.claim(job))):
        # The stop waits for the epoch in progress.
        assert service.ask("POST", f"/jobs/{job}/stop", {"triggerId": trigger})["request-id"] == trigger
        for path, body in (("stop", {}), ("stop", {"drain": True}), ("savepoints", {}), ("checkpoints", {})):
            status, answer = service.answer("POST", f"/jobs/{job}/{path}", body)
            assert (status, b"The job is being stopped." in answer) == (409, True), answer
        assert service.answer("PATCH", f"/jobs/{job}/rescaling?parallelism=1")[0] == 409
        assert service.ask("POST", f"/jobs/{job}/stop", {"triggerId": trigger})["request-id"] == trigger
    poll = service.until(
        lambda: service.ask("GET", f"/jobs/{job}/savepoints/{trigger}"),
        lambda answer: answer["status"]["id"] == "COMPLETED",
    )
    assert "savepoint-endless" in poll["operation"]["location"]
    assert service.await_state(job, "FINISHED", "FAILED", "CANCELED") == "FINISHED"
    status, _ = service.answer("POST", f"/jobs/{job}/stop", {})
    assert status == 409


ACTIONS: tuple[tuple[str, str, str, Any], ...] = (
    ("PATCH", "/jobs/:jobid/clientHeartbeat", "", {"expiredTimestamp": 1}),
    ("POST", "/jobs/:jobid/checkpoints", "", {"checkpointType": "FULL"}),
    ("POST", "/jobs/:jobid/savepoints", "", {"target-directory": "/nowhere"}),
    ("PATCH", "/jobs/:jobid/rescaling", "?parallelism=2", None),
    ("PUT", "/jobs/:jobid/resource-requirements", "", None),
    ("POST", "/jobs/:jobid/stop", "", {}),
    # Last: it ends the job.
    ("PATCH", "/jobs/:jobid", "?mode=cancel", None),
)
POLLED = {"checkpoints": "checkpoints", "savepoints": "savepoints", "rescaling": "rescaling", "stop": "savepoints"}


@pytest.mark.parametrize("state", ["FINISHED", "FAILED", "CANCELED", "RESTARTING"])
def test_actions_on_a_job_that_does_not_run_answer_as_the_contract_says(
    service: RestRequests, jobs: dict[str, str], state: str
) -> None:
    """The last test of these jobs: it cancels the restarting one."""
    job = jobs[state]
    assert {path for _, path, _, _ in ACTIONS} == {
        each.path for each in ENDPOINTS if each.method != "GET" and ":jobid" in each.path
    }
    triggers = []
    for method, path, query, body in ACTIONS:
        if path.endswith("/resource-requirements"):
            status, data = require(service, job, 2)
        else:
            status, data = service.answer(method, path.replace(":jobid", job) + query, body)
        (expected,) = [each.status for each in ENDPOINTS if (each.method, each.path) == (method, path)]
        if state == "RESTARTING" or path.endswith("/clientHeartbeat"):
            assert status == expected, (method, path, data)
            check_answer(method, path, data)
            if "request-id" in json.loads(data):
                triggers.append((path, json.loads(data)["request-id"]))
        else:
            assert status == 409, (method, path, data)
            (text,) = json.loads(data)["errors"]
            assert "has ended" in text
            assert state in text
    if state == "RESTARTING":
        service.await_state(job, "CANCELED")
        assert len(triggers) == len(POLLED)
    for path, trigger in triggers:
        poll = completed(service, f"/jobs/{job}/{POLLED[path.rpartition('/')[2]]}/{trigger}")
        # A rescale has no result that could be missing.
        if not path.endswith("/rescaling"):
            assert "has ended" in poll["operation"]["failure-cause"]["stack-trace"], (path, poll)


def completed(service: RestRequests, path: str) -> Any:
    """Poll an operation until it is completed, and return the answer."""
    return service.until(lambda: service.ask("GET", path), lambda answer: answer["status"]["id"] == "COMPLETED")
