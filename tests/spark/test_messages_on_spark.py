"""Output of a job on Spark after an end that Python does not see: that of a worker or of Spark's JVM."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.driver.epoch_errors import EpochFailed, UserFunctionFailed

pytestmark = pytest.mark.spark


def test_a_worker_ended_by_a_function_is_reported_with_its_operators(make_env: Any) -> None:
    env = make_env(parallelism=1)
    env.from_collection([1, 2]).key_by(lambda n: n).map(lambda n: os._exit(7)).name("leaver").print()
    with pytest.raises(EpochFailed) as caught:
        env.execute()
    assert "A Python worker of Spark exited while it ran subtask 0 of leaver -> " in caught.value.problem
    assert "os._exit()" in caught.value.fix


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_a_base_exception_in_a_function_names_the_operator(make_env: Any, error: type) -> None:
    def interrupt(value: int) -> int:
        raise error

    env = make_env(parallelism=1)
    env.from_collection([1]).map(interrupt).name("interrupting").print()
    with pytest.raises(UserFunctionFailed) as caught:
        env.execute()
    failure = caught.value.failures[0]
    assert (failure.operator, failure.headline, failure.record) == ("interrupting", error.__name__, "1")
    assert "interrupt" in failure.fix


PROGRAM = """
import os, signal
from pyspark import SparkContext
from penstock.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.enable_checkpointing(200)
numbers = env.from_spark(env.spark.readStream.format("rate").load())
numbers.map(lambda row: row.value).print()
numbers.map(str).name("forgotten")


def kill(epoch):
    if epoch.number == 2:
        os.kill(SparkContext._gateway.proc.pid, signal.SIGKILL)


env.add_epoch_listener(kill)
env.execute("mortal")
"""


@pytest.mark.slow
def test_a_job_reports_a_killed_jvm_and_how_to_resume(tmp_path: Path) -> None:
    """Also checks everything that it prints before."""
    path = tmp_path / "job.py"
    path.write_text(PROGRAM)
    settings = {
        "state.checkpoints.dir": str(tmp_path / "checkpoints"),
        "execution.checkpointing.interval": "1 min",
        "pipeline.name": "other",
        "penstock.control.dir": str(tmp_path / "control"),
    }
    given = [word for key, value in settings.items() for word in ("-D", f"{key}={value}")]
    command = [sys.executable, "-m", "penstock.cli.main", "run", "-p", "1", *given, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert not re.search(r"Traceback|py4j|Py4J|ConnectionRefused|\tat ", done.stderr), done.stderr
    expected = [
        rf"{path}:19: UserWarning: The results of these operators go nowhere.*'forgotten' \(line 10\)",
        r'  env.execute\("mortal"\)',
        rf"The program sets execution.checkpointing.interval to 200 ms \({path}:7\). The 1 min of the command line",
        rf"The program sets pipeline.name to mortal \({path}:19\). The other of the command line has no effect.",
        r"Job 'mortal' \([0-9a-f]{32}\) starts from scratch, parallelism 1, checkpoints every 0.2 s in /.*/mortal",
        r"Job 'mortal' failed after .*Last checkpoint: \d+. Start the program again to resume from it.",
        rf"{path}:19: SparkEnded: Spark's JVM \(process \d+\) has ended: it was killed by SIGKILL",
        r'    env.execute\("mortal"\)',
        r"Fix: If it ran out of memory, raise spark.driver.memory",
    ]
    lines = done.stderr.splitlines()
    assert len(lines) == len(expected), done.stderr
    for line, pattern in zip(lines, expected, strict=True):
        assert re.match(pattern, line), (pattern, line)
