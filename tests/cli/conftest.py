"""Commands that inspect a program, called in the test's process."""

import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from penstock.cli.main import app


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
