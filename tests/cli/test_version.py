"""`penstock version`, and the command on a host that lacks the packages of the service."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import penstock
from penstock.cli.main import app

WITHOUT_PACKAGES = """
import sys
for name in ("starlette", "uvicorn", "httptools", "uvloop", "python_multipart"):
    sys.modules[name] = None
from penstock.cli.main import app
app(sys.argv[1:])
"""


def test_the_configuration_file_is_printed_on_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "mine.conf"
    monkeypatch.setenv("PENSTOCK_CONF", str(path))
    assert str(path) not in CliRunner().invoke(app, ["version"]).stdout
    assert f"Configuration file: {path}\n" in CliRunner().invoke(app, ["version", "-v"]).stdout
    monkeypatch.setenv("PENSTOCK_CONF", "")
    assert "Configuration file: none\n" in CliRunner().invoke(app, ["version", "-v"]).stdout


def test_the_versions_are_printed_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CONF", "/mine.conf")
    found = json.loads(CliRunner().invoke(app, ["version", "--json"]).stdout)
    assert found.keys() == {"penstock", "spark", "python", "configuration"}
    assert (found["penstock"], found["configuration"]) == (penstock.__version__, "/mine.conf")


def test_commands_work_without_the_packages_of_the_service(tmp_path: Path) -> None:
    places = ["-D", f"penstock.control.dir={tmp_path}/control", "-D", f"cluster.dir={tmp_path}/cluster"]
    listed = _called("list", "--json", *places)
    assert (listed.returncode, listed.stdout) == (0, "[]\n"), listed.stderr


@pytest.mark.parametrize("command", [["cluster", "start"], ["run", "--web", "job.py"]])
def test_a_missing_package_of_the_service_is_named_with_the_fix(tmp_path: Path, command: list[str]) -> None:
    program = tmp_path / "job.py"
    program.write_text("")
    place = ["-D", f"cluster.dir={tmp_path}/cluster"]
    words = [str(program) if word == "job.py" else word for word in command]
    failed = _called(*words[:-1], *place, words[-1]) if words[0] == "run" else _called(*words, *place)
    assert failed.returncode == 1
    assert failed.stderr.startswith("ServiceNotInstalled: The service needs the package ")
    assert "pip install 'penstock[service]'" in failed.stderr


def _called(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT_PACKAGES, *arguments]
    return subprocess.run(command, capture_output=True, text=True)
