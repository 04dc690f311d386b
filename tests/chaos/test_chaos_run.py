"""The whole rig without a JVM: real processes that are killed, real files that are damaged."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KILLS = 11
KINDS = "driver,checkpoint,stop,savepoint,rescale,replica-gone,disk-full,disk-error"


def chaos(work: Path, *words: str) -> subprocess.CompletedProcess[str]:
    given = f"--kills {KILLS} --seed 2 --master harness --kinds {KINDS}".split()
    return subprocess.run(
        [sys.executable, "-m", "chaos", *given, "--work", str(work), "--summary", str(work.with_name("table")), *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
    )


@pytest.mark.slow
def test_a_run_that_is_stopped_and_gone_on_with_ends_with_nothing_lost_or_twice(tmp_path: Path) -> None:
    work = tmp_path / "work"
    stopped = chaos(work, "--minutes", "0.05")
    assert stopped.returncode == 3, stopped.stdout + stopped.stderr
    assert "To go on: python -m chaos" in stopped.stdout
    assert work.exists()
    done = chaos(work)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Nothing was lost, nothing came twice, and state equals the oracle's." in done.stdout
    assert not work.exists()
    table = (tmp_path / "table").read_text()
    assert f"{KILLS} faults" in table
    assert all(f"| {kind} | " in table for kind in ("checkpoint", "stop", "savepoint", "rescale"))


def test_a_fault_that_cannot_be_is_refused_with_those_that_can(tmp_path: Path) -> None:
    done = chaos(tmp_path / "work", "--kinds", "executor")
    assert done.returncode == 2
    assert "no fault 'executor' for filesystem; there are: driver, checkpoint, stop, savepoint, rescale" in done.stderr
