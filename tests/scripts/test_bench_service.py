"""The benchmark of the service runs against a real service; `make bench-service` takes the measurements."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_clients_poll_simulated_jobs_of_a_service() -> None:
    options = ["--jobs", "8", "--clients", "20", "--seconds", "5", "--warmup", "1", "--real", "0"]
    done = subprocess.run(
        [sys.executable, "-m", "bench.service", *options], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert "8 RUNNING" in done.stdout
    assert "✓ none" in done.stdout
