"""The endpoints and types of the contract: in the code, and over HTTP with exactly the fields that clients expect."""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from fake_gateway import CHECKPOINT, COUNT, EXECUTOR, JOB, JOBS
from http_service import OPEN, Service, multipart, served
from rest_contract import CONTRACT, NULLABLE, TYPES, check_answer

from penstock.driver.job_snapshot import Operation
from penstock.rest import contract
from penstock.rest.endpoints import ENDPOINTS, Endpoint

TRIGGER = "e" * 32
BODIES: dict[tuple[str, str], Any] = {
    ("PUT", "/jobs/:jobid/resource-requirements"): {
        "jobVertexResourceRequirements": {
            vertex: {"parallelism": {"lowerBound": 1, "upperBound": 2}} for vertex in ("a" * 32, "b" * 32)
        }
    },
    ("POST", "/savepoint-disposal"): {"savepoint-path": "/savepoints/1"},
}
QUERIES = {("PATCH", "/jobs/:jobid"): "?mode=cancel", ("PATCH", "/jobs/:jobid/rescaling"): "?parallelism=3"}
NAMES = {"VertexDetailsInfo": "messagesJobVertexDetailsInfo", "TaskManagersOverview": "taskmanagerTaskManagersInfo"}
"""Types whose name in the contract is another one than in the code."""
STRUCTS = {
    NAMES.get(name, name): struct
    for name, struct in vars(contract).items()
    if isinstance(struct, type) and issubclass(struct, msgspec.Struct) and struct is not msgspec.Struct
}
OPTIONAL = {each.body for each in CONTRACT.values() if each.body} - {
    "JobResourceRequirementsBody",
    "SavepointDisposalRequest",
}
"""Request bodies whose fields can be left out."""
SCALARS = {int: "i", float: "n", str: "s", bool: "b", Any: "any", msgspec.Raw: "RawJson"}


def text_of(form: Any) -> str:
    """Return a type of the code as the contract writes it."""
    for name in ("JobState", "TaskState"):
        if form == getattr(contract, name):
            return name
    origin, arguments = typing.get_origin(form), typing.get_args(form)
    if origin is typing.Literal:
        return "|".join(arguments)
    if origin is list:
        return f"[{text_of(arguments[0])}]"
    if origin is dict:
        return "{}" if arguments[1] is Any else f"{{*: {text_of(arguments[1])}}}"
    if origin in (typing.Union, types.UnionType):
        (present,) = [each for each in arguments if each is not type(None)]
        return f"{text_of(present)}?"
    return SCALARS[form] if form in SCALARS else NAMES.get(form.__name__, form.__name__)


def test_the_endpoints_are_those_of_the_contract() -> None:
    described = {
        (each.method, each.path): (
            each.status,
            each.query,
            each.multipart,
            None if each.body is None else text_of(each.body),
            text_of(each.answer),
        )
        for each in ENDPOINTS
    }
    assert len(described) == len(ENDPOINTS)
    assert described == {
        key: (each.status, each.query, each.multipart, each.body, each.answer) for key, each in CONTRACT.items()
    }


@pytest.mark.parametrize("name", STRUCTS)
def test_a_type_has_the_fields_of_the_contract(name: str) -> None:
    described = TYPES[name]
    assert isinstance(described, dict)
    optional = "?" if name in OPTIONAL | NULLABLE else ""
    fields = {each.encode_name: text_of(each.type) for each in msgspec.structs.fields(STRUCTS[name])}
    assert set(fields) == set(described)
    for field, form in described.items():
        # Ids are text, and the result of a job is any object.
        allowed = {"any": ("s", "any"), "{*: any}": ("{}",)}.get(form, (form,))
        assert fields[field] in [each + optional for each in allowed], field


