"""Programs: uploading, running and planning them, and uploads of hostile clients."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_gateway import JOB
from http_service import OPEN, Service, multipart, served, wait_for
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.gateway import RunRequest
from penstock.driver.vertices import vertex_id_of
from penstock.rest.errors import BadRequest
from penstock.rest.program_arguments import PYTHON_DRIVER, entry_of
from penstock.rest.uploads import clean_name


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with served(tmp_path_factory.mktemp("service"), {**OPEN, "rest.server.max-content-length": "4 mb"}) as service:
        yield service


@pytest.fixture
def service(running: Service) -> Service:
    running.gateway.reset()
    return running


def uploaded(service: Service, name: str = "job.py", content: bytes = b"print()") -> str:
    body, headers = multipart(name, content)
    answer = service.ask("POST", "/jars/upload", body, headers)
    assert answer.status == 200, answer.body
    assert answer.json["status"] == "success"
    return str(answer.json["filename"].rpartition("/")[2])


def leftovers(service: Service) -> list[str]:
    return os.listdir(service.folder / "uploads")


def test_an_uploaded_program_is_listed_until_it_is_removed(service: Service) -> None:
    content = os.urandom(3 << 20)
    program = uploaded(service, content=content)
    assert program == f"{hashlib.sha256(content).hexdigest()}_job.py"
    listed = service.get("/jars").json
    assert [(file["id"], file["name"]) for file in listed["files"]] == [(program, "job.py")]
    assert listed["address"] == f"http://127.0.0.1:{service.server.port}"
    assert leftovers(service) == []
    assert service.ask("DELETE", f"/jars/{program}").json == {}
    assert service.get("/jars").json["files"] == []


def run_request(service: Service) -> RunRequest:
    ((_, request),) = service.gateway.asked
    assert isinstance(request, RunRequest)
    return request


def test_a_program_runs_with_everything_that_the_body_says(service: Service) -> None:
    program = uploaded(service)
    body = {
        "entryClass": "flows.main",
        "programArgsList": ["--rate", "a,b"],
        "parallelism": 3,
        "jobId": "9" * 32,
        "allowNonRestoredState": True,
        "savepointPath": "/s/1",
        "claimMode": "CLAIM",
        "flinkConfiguration": {"pipeline.name": "x"},
    }
    answer = service.ask("POST", f"/jars/{program}/run", body)
    assert answer.json == {"jobid": "9" * 32, "applicationId": "9" * 32}
    assert run_request(service) == RunRequest(
        program=program,
        entry="flows.main",
        arguments=["--rate", "a,b"],
        configuration={"pipeline.name": "x", "parallelism.default": "3"},
        savepoint="/s/1",
        claim_mode="CLAIM",
        allow_non_restored_state=True,
        job_id="9" * 32,
    )
    assert service.audit()[-1]["job"] == "9" * 32


def test_the_query_applies_where_the_body_says_nothing(service: Service) -> None:
    program = uploaded(service)
    query = "?programArg=a,b&entry-class=q&parallelism=5&allowNonRestoredState=true&savepointPath=/q"
    assert service.ask("POST", f"/jars/{program}/run{query}", {"entryClass": "body"}).status == 200
    assert run_request(service) == RunRequest(
        program=program,
        entry="body",
        arguments=["a", "b"],
        configuration={"parallelism.default": "5"},
        savepoint="/q",
        allow_non_restored_state=True,
    )


@pytest.mark.parametrize(
    ("query", "body", "arguments"),
    [
        (
            "",
            {"programArgs": "--rate 5 --name 'a b'  --text \"it's\""},
            ["--rate", "5", "--name", "a b", "--text", "it's"],
        ),
        ("?program-args=--rate%205%20-x", {}, ["--rate", "5", "-x"]),
        ("?program-args=--rate%205", {"programArgs": "--of body"}, ["--of", "body"]),
        ("?program-args=--rate%205", {"programArgsList": ["of", "body"]}, ["of", "body"]),
        ("?programArg=a,b", {"programArgs": None, "programArgsList": None}, ["a", "b"]),
    ],
)
def test_arguments_in_one_text_are_split_as_in_flink(
    service: Service, query: str, body: Any, arguments: list[str]
) -> None:
    program = uploaded(service)
    for action in ("run", "plan"):
        service.gateway.asked.clear()
        answer = service.ask("POST", f"/jars/{program}/{action}{query}", body)
        assert answer.status == 200, answer.body
        assert run_request(service).arguments == arguments


@pytest.mark.parametrize(
    ("query", "body"),
    [("", {"programArgs": "a", "programArgsList": ["a"]}), ("?program-args=a&programArg=a", {})],
)
def test_arguments_cannot_be_given_twice(service: Service, query: str, body: Any) -> None:
    answer = service.ask("POST", f"/jars/{uploaded(service)}/run{query}", body)
    assert answer.status == 400
    assert "twice" in answer.error
    assert service.gateway.asked == []


def test_the_legacy_restore_mode_leaves_the_savepoint_to_its_owner(service: Service) -> None:
    program = uploaded(service)
    body = {"savepointPath": "/s", "restoreMode": "LEGACY"}
    assert service.ask("POST", f"/jars/{program}/run", body).status == 200
    assert run_request(service).claim_mode == "NO_CLAIM"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"parallelism": 0}, "positive"),
        ({"parallelism": "2"}, "parallelism"),
        ({"jobId": "../x"}, "job id"),
        ({"savepointPath": "relative"}, "savepoint path"),
        ({"claimMode": "MINE"}, "claimMode"),
        ({"programArgsList": "a b"}, "programArgsList"),
        ({"flinkConfiguration": {"a": 1}}, "flinkConfiguration"),
        ({"flinkConfiguration": {"cluster.max-jobs": "1"}}, "cluster.max-jobs is a setting of the service"),
        ({"flinkConfiguration": {"high-availability": "none"}}, "high-availability.type is a setting of the service"),
        ({"entryClass": PYTHON_DRIVER, "programArgsList": ["-py"]}, "'-py' needs a value"),
    ],
)
def test_a_wrong_run_is_refused(service: Service, body: Any, text: str) -> None:
    program = uploaded(service)
    answer = service.ask("POST", f"/jars/{program}/run", body)
    assert answer.status == 400
    assert text in answer.error
    assert service.gateway.asked == []


def test_the_settings_of_a_whole_cluster_of_flink_leave_those_of_the_job(service: Service) -> None:
    """Flink's Kubernetes operator sends them with each job, and its users cannot change that."""
    of_flink = {
        "$internal.flink.version": "v1_20",
        "blob.server.port": "6124",
        "env.java.opts.all": "--add-exports=java.base/sun.net.util=ALL-UNNAMED",
        "execution.target": "kubernetes-session",
        "execution.shutdown-on-application-finish": "false",
        "heartbeat.timeout": "50000",
        "high-availability.type": "kubernetes",
        "high-availability.storageDir": "s3://flink/ha",
        "internal.cluster.execution-mode": "NORMAL",
        "job.autoscaler.enabled": "true",
        "jobmanager.memory.process.size": "2048m",
        "kubernetes.cluster-id": "session",
        "kubernetes.operator.job.upgrade.last-state.max.allowed.checkpoint.age": "5m",
        "metrics.reporters": "prom",
        "pipeline.jars": "",
        "rest.port": "8081",
        "taskmanager.numberOfTaskSlots": "2",
        "web.cancel.enable": "false",
    }
    of_the_job = {
        "execution.checkpointing.interval": "10 s",
        "pipeline.name": "counts",
        "state.backend.type": "rocksdb",
        "taskmanager.memory.segment-size": "64 kb",
        "spark.executor.memory": "2g",
        "jobmanager.memory.heap.size": "2g",
        "state.checkpoints.dr": "a typing error, which the job reports",
    }
    body = {"flinkConfiguration": of_flink | of_the_job, "jobId": "9" * 32}
    program = uploaded(service)
    assert service.ask("POST", f"/v1/jars/{program}/run", body).status == 200
    assert run_request(service).configuration == {
        "execution.checkpointing.interval": "10 s",
        "pipeline.name": "counts",
        "state.backend": "rocksdb",
        "taskmanager.memory.segment-size": "64 kb",
        "spark.executor.memory": "2g",
        "spark.driver.memory": "2048m",
        "state.checkpoints.dr": "a typing error, which the job reports",
    }


