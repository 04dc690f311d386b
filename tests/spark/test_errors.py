"""The errors that a user sees, without unrelated output."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from job_lines import without_job_lines

from penstock.errors import PenstockError

pytestmark = pytest.mark.spark

JVM_WORDS = ("org.apache", "py4j", "java.lang", "\tat ", "WARN", "log4j", "incubator")

PREAMBLE = """
    from penstock.datastream import StreamExecutionEnvironment, KeyedProcessFunction
    from penstock.datastream.state import ValueStateDescriptor
    from penstock.common import Configuration
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict({"spark.master": "local[2]"}))
"""


def script(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "job.py"
    path.write_text(textwrap.dedent(PREAMBLE) + textwrap.dedent(text))
    return path


def test_a_user_exception_arrives_with_the_user_traceback(make_env: Any) -> None:
    def broken(value: int) -> float:
        return 1 / (value - 3)

    env = make_env()
    env.from_collection([1, 2, 3]).map(broken).name("invert").uid("invert-1").print()
    with pytest.raises(PenstockError) as raised:
        env.execute()
    message = str(raised.value)
    assert "Operator 'invert' (uid 'invert-1')" in message
    assert "return 1 / (value - 3)" in message
    assert message.endswith("ZeroDivisionError: division by zero")
    assert not any(word in message for word in JVM_WORDS)
    assert raised.value.__cause__ is None
    assert len([line for line in message.splitlines() if line.startswith("  File")]) == 1


def test_a_job_runs_after_a_failed_one(make_env: Any) -> None:
    env = make_env()
    env.from_collection([0]).map(lambda n: 1 / n).print()
    with pytest.raises(PenstockError, match="ZeroDivisionError"):
        env.execute()
    with env.from_collection([1]).map(lambda n: 1 / n).execute_and_collect() as results:
        assert list(results) == [1.0]


def test_a_failing_program_prints_its_own_frames_and_no_jvm_output(tmp_path: Path) -> None:
    path = script(
        tmp_path,
        """
        class Counter(KeyedProcessFunction):
            def open(self, ctx):
                self.n = ctx.get_state(ValueStateDescriptor("n", int))
            def process_element(self, value, ctx):
                self.n.update("three")
        env.from_collection([1, 2]).key_by(lambda v: v).process(Counter()).name("counter").print()
        env.execute()
        """,
    )
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert not any(word in done.stderr for word in JVM_WORDS), done.stderr
    assert "Operator 'counter'" in done.stderr
    assert 'self.n.update("three")' in done.stderr
    assert "State 'n'" in done.stderr
    assert len(done.stderr.splitlines()) <= 15, done.stderr


def test_a_working_program_prints_its_output_and_two_job_lines(tmp_path: Path) -> None:
    path = script(
        tmp_path,
        """
        env.set_parallelism(1)
        env.from_collection(["a", "b", "a"]).map(lambda v: v.upper()).print()
        env.execute()
        """,
    )
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "A\nB\nA\n")
    assert without_job_lines(done.stderr) == ""


def test_control_c_stops_an_endless_job_within_seconds(tmp_path: Path) -> None:
    path = script(
        tmp_path,
        """
        env.add_epoch_listener(lambda epoch: print("epoch", flush=True))
        env.from_spark(env.spark.readStream.format("rate").load()).key_by(lambda row: row.value).map(str).print()
        env.execute()
        """,
    )
    process = subprocess.Popen(
        [sys.executable, str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    assert any(line.startswith("epoch") for line in iter(process.stdout.readline, ""))
    # Signal the entire group, as a terminal does.
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode != 0
    assert "KeyboardInterrupt" in errors
    assert not any(word in errors for word in JVM_WORDS), errors
    for _ in range(1200):
        if not group_lives(process.pid):
            break
        signal.sigtimedwait([], 0.1)
    assert not group_lives(process.pid), "the JVM or a worker outlives the program"


def group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
