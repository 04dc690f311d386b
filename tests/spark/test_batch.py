"""Bounded jobs in runtime mode BATCH: one Spark job, no checkpoint, and the same results as in the harness."""

import os
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from penstock.common import Encoder, Time, WatermarkStrategy
from penstock.datastream import (
    KeyedProcessFunction,
    RuntimeContext,
    RuntimeExecutionMode,
    Superstep,
    iterate_bounded,
)
from penstock.datastream.connectors.file_system import FileSink, FileSource, StreamFormat
from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.errors import PenstockError

pytestmark = pytest.mark.spark

LETTERS = [("a", 0), ("c", 1), ("d", 1), ("b", 0), ("e", 1)]


@pytest.fixture
def env(make_env: Any) -> Any:
    # A batch ignores the limit per epoch and the checkpoint settings.
    return make_env(records=2, checkpoints=True).set_runtime_mode(RuntimeExecutionMode.AUTOMATIC)


@pytest.fixture
def epochs(env: Any) -> list[int]:
    """Collect the number of records of each epoch."""
    seen: list[int] = []
    env.add_epoch_listener(lambda epoch: seen.append(epoch.records))
    return seen


def collected(stream: Any) -> list[Any]:
    with stream.execute_and_collect() as results:
        return sorted(results)


def by_number(letters: Any) -> Any:
    return letters.key_by(lambda pair: pair[1]).reduce(lambda one, two: (one[0] + two[0], one[1]))


def test_a_collection_is_one_epoch_and_leaves_no_checkpoint(env: Any, epochs: list[int], tmp_path: Path) -> None:
    assert collected(by_number(env.from_collection(LETTERS))) == [("ab", 0), ("cde", 1)]
    assert epochs == [5]
    assert [path for path in (tmp_path / "checkpoints").rglob("*") if path.is_file()] == []


def test_every_kind_of_source_is_read_in_one_epoch(env: Any, epochs: list[int], tmp_path: Path) -> None:
    (tmp_path / "input").mkdir()
    for name in ("x", "y"):
        (tmp_path / "input" / name).write_text("1\n2\n")
    frame = env.spark.range(1, 4)
    files = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(tmp_path / "input")).build()
    numbers = env.from_collection([10, 20]).union(
        env.from_spark(frame).map(lambda row: row[0]),
        env.from_sequence(100, 119),
        env.from_source(files, WatermarkStrategy.no_watermarks(), "files").map(lambda line: 1000 * int(line)),
    )
    total = 10 + 20 + 1 + 2 + 3 + sum(range(100, 120)) + 6000
    assert collected(numbers.key_by(lambda n: 0).sum()) == [total]
    assert epochs == [2 + 3 + 20 + 4]


def test_windows_have_all_their_records_in_any_order(env: Any) -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda pair, timestamp: pair[1])
    pairs = env.from_collection([("a", 25), ("a", 1), ("b", 7), ("a", 3), ("a", 12)])
    windows = pairs.assign_timestamps_and_watermarks(strategy).key_by(lambda pair: pair[0])
    sums = windows.window(TumblingEventTimeWindows.of(Time.milliseconds(10))).reduce(lambda x, y: (x[0], x[1] + y[1]))
    assert collected(sums) == [("a", 4), ("a", 12), ("a", 25), ("b", 7)]


def test_a_failed_batch_starts_over_and_writes_nothing_twice(make_env: Any, tmp_path: Path) -> None:
    marker = tmp_path / "failed"

    class Once(KeyedProcessFunction):
        def open(self, runtime_context: RuntimeContext) -> None:
            self.n = runtime_context.get_state(ValueStateDescriptor("n", int))

        def process_element(self, value: int, ctx: Any) -> Any:
            n = (self.n.value() or 0) + 1
            self.n.update(n)
            if value == 99 and not marker.exists():
                marker.touch()
                raise OSError("once")
            yield str(n)

    settings = {"restart-strategy__type": "fixed-delay", "restart-strategy__fixed-delay__delay": "1 ms"}
    env = make_env(**settings).set_runtime_mode(RuntimeExecutionMode.BATCH)
    results = env.from_sequence(1, 100).key_by(lambda n: n % 10).process(Once())
    results.sink_to(FileSink.for_row_format(str(tmp_path / "out"), Encoder.simple_string_encoder()).build())
    env.execute("once")
    assert marker.exists()
    written = [line for path in (tmp_path / "out").rglob("*") if path.is_file() for line in path.read_text().split()]
    assert Counter(written) == Counter({str(n): 10 for n in range(1, 11)})


def test_a_savepoint_of_a_batch_is_refused(make_env: Any, tmp_path: Path) -> None:
    env = make_env().set_runtime_mode(RuntimeExecutionMode.BATCH)
    env.from_sequence(1, 10).key_by(lambda n: 0).sum().print()
    client = env.execute_async("saved")
    with pytest.raises(PenstockError, match="runs as a batch, which has no checkpoints"):
        client.trigger_savepoint(str(tmp_path)).result()
    client.get_job_execution_result().result()


def test_an_iteration_is_a_batch_for_each_superstep(make_env: Any) -> None:
    def halved(numbers: Any, superstep: int) -> Superstep:
        after = numbers.map(lambda n: n // 2)
        return Superstep(after, after.filter(lambda n: n > 1))

    found = iterate_bounded(make_env(), [40, 7, 3], halved, 20)
    assert (sorted(found.records), found.supersteps, found.converged) == ([0, 0, 1], 5, True)


LOST = """
    from penstock.datastream import RuntimeExecutionMode, StreamExecutionEnvironment

    env = StreamExecutionEnvironment.get_execution_environment().set_runtime_mode(RuntimeExecutionMode.BATCH)
    env.set_parallelism(2)
    env.from_sequence(1, 1000).key_by(lambda n: n % 2).sum().print()
    env.execute("lost")
"""


def test_the_work_of_a_lost_worker_is_repeated(tmp_path: Path) -> None:
    program, marker = tmp_path / "lost.py", tmp_path / "died"
    program.write_text(textwrap.dedent(LOST))
    done = subprocess.run(
        [sys.executable, "-m", "penstock.cli.main", "run", "-D", "spark.master=local[2]", str(program)],
        env={**os.environ, "PENSTOCK_CRASH": f"task:level1.processed:1:{marker}"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert marker.exists()
    sums = sorted(line.split("> ")[-1] for line in done.stdout.splitlines())
    assert (done.returncode, sums) == (0, ["250000", "250500"]), done.stderr
