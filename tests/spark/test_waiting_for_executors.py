"""Jobs to which a cluster gives no executor, because it has no free cores."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from standalone import ROOT, Standalone

pytestmark = [pytest.mark.spark, pytest.mark.long]


def test_a_job_without_executors_says_so_and_can_be_cancelled_and_goes_on_with_the_first_one(tmp_path: Path) -> None:
    script = Path(__file__).with_name("no_executor_job.py")
    (tmp_path / "home").mkdir()
    cluster = Standalone(tmp_path / "home")
    command = [sys.executable, str(script), cluster.address, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
    process = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        while process.poll() is None and not (tmp_path / "waits").exists():
            time.sleep(0.1)
        if process.poll() is None:
            cluster.add_worker(1)
        _, stderr = process.communicate(timeout=600)
    finally:
        process.kill()
        cluster.close()
    assert process.returncode == 0, stderr
    said = json.loads((tmp_path / "said.json").read_text())
    assert said["state"] == "RUNNING"
    assert said["reason"] == "The job needs 1 slots, but Spark has 0. It waits for them."
    assert said["tasks"] == ["SCHEDULED"]
    assert said["cancelled"] == "CANCELED"
    assert "Job 'late' waited 1 s for an executor (slot.request.timeout)." in said["late"]
    assert said["results"] == [1, 2, 3]
    assert said["reason at the end"] == ""
