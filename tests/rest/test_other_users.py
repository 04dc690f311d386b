"""Another user of the same host: the token, the control points and the orders are out of reach."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from http_service import Service, served

from penstock.cluster.directory import ClusterDirectory
from penstock.cluster.order import Order, write_order
from penstock.cluster.records import new_job_id
from penstock.control.server import ControlPoint
from penstock.driver.control_messages import Done
from penstock.rest.client import ForeignService, RestClient, ServiceUnreachable
from penstock.rest.listeners import foreign_user

OTHER = 65534

# Modules of Python can be out of reach of the other user, so all of them are imported first.
ATTACK = """
import encodings.ascii, encodings.idna, encodings.latin_1, http.client, os, socket, sys
port, token, order, control = sys.argv[1:]
connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=10)
os.setgid({other})
os.setuid({other})

def attempt(name, act):
    try:
        print(name, act())
    except PermissionError:
        print(name, "denied")

def ask():
    connection.request("GET", "/jobs/overview")
    return connection.getresponse().status

def enter():
    # A socket path is limited to 107 bytes.
    os.chdir(os.path.dirname(control))
    return socket.socket(socket.AF_UNIX).connect(os.path.basename(control))

attempt("request", ask)
attempt("token", lambda: open(token, "rb").read())
attempt("order", lambda: open(order, "rb").read())
attempt("socket", enter)
"""

LISTENER = """
import os, socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
os.setgid({other})
os.setuid({other})
squatting = socket.create_server((sys.argv[1], 0), family=family)
print(squatting.getsockname()[1], flush=True)
if sys.argv[2] == "accepts":
    connection, _ = squatting.accept()
    squatting.close()
    print("accepted", flush=True)
    print("received", len(connection.recv(10_000)), flush=True)
sys.stdin.read()
"""

as_root = pytest.mark.skipif(os.getuid() != 0, reason="needs the permission to become another user")


@contextmanager
def squatter(address: str, how: str = "") -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """Let another user listen on a port."""
    code = LISTENER.format(other=OTHER)
    with subprocess.Popen(
        [sys.executable, "-c", code, address, how], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline()), process
        finally:
            process.kill()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with served(tmp_path / "service") as service:
        yield service


@as_root
def test_another_user_reaches_neither_jobs_nor_secrets(service: Service, tmp_path: Path) -> None:
    # The path itself is open, so that only the permissions of the service protect it.
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.getuid() and folder != Path("/"):
            folder.chmod(0o755)
    directory = ClusterDirectory(tmp_path / "cluster")
    directory.create()
    job = new_job_id()
    folder = directory.attempt(job, 1)
    order = write_order(
        Order(job_id=job, attempt=1, records="", settings={}, control=str(directory.control), folder=str(folder))
    )
    point = ControlPoint(str(directory.control), job, lambda request: Done())
    try:
        paths = [service.folder / "token", order, directory.control / f"{job}.sock"]
        attack = subprocess.run(
            [sys.executable, "-c", ATTACK.format(other=OTHER), str(service.server.port), *map(str, paths)],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
    finally:
        point.close()
    assert attack.stdout.splitlines() == ["request 401", "token denied", "order denied", "socket denied"]


@as_root
@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "::1", "::"])
def test_the_token_is_not_sent_to_another_user_who_listens_on_the_port(address: str) -> None:
    with squatter(address) as (port, _):
        host = "::1" if ":" in address else "127.0.0.1"
        with pytest.raises(ForeignService, match=f"belongs to another user, with id {OTHER}"):
            RestClient(host, port, token="t" * 40).get("/jobs", dict)


@as_root
def test_the_token_is_not_sent_to_another_user_who_stopped_listening() -> None:
    with (
        squatter("127.0.0.1", "accepts") as (port, process),
        socket.create_connection(("127.0.0.1", port)) as connection,
    ):
        assert process.stdout is not None
        assert process.stdout.readline() == "accepted\n"
        assert foreign_user(connection) == OTHER
        connection.close()
        assert process.stdout.readline() == "received 0\n"


@as_root
def test_the_owner_of_the_token_file_and_services_without_tokens_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.rest.client._SLACK_S", 0.0)
    with squatter("127.0.0.1") as (port, _):
        for client in (
            RestClient("127.0.0.1", port, token="t" * 40, token_owner=OTHER, timeout_s=0.1),
            RestClient("127.0.0.1", port, timeout_s=0.1),
        ):
            with pytest.raises(ServiceUnreachable, match="timed out"):
                client.get("/jobs", dict)


@as_root
def test_a_standby_does_not_send_the_token_to_another_user(service: Service) -> None:
    with squatter("127.0.0.1") as (port, _):
        service.gateway.other_leader = f"http://127.0.0.1:{port}"
        answer = service.get("/jobs")
    assert answer.status == 503
    assert "belongs to another user" in answer.error
