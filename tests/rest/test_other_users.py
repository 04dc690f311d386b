"""Another user of the same host: the token, the control points and the orders are out of reach."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from http_service import Service, served

from penstock.cluster.directory import ClusterDirectory
from penstock.cluster.order import Order, write_order
from penstock.cluster.records import new_job_id
from penstock.control.server import ControlPoint
from penstock.driver.control_messages import Done

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


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with served(tmp_path / "service") as service:
        yield service


@pytest.mark.skipif(os.getuid() != 0, reason="needs the permission to become another user")
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
