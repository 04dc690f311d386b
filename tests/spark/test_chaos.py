"""A short run of the crash rig: a real job, real processes and a fixed seed. `make chaos` is the long run."""

import subprocess
import sys
from pathlib import Path

import pytest

# Two JVM starts and ten recoveries took 210 s at a load of four times the cores.
pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
KINDS = ["driver", "worker", "pause", "replica-cut", "replica-gone", "disk-full", "disk-error", "write-limit"]
KILLS = 8


@pytest.mark.parametrize("backend", ["filesystem"])
def test_a_killed_and_damaged_job_neither_loses_nor_duplicates_records(tmp_path: Path, backend: str) -> None:
    words = f"--kills {KILLS} --seed 5 --backend {backend} --master local[2] --kinds {','.join(KINDS)}".split()
    done = subprocess.run(
        [sys.executable, "-m", "chaos", *words, "--work", str(tmp_path / "work"), "--summary", str(tmp_path / "table")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=580,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Nothing was lost, nothing came twice, and state equals the oracle's." in done.stdout
    table = (tmp_path / "table").read_text()
    assert f"{KILLS} faults" in table
    assert all(f"| {kind} |" in table for kind in {"driver", "worker"})
