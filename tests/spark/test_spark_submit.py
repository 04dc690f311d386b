"""A program that `spark-submit` starts runs with the master and the settings of its command line."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.long]

PROGRAM = """
from penstock.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
numbers = env.from_collection([1, 2, 3]).uid("numbers")
numbers.key_by(lambda number: number).reduce(lambda one, other: one + other).uid("sum").print()
print("parallelism", env.get_parallelism())
env.execute("sums")
conf = env.spark.sparkContext.getConf()
print("master", env.spark.sparkContext.master, conf.get("spark.app.name"), conf.get("spark.sql.session.timeZone"))
"""


def test_a_submitted_program_uses_the_master_and_settings_of_spark_submit(tmp_path: Path) -> None:
    program = tmp_path / "job.py"
    program.write_text(PROGRAM)
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    submit = Path(sys.executable).with_name("spark-submit")
    command = [str(submit), "--master", "local[3]", "--name", "submitted", str(program)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240, env=environment)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "parallelism 3" in lines
    assert "master local[3] submitted UTC" in lines
    assert sorted(line.split("> ")[-1] for line in lines if line[:1].isdigit()) == ["1", "2", "3"]