def test_flinks_driver_for_python_names_the_program_among_its_arguments() -> None:
    arguments = ["-pym", "flows.main", "-pyfs", "a.zip,b", "--rate", "5", "-pyreq", "r.txt", "-pyarch", "m.zip", "-x"]
    entry = entry_of(PYTHON_DRIVER, arguments)
    assert (entry.entry, entry.arguments) == ("flows.main", ["--rate", "5", "-x"])
    assert entry.settings == {
        "python.files": "a.zip,b",
        "python.requirements": "r.txt",
        "python.archives": "m.zip",
    }
    assert entry_of(PYTHON_DRIVER, ["--python", "job.py"]).entry == "job.py"
    assert entry_of("flows.main", ["-py", "x"]).arguments == ["-py", "x"]
    with pytest.raises(BadRequest, match="two programs"):
        entry_of(PYTHON_DRIVER, ["-py", "a.py", "-pym", "b"])


def test_a_plan_has_a_node_for_each_chain(service: Service) -> None:
    program = uploaded(service)
    for method in ("GET", "POST"):
        service.gateway.asked.clear()
        plan = service.ask(method, f"/jars/{program}/plan?parallelism=2", {}).json["plan"]
        source, count = plan["nodes"]
        assert (source["description"], count["description"]) == ("numbers", "count")
        assert (plan["name"], plan["type"]) == ("job.py", "STREAMING")
        assert (source["parallelism"], count["parallelism"]) == (2, 2)
        assert (source["id"], count["id"]) == (vertex_id_of("numbers"), vertex_id_of("count"))
        assert count["inputs"][0]["id"] == source["id"]
        assert count["inputs"][0]["ship_strategy"] == "HASH"
        assert run_request(service).configuration == {"parallelism.default": "2"}