def test_the_states_are_those_of_the_contract() -> None:
    for name in ("JobState", "TaskState"):
        assert "|".join(typing.get_args(getattr(contract, name))) == TYPES[name]


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/jobs/:jobid/status", {}),
        ("/jobs/:jobid/status", {"status": "RUNNING", "more": 1}),
        ("/jobs/:jobid/status", {"status": "STARTED"}),
        ("/jobs/:jobid/status", {"status": None}),
        ("/jobs", {"jobs": [{"id": 1, "status": "RUNNING"}]}),
        ("/jobs", {"jobs": None}),
        ("/jars", {"address": "", "files": [{"id": "a", "name": "a", "uploaded": 1.5, "entry": []}]}),
        ("/jars", {"address": "", "files": [{"id": "a", "name": "a", "uploaded": True, "entry": []}]}),
        ("/jobs/:jobid/metrics", [{"id": "uptime", "value": "1"}]),
        ("/jobs/:jobid/vertices/:vertexid/watermarks", [{"id": "0.currentInputWatermark", "value": 5}]),
    ],
)
def test_the_check_of_an_answer_finds_what_a_strict_client_refuses(path: str, answer: Any) -> None:
    with pytest.raises(AssertionError):
        check_answer("GET", path, json.dumps(answer).encode())


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with served(tmp_path_factory.mktemp("service"), OPEN) as service:
        body, headers = multipart("job.py", b"print()")
        assert service.ask("POST", "/jars/upload", body, headers).status == 200
        for job in ("", *JOBS.values()):
            service.gateway.operations[job, TRIGGER] = Operation(trigger_id=TRIGGER)
        yield service


def path_of(service: Service, endpoint: Endpoint, job: str = JOB) -> str:
    values = {
        "jobid": job,
        "vertexid": COUNT,
        "triggerid": TRIGGER,
        "taskmanagerid": EXECUTOR,
        "checkpointid": str(CHECKPOINT),
        "subtaskindex": "1",
        "attempt": "0",
        "jarid": next(iter(service.gateway.stored)),
    }
    path = endpoint.path
    for name, value in values.items():
        path = path.replace(f":{name}", value)
    assert ":" not in path
    return path + QUERIES.get((endpoint.method, endpoint.path), "")


def name_of(endpoint: Endpoint) -> str:
    return f"{endpoint.method} {endpoint.path}"


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=name_of)
@pytest.mark.parametrize("prefix", ["", "/v1"])
def test_every_endpoint_answers_as_the_contract_says(service: Service, endpoint: Endpoint, prefix: str) -> None:
    body: Any = BODIES.get((endpoint.method, endpoint.path))
    headers: dict[str, str] = {}
    if endpoint.path == "/jars/upload":
        body, headers = multipart("job.py", b"print()")
    service.gateway.asked.clear()
    answer = service.ask(endpoint.method, prefix + path_of(service, endpoint), body, headers)
    if (endpoint.method, endpoint.path) == ("POST", "/jobs"):
        assert answer.status == 400
        assert "POST /jars/upload" in answer.error
        return
    assert answer.status == endpoint.status, answer.body
    assert answer.headers["content-type"] == "application/json"
    check_answer(endpoint.method, endpoint.path, answer.body)
    if endpoint.path == "/jars/:jarid":
        upload, headers = multipart("job.py", b"print()")
        service.ask("POST", "/jars/upload", upload, headers)


@pytest.mark.parametrize("state", JOBS)
def test_reads_of_a_job_in_any_state_are_complete(service: Service, state: str) -> None:
    for endpoint in ENDPOINTS:
        if endpoint.method == "GET" and endpoint.path.startswith("/jobs/:jobid") and ":vertexid" not in endpoint.path:
            if state == "INITIALIZING" and "checkpointid" in endpoint.path:
                continue
            if state not in ("RUNNING", "RESTARTING") and "taskmanagerid" in endpoint.path:
                continue
            answer = service.get(path_of(service, endpoint, JOBS[state]))
            assert answer.status == endpoint.status, (endpoint.path, answer.body)
            check_answer("GET", endpoint.path, answer.body)


METRICS = [each for each in ENDPOINTS if "get" in each.query]


