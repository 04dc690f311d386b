"""The client that commands use, against a real server."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_gateway import JOB
from http_service import Service, served

from penstock.common.tokens import UnusableToken
from penstock.rest.client import NotAuthorized, NotKnown, NotNow, RefusedByService, RestClient, ServiceUnreachable
from penstock.rest.contract import JobDetailsInfo, JobIdsWithStatusOverview, TriggerResponse
from penstock.rest.endpoints import Nothing


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    settings = {"rest.server.max-content-length": "2 mb"}
    with served(tmp_path_factory.mktemp("service"), settings) as service:
        yield service


@pytest.fixture
def service(running: Service) -> Service:
    running.gateway.reset()
    return running


@pytest.fixture
def client(service: Service) -> RestClient:
    return RestClient.of_settings(
        {"rest.port": str(service.server.port), "rest.auth.token-file": str(service.folder / "token")}
    )


def test_answers_are_decoded_into_types(client: RestClient) -> None:
    assert client.get(f"/jobs/{JOB}", JobDetailsInfo).jid == JOB
    assert len(client.get("/jobs", JobIdsWithStatusOverview).jobs) == 6


def test_every_method_sends_its_body_and_query(service: Service, client: RestClient) -> None:
    assert client.post(f"/jobs/{JOB}/stop", TriggerResponse, {"drain": True}).request_id
    assert client.patch(f"/jobs/{JOB}", Nothing, mode="cancel") == {}
    assert client.get("/jobs/metrics", list, get="x") == []
    assert client.delete("/cluster", Nothing) == {}
    with pytest.raises(RefusedByService, match="jobVertexResourceRequirements"):
        client.put(f"/jobs/{JOB}/resource-requirements", Nothing, {})


def test_a_program_is_uploaded_and_removed(service: Service, client: RestClient, tmp_path: Path) -> None:
    file = tmp_path / 'a "strange" name.py'
    file.write_bytes(os.urandom(1 << 20))
    program = client.upload(file)
    assert service.gateway.contents[program] == 1 << 20
    assert client.delete(f"/jars/{program}", Nothing) == {}
    assert service.gateway.stored == {}


def test_an_upload_that_is_too_large_is_refused_with_the_limit(client: RestClient, tmp_path: Path) -> None:
    file = tmp_path / "big.zip"
    with open(file, "wb") as content:
        content.truncate(64 << 20)
    with pytest.raises(RefusedByService, match="2,097,152 bytes") as caught:
        client.upload(file)
    assert caught.value.status == 413


def test_errors_have_the_text_of_the_service(service: Service, client: RestClient) -> None:
    with pytest.raises(NotKnown, match=f"no job '{'f' * 32}'"):
        client.get(f"/jobs/{'f' * 32}", JobDetailsInfo)
    client.post(f"/jobs/{JOB}/stop", TriggerResponse)
    with pytest.raises(NotNow, match="being stopped"):
        client.post(f"/jobs/{JOB}/stop", TriggerResponse)
    with pytest.raises(NotAuthorized, match="token"):
        RestClient("127.0.0.1", service.server.port, token="wrong-but-long-enough").get("/jobs", dict)


def test_a_missing_token_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UnusableToken, match="does not exist"):
        RestClient.of_settings({"rest.auth.token-file": str(tmp_path / "none")})


def test_a_log_is_read_part_by_part(service: Service, client: RestClient) -> None:
    path = service.folder / "logs" / "job-1.log"
    path.write_bytes(b"x" * 1_000_000)
    parts = list(client.text(f"/penstock/v1/jobs/{JOB}/logs/job-1.log"))
    assert b"".join(parts) == b"x" * 1_000_000
    assert len(parts) > 1
    with pytest.raises(NotKnown, match="No log file"):
        list(client.follow(f"/penstock/v1/jobs/{JOB}/logs/none"))


def test_a_service_that_does_not_run_is_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    with pytest.raises(ServiceUnreachable, match=f"127.0.0.1:{port} cannot be reached: Connection refused"):
        RestClient("127.0.0.1", port).get("/jobs", dict)


@pytest.mark.parametrize(
    "answer", [b"", b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{", b"SSH-2.0-x\r\n"]
)
def test_another_program_on_the_port_is_reported(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(ServiceUnreachable):
            RestClient("127.0.0.1", listener.getsockname()[1]).get("/jobs", dict)
        thread.join()


def test_a_host_without_the_packages_of_the_service_can_use_its_client(service: Service) -> None:
    program = (
        "import sys\n"
        "for name in ('starlette', 'uvicorn', 'httptools', 'uvloop', 'python_multipart'): sys.modules[name] = None\n"
        "from penstock.rest.client import RestClient\n"
        f"print(RestClient('127.0.0.1', {service.server.port}).get('/health', dict))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("{}\n", 0), done.stderr


def test_an_answer_of_another_version_is_reported(client: RestClient) -> None:
    with pytest.raises(ServiceUnreachable, match="not one of this version"):
        client.get("/jobs", JobDetailsInfo)
