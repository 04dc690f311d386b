"""Calls of PyFlink programs whose effect only Spark shows: files on workers, tasks of sources, listeners."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

PROGRAM = """
import os
import sys

from pyspark import SparkFiles, TaskContext

from penstock.common import Configuration, Types, WatermarkStrategy
from penstock.datastream import JobListener, StreamExecutionEnvironment
from penstock.datastream.connectors.number_seq import NumberSequenceSource

configuration = Configuration.from_dict({"spark.master": "local[4]", "parallelism.default": "4"})


def new():
    return StreamExecutionEnvironment.get_execution_environment(configuration)


class Listener(JobListener):
    def on_job_submitted(self, client, error):
        print("submitted", client is not None, error)

    def on_job_executed(self, result, error):
        print("executed", result is not None, error)


def word(number):
    with open(SparkFiles.get("words")) as words:
        return words.read().split()[number], os.access(SparkFiles.get("words"), os.X_OK)


env = new()
env.register_cached_file(sys.argv[1], "words", True)
env.register_job_listener(Listener())
env.from_collection([0, 1]).set_parallelism(1).map(word).print()
env.execute("words")


def tasks(stream):
    records = stream.map(lambda n: TaskContext.get().partitionId()).execute_and_collect("tasks", 60)
    return len(set(records)), len(records)


print(tasks(new().from_source(NumberSequenceSource(1, 60), WatermarkStrategy.no_watermarks(), "numbers")))
print(tasks(new().from_source(NumberSequenceSource(1, 60)).set_parallelism(2)))
frame = env.spark.range(60).repartition(4)
print(tasks(new().from_spark(frame).set_parallelism(1)))

pairs = new().from_collection([(1, "a"), (1, "b")], Types.TUPLE([Types.INT(), Types.STRING()]))
print(pairs.key_by(lambda pair: pair[0], Types.INT()).execute_and_collect("keyed", 2))
"""


def test_files_parallelism_listeners_and_keyed_results_reach_the_workers(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("zero one")
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "program.py", str(tmp_path / "in.txt")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "submitted True None",
        "('zero', True)",
        "('one', True)",
        "executed True None",
        "(4, 60)",
        "(2, 60)",
        "(1, 60)",
        "[Row(f0=1, f1=(1, 'a')), Row(f0=1, f1=(1, 'b'))]",
    ]