def test_the_plan_of_a_batch_is_of_type_batch(service: Service) -> None:
    program = uploaded(service)
    assert service.ask("POST", f"/jars/{program}/plan", {"entryClass": "batch"}).json["plan"]["type"] == "BATCH"


def test_a_dry_run_needs_a_savepoint(service: Service) -> None:
    program = uploaded(service)
    path = f"/penstock/v1/jars/{program}/dry-run"
    assert service.ask("POST", path, {}).status == 400
    assert service.ask("POST", path, {"savepointPath": "/s"}).json == {"program": "p", "would_start": True}


def test_a_setting_switches_submission_off(tmp_path: Path) -> None:
    with served(tmp_path, {**OPEN, "web.submit.enable": "false"}) as service:
        body, headers = multipart("job.py", b"")
        for method, path in (
            ("POST", "/jars/upload"),
            ("POST", "/jars/x/run"),
            ("GET", "/jars/x/plan"),
            ("DELETE", "/jars/x"),
            ("POST", "/penstock/v1/jars/x/dry-run"),
        ):
            answer = service.ask(method, path, body, headers)
            assert answer.status == 403
            assert "web.submit.enable" in answer.error
        assert service.get("/config").json["features"]["web-submit"] is False


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("../../etc/cron.d/job.py", "job.py"),
        ("..\\..\\job.py", "job.py"),
        ("/abs/olute.zip", "olute.zip"),
        ("C:\\x\\flow.whl", "flow.whl"),
        (".hidden.py", "hidden.py"),
        ("a b;c$(x).py", "a_b_c_x_.py"),
        ("x\0y.py", "x_y.py"),
        ("é" * 300 + ".py", None),
        ("n" * 300 + ".py", "n" * 97 + ".py"),
        ("..", None),
        ("job." + "y" * 100, None),
        ("", None),
        ("/", None),
    ],
)
def test_a_given_name_is_cleaned_and_never_a_path(given: str, name: str | None) -> None:
    if name is None:
        with pytest.raises(BadRequest, match="no usable name"):
            clean_name(given)
    else:
        assert clean_name(given) == name


@given(st.text(max_size=200))
def test_every_cleaned_name_is_a_plain_file_name(given: str) -> None:
    try:
        name = clean_name(given)
    except BadRequest:
        return
    assert re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}", name)


@pytest.mark.parametrize("name", ["../../escaped.py", "..%2f..%2fescaped.py", "/tmp/escaped.py"])
def test_an_upload_stays_in_its_directory(service: Service, name: str) -> None:
    program = uploaded(service, name)
    assert "/" not in program
    assert not list(service.folder.parent.glob("**/escaped*"))


@pytest.mark.parametrize("path", ["/jars/..%2f..%2ftoken", "/jars/../token", "/jars/%2e%2e", "/jars/%00"])
def test_a_program_id_is_never_a_path(service: Service, path: str) -> None:
    assert service.ask("DELETE", path).status == 404
    assert (service.folder / "audit.log").exists()


