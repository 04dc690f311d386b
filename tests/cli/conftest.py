"""Commands that are called in the test's process: those that inspect a program, and those that talk to a service."""

import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from called_commands import succeed
from click.testing import Result
from fake_gateway import JOB, snapshot
from http_service import Service, served
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.cluster.service_lock import ServiceLock


@pytest.fixture
def invoke(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, launched: Callable[[dict[str, str]], None]
) -> Callable[..., Result]:
    """`invoke(program, "plan", "--json", arguments=["name"])` calls the command with a file of that text."""

    def invoke(program: str, *command: str, arguments: list[str] | None = None) -> Result:
        path = tmp_path / "job.py"
        path.write_text(textwrap.dedent(program))
        # run_program changes the state of the process.
        monkeypatch.setattr("sys.path", ["", *sys.path])
        monkeypatch.setattr("sys.argv", [])
        monkeypatch.setenv("PYTHONPATH", "")
        launched({})
        monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
        return CliRunner().invoke(app, [*command, str(path), *(arguments or [])])

    return invoke


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of a cluster on this host, as the settings of all commands name it."""
    settings = {"cluster.dir": tmp_path / "cluster", "penstock.control.dir": tmp_path / "control"}
    monkeypatch.setenv("PENSTOCK_PROPERTIES", "\n".join(f"{key}: {value}" for key, value in settings.items()))
    (tmp_path / "cluster").mkdir(mode=0o700)
    return tmp_path / "cluster"


@pytest.fixture
def service(folder: Path) -> Iterator[Service]:
    """A service with jobs in all states. No command knows its address."""
    with served(folder) as service:
        yield service


@pytest.fixture
def cluster(service: Service, folder: Path) -> Iterator[Service]:
    """The service as the cluster of this host. The running job is 'counts', and all its operations succeed."""
    lock = ServiceLock(folder / "lock")
    (folder / "address").write_text(f"{service.server.address}\n")
    service.gateway.by_id[JOB] = snapshot(JOB, name="counts")
    succeed(service)
    yield service
    with suppress(OSError):
        lock.close()
