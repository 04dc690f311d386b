"""Penstock's side of the benchmarks runs and reports; `make bench` takes the measurements."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest

from bench.io.__main__ import SINKS
from bench.io.job import COLUMNS, run
from bench.result import Result
from bench.workload import Workload, write_input

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("way", ["bench.penstock_count", "bench.dict_loop"])
def test_a_counting_benchmark_reports_every_warm_epoch(tmp_path: Path, way: str) -> None:
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


@pytest.mark.parametrize("sink", SINKS)
def test_a_sink_benchmark_measures_every_warm_epoch(session: Any, postgres: str, tmp_path: Path, sink: str) -> None:
    write_input(Workload(keys=50, records=200, warmup=1, measured=3), tmp_path / "input")
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE counts ({COLUMNS})".encode())
        seconds = run(session, sink, tmp_path / "input", tmp_path / "work", 1, postgres)
        assert len(seconds) == 3
        rows = connection.execute("SELECT count(*) FROM counts").fetchone()
    lines = sum(len(path.read_text().splitlines()) for path in (tmp_path / "work").glob("output/part-*"))
    assert (rows, lines) == {"discarding": ((0,), 0), "files": ((0,), 800), "postgres": ((800,), 0)}[sink]
