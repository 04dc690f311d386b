"""Secrets that a job has in its settings and arguments, and prints: they appear nowhere that others can look."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from itertools import product
from pathlib import Path
from urllib.parse import quote

import pytest
from rest_requests import RestRequests
from service import Service

from penstock.rest.endpoints import ENDPOINTS, Endpoint
from penstock.rest.own_endpoints import OWN_ENDPOINTS, TEXT_ENDPOINTS

pytestmark = pytest.mark.slow

SECRET, PASSWORD, OPAQUE = "correct-horse-battery-staple", "open-sesame-and-close", "swordfish-of-the-deep"
OF_SERVICE = "rosebud-of-the-service"
REVEALING = """
import logging, sys
from penstock.datastream import StreamExecutionEnvironment
env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
passwords = f"{sys.argv[2]} and {sys.argv[3].partition('=')[2]}"
key = env.get_configuration().get_string("spark.hadoop.fs.s3a.secret.key", "")
env.get_config().set_global_job_parameters({"note": f"log in with {key}", "password": "x" + key})
logging.getLogger("penstock").warning("log in with %s and %s", key, passwords)
def fail(n):
    if n > 60:
        raise ValueError(f"cannot log in with {key}, {passwords}")
    return n
checked = env.from_sequence(1, 10**9).map(fail).uid("login")
checked.key_by(lambda n: n % 3).reduce(lambda a, b: a + b).uid("sums").print()
env.execute("revealing")
"""
"""With 20 records per epoch, it fails in the fourth one."""
NOT_FOR_A_SCAN = {"/jobs/:jobid/yarn-cancel", "/penstock/v1/events", "/jars/:jarid/plan"}
"""An action, a stream without an end, and one that runs the program."""
UNSERVED = 409
"""The answer about queryable states of a job that has none."""
READS = [
    each
    for each in (*ENDPOINTS, *OWN_ENDPOINTS, *TEXT_ENDPOINTS)
    if each.method == "GET" and each.path not in NOT_FOR_A_SCAN
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    settings = {"spark__driver__memory": "512m", "spark.service.password": OF_SERVICE}
    with Service(tmp_path_factory.mktemp("cluster"), **settings) as cluster:
        yield cluster


def test_planted_secrets_appear_in_no_answer_file_or_command_line(cluster: Service) -> None:
    service = cluster.rest
    settings = {"spark.hadoop.fs.s3a.secret.key": SECRET, "restart-strategy": "fixed-delay"}
    settings |= {"restart-strategy.fixed-delay.delay": "1 h"}
    program = service.upload("revealing.py", REVEALING)
    arguments = ["--password", PASSWORD, f"--api-token={OPAQUE}"]
    job = service.run(program, flinkConfiguration=settings, programArgsList=arguments)
    service.await_state(job, "RESTARTING", within_s=200)
    read = check_answers(service, job)
    assert read == {each.path for each in READS}
    exceptions = service.ask("GET", f"/jobs/{job}/exceptions")["exceptionHistory"]["entries"]
    assert "cannot log in with ***, *** and ***" in exceptions[0]["stacktrace"]
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            assert not secrets_in(command.read_bytes())
    check_files(cluster)
    service.ask("PATCH", f"/jobs/{job}?mode=cancel")
    service.await_state(job, "CANCELED")
    ended = service.run(program, flinkConfiguration=settings | {"restart-strategy": "none"}, programArgsList=arguments)
    service.await_state(ended, "FAILED", within_s=200)
    read = check_answers(service, ended)
    assert {each.path for each in READS} - read == {
        each.path
        for each in READS
        if ":taskmanagerid" in each.path or (":triggerid" in each.path and ":jobid" in each.path)
    }
    check_files(cluster)


def check_answers(service: RestRequests, job: str) -> set[str]:
    """Read every endpoint with every id that the job has, and all metrics. Return the paths that were read."""
    values = ids_of(service, job)
    found = set()
    for endpoint in READS:
        names = [part[1:] for part in endpoint.path.split("/") if part.startswith(":")]
        for chosen in product(*(values_for(endpoint, name, values) for name in names)):
            path = endpoint.path
            for name, value in zip(names, chosen, strict=True):
                path = path.replace(f":{name}", quote(value), 1)
            if ":triggerid" in endpoint.path and path not in values["polls"]:
                continue
            found.add(endpoint.path)
            data = check_answer(service, path, UNSERVED if "/states" in endpoint.path else endpoint.status)
            if "get" in endpoint.query and data:
                metrics = quote(",".join(each["id"] for each in json.loads(data)))
                check_answer(service, f"{path}?get={metrics}", endpoint.status)
    return found


def check_answer(service: RestRequests, path: str, expected: int) -> bytes:
    status, data = service.answer("GET", path)
    assert status == expected, (path, data)
    assert not secrets_in(data), path
    return data


def ids_of(service: RestRequests, job: str) -> dict[str, list[str]]:
    """Return the ids that paths of this job can have."""
    checkpoints = service.ask("GET", f"/jobs/{job}/checkpoints")["history"]
    vertices = service.ask("GET", f"/jobs/{job}")["vertices"]
    managers = [each["id"] for each in service.ask("GET", "/taskmanagers")["taskmanagers"]]
    attempt = service.ask("GET", f"/jobs/{job}/vertices/{vertices[0]['id']}")["subtasks"][0]["attempt"]
    polls, triggers = [], []
    for method, action, polled in (
        ("POST", "checkpoints", f"/jobs/{job}/checkpoints"),
        ("POST", "savepoints", f"/jobs/{job}/savepoints"),
        ("PATCH", "rescaling?parallelism=2", f"/jobs/{job}/rescaling"),
    ):
        status, data = service.answer(method, f"/jobs/{job}/{action}", {} if method == "POST" else None)
        # A job that has ended has no operations to poll, which the paths of a disposal show as well.
        if status < 300:
            triggers.append(json.loads(data)["request-id"])
            polls.append(f"{polled}/{triggers[-1]}")
    body = {"savepoint-path": f"s3a://user:{SECRET}@bucket/savepoint"}
    triggers.append(service.ask("POST", "/savepoint-disposal", body)["request-id"])
    polls.append(f"/savepoint-disposal/{triggers[-1]}")
    assert {each["status"] for each in checkpoints} == {"COMPLETED", "FAILED"}
    return {
        "jobid": [job],
        "vertexid": [each["id"] for each in vertices],
        "subtaskindex": ["0"],
        "attempt": [str(attempt)],
        "checkpointid": [str(each["id"]) for each in checkpoints],
        "taskmanagerid": managers,
        "triggerid": triggers,
        "polls": polls,
        "state": ["sums"],
        "logs of the service": [each["name"] for each in service.ask("GET", "/jobmanager/logs")["logs"]],
        "logs of the job": [each["name"] for each in service.ask("GET", f"/penstock/v1/jobs/{job}/logs")["logs"]],
    }


def values_for(endpoint: Endpoint, name: str, values: dict[str, list[str]]) -> list[str]:
    if name != "name":
        return values[name]
    return values["logs of the service" if endpoint.path.startswith("/jobmanager/") else "logs of the job"]


def check_files(cluster: Service) -> None:
    files = [path for path in cluster.dispatcher.directory.root.rglob("*") if path.is_file()]
    assert [path for path in files if path.name == "jobmanager.log"]
    assert not [path for path in files if secrets_in(path.read_bytes())]


def secrets_in(data: bytes) -> list[str]:
    return [secret for secret in (SECRET, PASSWORD, OPAQUE, OF_SERVICE) if secret.encode() in data]
