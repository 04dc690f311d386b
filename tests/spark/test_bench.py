"""The benchmark's own side runs and measures; what it measures is for `make bench`."""

import subprocess
import sys
from pathlib import Path

import pytest

from bench.result import Result
from bench.workload import Workload, write_input

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("way", ["bench.penstock_count", "bench.dict_loop"])
def test_a_way_of_counting_reports_every_warm_epoch(tmp_path: Path, way: str) -> None:
    write_input(Workload(keys=50, records=200, warmup=1, measured=3), tmp_path / "input")
    (tmp_path / "work").mkdir()
    done = subprocess.run(
        [sys.executable, "-m", way, str(tmp_path / "input"), str(tmp_path / "work"), "1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    result = Result.parse(done.stdout)
    assert result.records == 200
    assert len(result.seconds) == 3
    assert all(seconds > 0 for seconds in result.seconds)
