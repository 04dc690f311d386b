"""Errors of the cluster in answers: their status and text, without secrets."""

from __future__ import annotations

import logging

import pytest
from fake_gateway import JOB, JOBS, snapshot
from http_service import Service, multipart

from penstock.cluster.coordination import CoordinationUnavailable
from penstock.cluster.gateway import Conflict, NotLeading, Timeout
from penstock.common.options import BadSetting
from penstock.common.program_files import BadProgram
from penstock.control.client import NoAnswer, RefusedByJob
from penstock.driver.control_messages import Refused
from penstock.driver.job_snapshot import Operation
from penstock.errors import PenstockError
from penstock.rest.agent_endpoints import AGENT_ENDPOINTS
from penstock.rest.endpoints import ENDPOINTS
from penstock.rest.own_endpoints import OWN_ENDPOINTS, TEXT_ENDPOINTS

SECRET = "hunter2-is-the-secret"
SETTINGS = {
    "s3.secret-key": SECRET,
    "state.checkpoints.fs.key": SECRET,
    "fs.s3a.access.key": SECRET,
    "my.password": SECRET,
    "some.uri": f"postgresql://user:{SECRET}@db/x",
}


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (Conflict("Busy.", fix="Wait."), 409),
        (RefusedByJob(Refused(kind="X", problem="Busy.", fix="Wait.")), 409),
        (RefusedByJob(Refused(kind="UnknownOperation", problem="Busy.", fix="Wait.")), 404),
        (NotLeading("Busy.", fix="Wait."), 503),
        (Timeout("Busy.", fix="Wait."), 503),
        (NoAnswer("Busy.", fix="Wait."), 503),
        (CoordinationUnavailable("Busy.", fix="Wait."), 503),
        (BadSetting("Busy.", fix="Wait."), 400),
        (BadProgram("Busy.", fix="Wait."), 400),
        (PenstockError("Busy.", fix="Wait."), 500),
    ],
)
def test_an_error_of_the_cluster_has_its_status_and_text(service: Service, error: Exception, status: int) -> None:
    service.gateway.failure = error
    for method, path in (("GET", "/jobs/overview"), ("GET", f"/jobs/{JOB}"), ("POST", f"/jobs/{JOB}/stop")):
        answer = service.ask(method, path)
        assert (answer.status, answer.error) == (status, "Busy. Wait.")


def test_an_unexpected_error_is_logged_and_not_answered(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    service.gateway.failure = ZeroDivisionError("internals")
    with caplog.at_level(logging.ERROR):
        answer = service.get("/jobs")
    assert answer.status == 500
    assert "internals" not in answer.error
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize(
    "text",
    [
        f"Cannot read s3://user:{SECRET}@bucket/path.",
        f"The value '{SECRET}' is wrong.",
        f"password={SECRET}",
        "The token is {token}.",
    ],
)
def test_secrets_in_an_error_are_masked(service: Service, text: str, caplog: pytest.LogCaptureFixture) -> None:
    service.gateway.failure = PenstockError(text.format(token=service.token))
    answer = service.get("/jobs")
    assert answer.status == 500
    assert "***" in answer.error
    for secret in (SECRET, service.token):
        assert secret not in answer.body.decode()
        assert secret not in caplog.text


def test_secrets_in_a_failed_operation_are_masked(service: Service) -> None:
    failed = Operation(trigger_id="e" * 32, done=True, failure_kind="OSError", failure=f"No access with {SECRET}.")
    service.gateway.operations[JOB, "e" * 32] = failed
    answer = service.get(f"/jobs/{JOB}/savepoints/{'e' * 32}")
    assert answer.json["operation"]["failure-cause"]["stack-trace"] == "OSError: No access with ***."


def test_planted_secrets_appear_in_no_answer(service: Service) -> None:
    for state, job in JOBS.items():
        service.gateway.by_id[job] = snapshot(job, state, configuration={"x": "***"})
    values = {"jobid": JOB, "vertexid": "b" * 32, "taskmanagerid": "app-1-0", "name": "service.log"}
    for endpoint in (*ENDPOINTS, *OWN_ENDPOINTS, *TEXT_ENDPOINTS, *AGENT_ENDPOINTS):
        if endpoint.path == "/penstock/v1/events":
            continue
        path = endpoint.path
        for name, value in values.items():
            path = path.replace(f":{name}", value)
        answer = service.ask(endpoint.method, path.replace(":", ""))
        assert SECRET.encode() not in answer.body, endpoint
        assert service.token.encode() not in answer.body, endpoint
    settings = {each["key"]: each["value"] for each in service.get("/jobmanager/config").json}
    assert settings["my.password"] == "***"
    assert settings["some.uri"] == "postgresql://user:***@db/x"
    assert settings["rest.port"] == "0"


def test_a_failed_action_is_audited_without_its_text(service: Service) -> None:
    service.gateway.failure = PenstockError(f"Bad {SECRET}.")
    body, headers = multipart("job.py", SECRET.encode())
    assert service.ask("POST", f"/jars/upload?password={SECRET}", body, headers).status == 500
    assert service.audit()[-1]["outcome"] == 500
    assert SECRET not in (service.folder / "audit.log").read_text()


@pytest.mark.parametrize("path", ["/jobs/", "/jobs/overview/", "/jars/", "/taskmanagers/"])
def test_an_endless_id_is_unknown_and_not_quoted(service: Service, path: str) -> None:
    answer = service.get(path + "a" * 16_000)
    assert answer.status in (404, 405)
    assert len(answer.body) < 1_000


def test_an_error_of_any_length_is_cut(service: Service) -> None:
    service.gateway.failure = Conflict("x" * 1_000_000)
    assert len(service.get("/jobs").body) < 40_000


def test_a_body_that_is_not_utf_8_is_a_bad_request(service: Service) -> None:
    headers = {"Content-Type": "application/json"}
    answer = service.ask("POST", f"/jobs/{JOB}/savepoints", b'{"triggerId": "\xff"}', headers)
    assert answer.status == 400
