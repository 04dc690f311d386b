"""Actions on jobs: what the cluster is asked to do, and the answers while it does it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fake_gateway import COUNT, JOB, JOBS, SOURCE, snapshot
from http_service import OPEN, Answer, Service, served, wait_for

from penstock.driver.control_messages import Cancel, MakeSavepoint, Rescale, Stop, TakeCheckpoint
from penstock.driver.job_snapshot import Operation

TRIGGER = "e" * 32
DONE = Operation(trigger_id=TRIGGER, done=True)


@pytest.mark.parametrize(
    ("path", "body", "asked"),
    [
        ("savepoints", {"target-directory": "/s", "formatType": "CANONICAL"}, MakeSavepoint(directory="/s")),
        ("savepoints", {}, MakeSavepoint()),
        (
            "savepoints",
            {"target-directory": "s3://b/p", "cancel-job": True},
            Cancel(savepoint=True, directory="s3://b/p"),
        ),
        ("stop", {"targetDirectory": "file:///s", "drain": True}, Stop(directory="file:///s", drain=True)),
        ("stop", None, Stop()),
        ("checkpoints", {"checkpointType": "FULL"}, TakeCheckpoint()),
    ],
)
def test_a_trigger_starts_the_operation(service: Service, path: str, body: Any, asked: Any) -> None:
    answer = service.ask("POST", f"/jobs/{JOB}/{path}", body)
    assert answer.status == 202
    assert len(answer.json["request-id"]) == 32
    assert service.gateway.asked == [("trigger", JOB, asked)]


def test_an_operation_is_polled_until_it_has_a_result(service: Service) -> None:
    trigger = service.ask("POST", f"/jobs/{JOB}/savepoints", {"triggerId": TRIGGER}).json["request-id"]
    assert trigger == TRIGGER
    path = f"/jobs/{JOB}/savepoints/{TRIGGER}"
    assert service.get(path).json == {"status": {"id": "IN_PROGRESS"}, "operation": {}}
    results = {
        "savepoints": (Operation(trigger_id=TRIGGER, done=True, savepoint="/s/1"), {"location": "/s/1"}),
        "checkpoints": (Operation(trigger_id=TRIGGER, done=True, checkpoint=9), {"checkpointId": 9}),
        "rescaling": (Operation(trigger_id=TRIGGER, done=True), {}),
    }
    for kind, (operation, result) in results.items():
        service.gateway.operations[JOB, TRIGGER] = operation
        answer = service.get(f"/jobs/{JOB}/{kind}/{TRIGGER}")
        assert answer.json == {"status": {"id": "COMPLETED"}, "operation": result}


def test_a_failed_operation_has_its_cause(service: Service) -> None:
    service.gateway.operations[JOB, TRIGGER] = Operation(
        trigger_id=TRIGGER, done=True, failure_kind="SavepointError", failure="The disk is full."
    )
    assert service.get(f"/jobs/{JOB}/savepoints/{TRIGGER}").json["operation"] == {
        "failure-cause": {
            "class": "SavepointError",
            "stack-trace": "SavepointError: The disk is full.",
            "serialized-throwable": "",
        }
    }


def test_a_repeated_trigger_id_starts_nothing_new(service: Service) -> None:
    for _ in range(3):
        answer = service.ask("POST", f"/jobs/{JOB}/stop", {"triggerId": TRIGGER})
        assert (answer.status, answer.json) == (202, {"request-id": TRIGGER})
    assert len(service.gateway.asked) == 1


def test_a_second_stop_is_a_conflict(service: Service) -> None:
    assert service.ask("POST", f"/jobs/{JOB}/stop", {}).status == 202
    answer = service.ask("POST", f"/jobs/{JOB}/stop", {})
    assert answer.status == 409
    assert answer.error == "The job is being stopped. Wait until it has ended, or until the stop has failed."


@pytest.mark.parametrize("path", ["savepoints", "stop", "checkpoints"])
def test_an_ended_job_conflicts_with_operations(service: Service, path: str) -> None:
    assert service.ask("POST", f"/jobs/{JOBS['FINISHED']}/{path}", {}).status == 409
    assert service.ask("PATCH", f"/jobs/{JOBS['FAILED']}/rescaling?parallelism=2").status == 409


@pytest.mark.parametrize("path", ["savepoints", "stop", "checkpoints"])
def test_a_repeated_trigger_id_is_known_after_the_operation_has_ended_the_job(service: Service, path: str) -> None:
    service.gateway.by_id[JOB] = snapshot(JOB, "FINISHED", operations=[DONE])
    answer = service.ask("POST", f"/jobs/{JOB}/{path}", {"triggerId": TRIGGER})
    assert (answer.status, answer.json) == (202, {"request-id": TRIGGER})
    assert service.ask("POST", f"/jobs/{JOB}/{path}", {"triggerId": "f" * 32}).status == 409
    assert service.ask("POST", f"/jobs/{JOB}/{path}", {}).status == 409
    assert service.gateway.asked == []


@pytest.mark.parametrize(
    ("path", "body", "text"),
    [
        ("savepoints", {"target-directory": "relative"}, "absolute path"),
        ("savepoints", {"target-directory": "/a\0b"}, "control characters"),
        ("savepoints", {"triggerId": "../../x"}, "32 lower-case"),
        ("savepoints", {"formatType": "OTHER"}, "formatType"),
        ("savepoints", {"cancel-job": "yes"}, "cancel-job"),
        ("stop", {"drain": 1}, "drain"),
        ("stop", [], "object"),
        ("checkpoints", {"checkpointType": "HALF"}, "checkpointType"),
    ],
)
def test_a_wrong_value_is_refused_with_its_name(service: Service, path: str, body: Any, text: str) -> None:
    answer = service.ask("POST", f"/jobs/{JOB}/{path}", body)
    assert answer.status == 400
    assert text in answer.error
    assert service.gateway.asked == []


@pytest.mark.parametrize(
    "body", [b"{", b'{"drain": tru}', b"\xff\xfe", b"[" * 200_000, b'{"a":' * 100_000, b"nul", b'"x"']
)
def test_malformed_json_is_refused(service: Service, body: bytes) -> None:
    answer = service.ask("POST", f"/jobs/{JOB}/stop", body)
    assert answer.status == 400
    assert "The body" in answer.error
    assert service.gateway.asked == []


def test_unknown_fields_are_ignored(service: Service) -> None:
    assert service.ask("POST", f"/jobs/{JOB}/stop", {"drain": False, "future": [1, {"x": None}]}).status == 202


MOST_JSON = 1 << 20


def test_a_large_json_body_is_refused_before_it_is_read(service: Service) -> None:
    head = f"POST /jobs/{JOB}/stop HTTP/1.1\r\nHost: localhost\r\n"
    # Nothing of the body is sent: the service does not wait for it.
    answer = service.raw(f"{head}Content-Length: {MOST_JSON + 1}\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 413")
    assert b"1,048,576 bytes" in answer
    assert service.gateway.asked == []


def test_a_large_json_body_of_unknown_length_is_refused(service: Service) -> None:
    head = f"POST /jobs/{JOB}/stop HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    # The last chunk, which says that the body is complete, is missing.
    answer = service.raw(head.encode() + b"%x\r\n%s\r\n" % (MOST_JSON + 1, b" " * (MOST_JSON + 1)))
    assert answer.startswith(b"HTTP/1.1 413")
    assert service.gateway.asked == []


def test_a_json_body_can_have_the_length_of_the_limit(service: Service) -> None:
    body = b'{"drain": true}'.ljust(MOST_JSON)
    assert service.ask("POST", f"/jobs/{JOB}/stop", body).status == 202
    assert service.gateway.asked == [("trigger", JOB, Stop(drain=True))]


def test_a_job_is_cancelled_by_its_only_mode(service: Service) -> None:
    assert service.ask("PATCH", f"/jobs/{JOB}").json == {}
    assert service.ask("PATCH", f"/jobs/{JOB}?mode=cancel").status == 202
    assert service.gateway.asked == [("cancel", JOB)] * 2
    answer = service.ask("PATCH", f"/jobs/{JOB}?mode=stop")
    assert answer.status == 400
    assert "POST /jobs/:jobid/stop" in answer.error


def test_a_setting_switches_cancelling_off(tmp_path: Path) -> None:
    with served(tmp_path, {**OPEN, "web.cancel.enable": "false"}) as service:
        for method, path, body in (
            ("PATCH", f"/jobs/{JOB}?mode=cancel", None),
            ("POST", f"/jobs/{JOB}/savepoints", {"cancel-job": True}),
        ):
            answer = service.ask(method, path, body)
            assert answer.status == 403
            assert "web.cancel.enable" in answer.error
        assert service.gateway.asked == []
        assert service.get("/config").json["features"]["web-cancel"] is False


@pytest.mark.parametrize(
    "query", ["", "?parallelism=0", "?parallelism=-1", "?parallelism=x", "?parallelism=99999999999"]
)
def test_rescaling_needs_a_parallelism(service: Service, query: str) -> None:
    answer = service.ask("PATCH", f"/jobs/{JOB}/rescaling{query}")
    assert answer.status == 400
    assert "parallelism" in answer.error


def bounds(lower: int = 1, **upper: int) -> dict[str, Any]:
    ids = {"numbers": SOURCE, "count": COUNT}
    return {
        "jobVertexResourceRequirements": {
            ids.get(name, name): {"parallelism": {"lowerBound": lower, "upperBound": bound}}
            for name, bound in upper.items()
        }
    }


def require(service: Service, lower: int = 1, job: str = JOB, **upper: int) -> Answer:
    """Ask for these upper bounds, of a job whose two vertices have a parallelism of 2."""
    return service.ask("PUT", f"/jobs/{job}/resource-requirements", bounds(lower, **upper))


def test_resource_requirements_rescale_the_vertices_that_change(service: Service) -> None:
    service.gateway.result = DONE
    assert require(service, numbers=2, count=128).json == {}
    assert service.gateway.asked == [("trigger", JOB, Rescale(parallelism={"count": 128}))]
    service.gateway.asked.clear()
    assert require(service, numbers=2, count=2).status == 200
    assert service.gateway.asked == []


def test_the_bounds_of_a_source_only_have_to_contain_its_parallelism(service: Service) -> None:
    service.gateway.result = DONE
    assert require(service, numbers=1_000_000, count=3).json == {}
    assert service.gateway.asked == [("trigger", JOB, Rescale(parallelism={"count": 3}))]


@pytest.mark.parametrize("lower", [1, 3])
def test_a_source_is_not_rescaled(service: Service, lower: int) -> None:
    answer = require(service, lower, numbers=1 if lower == 1 else 4, count=4)
    assert answer.status == 400
    assert "source 'numbers' has a fixed parallelism of 2" in answer.error
    assert service.gateway.asked == []


@pytest.mark.parametrize("bound", [129, 1_000_000, 2**63 - 1])
def test_a_bound_above_the_maximum_parallelism_is_refused_before_the_job_is_asked(service: Service, bound: int) -> None:
    answer = require(service, numbers=2, count=bound)
    assert answer.status == 400
    assert f"upper bound {bound} of vertex 'count' exceeds its maximum parallelism of 128" in answer.error
    assert service.gateway.asked == []


@pytest.mark.parametrize(
    ("kind", "status"), [("CannotRescale", 400), ("PenstockError", 409), ("StorageUnavailable", 409)]
)
def test_a_rescale_that_the_job_refuses_is_not_acknowledged(service: Service, kind: str, status: int) -> None:
    problem = "forward() between 'a' and 'b' needs equal parallelism."
    service.gateway.result = Operation(trigger_id=TRIGGER, done=True, failure_kind=kind, failure=problem)
    answer = require(service, numbers=2, count=5)
    assert (answer.status, answer.error) == (status, problem)


def test_a_rescale_that_waits_for_an_epoch_is_acknowledged(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.rest.resource_requirements._REFUSAL_S", 0.0)
    assert require(service, numbers=2, count=5).json == {}
    assert len(service.gateway.asked) == 1


@pytest.mark.parametrize("state", ["FINISHED", "FAILED", "CANCELED"])
@pytest.mark.parametrize("count", [2, 3])
def test_an_ended_job_has_no_resource_requirements_to_change(service: Service, state: str, count: int) -> None:
    answer = require(service, job=JOBS[state], numbers=2, count=count)
    assert answer.status == 409
    assert state in answer.error


def test_a_batch_job_is_not_rescaled(service: Service) -> None:
    service.gateway.by_id[JOB] = snapshot(JOB, batch=True)
    answer = require(service, numbers=2, count=3)
    assert answer.status == 409
    assert "batch" in answer.error
    assert require(service, numbers=2, count=2).status == 200, "nothing changes"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (bounds(count=5), "missing"),
        (bounds(numbers=2, count=0), "range"),
        (bounds(2, numbers=2, count=1), "range"),
        (bounds(0, numbers=2, count=3), "range"),
        (bounds(numbers=2, count=3, other=1), "no vertex"),
        ({}, "jobVertexResourceRequirements"),
        ({"jobVertexResourceRequirements": {COUNT: {}}}, "parallelism"),
    ],
)
def test_incomplete_resource_requirements_are_refused(service: Service, body: Any, text: str) -> None:
    answer = service.ask("PUT", f"/jobs/{JOB}/resource-requirements", body)
    assert answer.status == 400
    assert text in answer.error
    assert service.gateway.asked == []


def test_a_savepoint_is_disposed_of_and_polled(service: Service) -> None:
    trigger = service.ask("POST", "/savepoint-disposal", {"savepoint-path": "/s/1"}).json["request-id"]
    assert service.gateway.asked == [("dispose", "/s/1")]
    answer = service.get(f"/savepoint-disposal/{trigger}")
    assert answer.json == {"status": {"id": "COMPLETED"}, "operation": {}}
    assert service.ask("POST", "/savepoint-disposal", {}).status == 400
    assert service.ask("POST", "/savepoint-disposal", {"savepoint-path": "x"}).status == 400


def test_the_service_answers_before_it_shuts_down(service: Service) -> None:
    answer = service.ask("DELETE", "/cluster")
    assert (answer.status, answer.json) == (200, {})
    wait_for(lambda: service.gateway.is_shut_down)
