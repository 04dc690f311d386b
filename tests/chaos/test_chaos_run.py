"""The complete rig without a JVM: real processes are killed, and real files damaged."""

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
def test_a_stopped_and_continued_run_loses_and_duplicates_nothing(tmp_path: Path) -> None:
    work = tmp_path / "work"
    stopped = chaos(work, "--minutes", "0.05")
    assert stopped.returncode == 3, stopped.stdout + stopped.stderr
    assert "To continue: python -m chaos" in stopped.stdout
    assert work.exists()
    done = chaos(work)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "No record was lost or duplicated, and the state equals the oracle's." in done.stdout
    assert not work.exists()
    table = (tmp_path / "table").read_text()
    assert f"{KILLS} faults" in table
    assert all(f"| {kind} | " in table for kind in ("checkpoint", "stop", "savepoint", "rescale"))


def test_an_impossible_fault_is_rejected_with_the_possible_ones(tmp_path: Path) -> None:
    done = chaos(tmp_path / "work", "--kinds", "executor")
    assert done.returncode == 2
    assert "fault 'executor' does not apply to filesystem; choose from: driver, checkpoint, stop" in done.stderr
