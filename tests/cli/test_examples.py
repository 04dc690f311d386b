"""The README's first program is examples/first.py, and both examples produce the documented output."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from job_lines import without_job_lines

from penstock.datastream import StreamExecutionEnvironment
from penstock.testing import JobHarness
from scripts import class_archive

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
PROGRAM, OUTPUT = re.search(r"```python\n(.*?)```.*?```text\n(.*?)```", README, re.DOTALL).groups()


def test_the_readmes_first_program_is_the_example_and_has_12_lines():
    assert (ROOT / "examples/first.py").read_text() == PROGRAM
    assert len([line for line in PROGRAM.splitlines() if line]) == 12


@pytest.mark.spark
def test_the_first_program_prints_the_readmes_output():
    done = subprocess.run(
        [sys.executable, "-m", "penstock.cli.main", "run", ROOT / "examples/first.py"],
        capture_output=True,
        text=True,
        timeout=120,
        # The same environment as a user has.
        env=class_archive.without(os.environ),
    )
    assert (done.stdout, without_job_lines(done.stderr)) == (OUTPUT, "")


def test_the_url_count_emits_one_result_per_request():
    spec = importlib.util.spec_from_file_location("url_count", ROOT / "examples/url_count.py")
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    sys.modules["url_count"] = example
    try:
        env = StreamExecutionEnvironment.get_execution_environment()
        with JobHarness(example.url_counts(env.from_collection([*example.SAMPLE, "-", '"\\x16\\x03" 400']))) as job:
            assert job.run() == [("/api/a", 1), ("/api/b", 1), ("/api/a", 2)]
    finally:
        del sys.modules["url_count"]