@pytest.mark.parametrize("endpoint", METRICS, ids=name_of)
def test_metrics_that_are_asked_for_have_values(service: Service, endpoint: Endpoint) -> None:
    path = path_of(service, endpoint)
    names = [each["id"] for each in service.get(path).json]
    answer = service.get(f"{path}?get={quote(','.join(names))}")
    check_answer("GET", endpoint.path, answer.body, {"get": "all"})
    if "agg" not in endpoint.query:
        assert [each["id"] for each in answer.json] == names
        return
    assert answer.json
    answer = service.get(f"{path}?get={quote(','.join(names))}&agg=min,skew")
    check_answer("GET", endpoint.path, answer.body, {"get": "all", "agg": "min,skew"})
    assert answer.json


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=name_of)
def test_an_unsupported_method_names_the_supported_ones(service: Service, endpoint: Endpoint) -> None:
    answer = service.ask("OPTIONS", path_of(service, endpoint))
    assert answer.status == 405
    assert endpoint.method in answer.headers["allow"].split(", ")
    assert endpoint.method in answer.error


@pytest.mark.parametrize("path", ["/v2/jobs", "/v1/v1/jobs", "/v0/overview", "/nothing", "//jobs", "/jobs/%2e%2e/x"])
def test_another_version_or_path_is_not_found(service: Service, path: str) -> None:
    answer = service.get(path)
    assert answer.status == 404
    assert "does not exist" in answer.error


@pytest.mark.parametrize("endpoint", [each for each in ENDPOINTS if ":jobid" in each.path], ids=name_of)
def test_an_unknown_job_is_not_found(service: Service, endpoint: Endpoint) -> None:
    body = BODIES.get((endpoint.method, endpoint.path))
    answer = service.ask(endpoint.method, path_of(service, endpoint, "f" * 32), body)
    assert answer.status == 404
    assert "f" * 32 in answer.error


@pytest.mark.parametrize("endpoint", [each for each in ENDPOINTS if ":vertexid" in each.path], ids=name_of)
def test_an_unknown_vertex_is_not_found(service: Service, endpoint: Endpoint) -> None:
    answer = service.get(path_of(service, endpoint).replace(COUNT, "f" * 32))
    assert answer.status == 404
    assert answer.error


@pytest.mark.parametrize("endpoint", [each for each in ENDPOINTS if ":triggerid" in each.path], ids=name_of)
def test_an_unknown_trigger_is_not_found(service: Service, endpoint: Endpoint) -> None:
    answer = service.get(path_of(service, endpoint).replace(TRIGGER, "f" * 32))
    assert answer.status == 404
    assert "f" * 32 in answer.error


@pytest.mark.parametrize(("method", "suffix"), [("DELETE", ""), ("GET", "/plan"), ("POST", "/plan"), ("POST", "/run")])
def test_an_unknown_program_is_not_found(service: Service, method: str, suffix: str) -> None:
    assert service.ask(method, f"/jars/unknown.py{suffix}").status == 404


def test_the_list_of_jobs_is_the_snapshot_of_each_job(service: Service) -> None:
    jobs = service.get("/jobs/overview").json["jobs"]
    assert {(job["jid"], job["state"]) for job in jobs} == {(job_id, state) for state, job_id in JOBS.items()}


def test_the_openapi_document_describes_every_endpoint(service: Service, tmp_path: Path) -> None:
    document = service.get("/penstock/v1/openapi.json").json
    for endpoint in ENDPOINTS:
        path = "/".join(f"{{{part[1:]}}}" if part.startswith(":") else part for part in endpoint.path.split("/"))
        operation = document["paths"][path][endpoint.method.lower()]
        assert str(endpoint.status) in operation["responses"]
        assert {each["name"] for each in operation["parameters"]} >= set(endpoint.query)
    schemas = document["components"]["schemas"]
    assert "jid" in schemas["JobDetailsInfo"]["properties"]
    text = msgspec.json.encode(document).decode()
    references = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert references
    assert references <= set(schemas)
