"""docs/start/first-steps.md does what it says: its files are written out and run as a newcomer would."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from job_lines import without_job_lines

PAGE = (Path(__file__).parents[2] / "docs/start/first-steps.md").read_text()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        name = re.match(r"# (\w+\.py)\n", block)
        assert name is not None
        (tmp_path / name[1]).write_text(block)
    return tmp_path


def test_its_test_passes(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "test_spending.py"], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout


@pytest.mark.spark
def test_its_run_prints_what_it_shows(folder: Path) -> None:
    shown = re.search(r"```text\n(.*?)```", PAGE, re.DOTALL)
    assert shown is not None
    for settings in ([], ["-D", "state.checkpoints.dir=checkpoints", "-D", "execution.checkpointing.interval=1 s"]):
        done = subprocess.run(
            [sys.executable, "-m", "penstock.cli.main", "run", *settings, "spending.py"],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert (done.stdout, without_job_lines(done.stderr)) == (shown[1], "")