@pytest.mark.parametrize(
    ("body", "headers", "text"),
    [
        (b"", {}, "multipart/form-data"),
        (b"{}", {"Content-Type": "application/json"}, "multipart/form-data"),
        (b"x", {"Content-Type": "multipart/form-data"}, "boundary"),
        (b"x", {"Content-Type": "multipart/form-data; boundary="}, "boundary"),
        (b"garbage", {"Content-Type": "multipart/form-data; boundary=XX"}, "multipart data"),
        (b"--XX\r\n", {"Content-Type": "multipart/form-data; boundary=XX"}, "last boundary"),
        (multipart("a.py", b"x")[0][:-8], {"Content-Type": "multipart/form-data; boundary=XX"}, "last boundary"),
        (multipart("a.py", b"x")[0].replace(b"; filename=", b"; x="), multipart("", b"")[1], "no file"),
        (multipart("a.py", b"x")[0][:-8] + multipart("b.py", b"")[0], multipart("", b"")[1], "several files"),
        (b"--XX\r\nX: " + b"y" * 20_000 + b"\r\n\r\n\r\n--XX--\r\n", multipart("", b"")[1], "multipart data"),
        (b"--XX\r\n\r\n\r\n" * 40 + b"--XX--\r\n", multipart("", b"")[1], "parts"),
    ],
)
def test_a_malformed_upload_is_refused(service: Service, body: bytes, headers: dict[str, str], text: str) -> None:
    answer = service.ask("POST", "/jars/upload", body, headers)
    assert answer.status == 400
    assert text in answer.error
    assert service.gateway.stored == {}
    assert leftovers(service) == []


def test_an_announced_upload_that_is_too_large_is_refused_before_it_is_sent(service: Service) -> None:
    head = (
        "POST /jars/upload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n"
        "Content-Type: multipart/form-data; boundary=XX\r\n\r\n"
    )
    answer = service.raw(head.encode())
    assert answer.startswith(b"HTTP/1.1 413")
    assert b"4,194,304 bytes" in answer
    assert leftovers(service) == []


def memory() -> int:
    """Return the resident memory of this process, which is also the server's."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def test_an_endless_upload_is_refused_without_keeping_it_in_memory(tmp_path: Path) -> None:
    with (
        served(tmp_path, {**OPEN, "rest.server.max-content-length": "200 mb"}) as service,
        socket.create_connection(("127.0.0.1", service.server.port), timeout=30) as connection,
    ):
        head = (
            "POST /jars/upload HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
            "Content-Type: multipart/form-data; boundary=XX\r\n\r\n"
        )
        connection.sendall(head.encode())
        first, _ = multipart("big.zip", b"")
        first = first[: -len("\r\n--XX--\r\n")]
        connection.sendall(b"%x\r\n%s\r\n" % (len(first), first))
        before = most = memory()
        part = b"%x\r\n%s\r\n" % (1 << 20, b"x" * (1 << 20))
        try:
            for _ in range(300):
                connection.sendall(part)
                most = max(most, memory())
        except (BrokenPipeError, ConnectionResetError):
            pass
        assert connection.recv(65536).startswith(b"HTTP/1.1 413")
        assert most - before < 64 << 20
        assert leftovers(service) == []
        assert service.get("/health").status == 200


def test_a_full_disk_refuses_the_upload(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("penstock.rest.uploads._write_all", write)
    body, headers = multipart("job.py", b"x")
    answer = service.ask("POST", "/jars/upload", body, headers)
    assert answer.status == 500
    assert answer.error.startswith("The upload cannot be stored: No space left on device.")
    assert leftovers(service) == []


def test_an_interrupted_upload_leaves_nothing(service: Service) -> None:
    before = len(service.audit())
    with socket.create_connection(("127.0.0.1", service.server.port), timeout=30) as connection:
        body, _ = multipart("job.py", b"x" * 100_000)
        head = (
            f"POST /jars/upload HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
            "Content-Type: multipart/form-data; boundary=XX\r\n\r\n"
        )
        connection.sendall(head.encode() + body[:50_000])
    interrupted = wait_for(lambda: service.audit()[before:])
    assert [(line["action"], line["outcome"]) for line in interrupted] == [("POST /jars/upload", 400)]
    assert leftovers(service) == []
    assert uploaded(service)
    assert [program.name for program in service.gateway.stored.values()] == ["job.py"]
    assert next(iter(service.gateway.contents.values())) == len(b"print()")


def test_unknown_jobs_are_not_created_by_their_id(service: Service) -> None:
    assert service.get(f"/jobs/{JOB}x").status == 404
