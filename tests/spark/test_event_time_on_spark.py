"""Event time and timers on Spark: varying numbers of input partitions, and epochs without data."""

import queue
import time
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.common import Duration, Time, WatermarkStrategy
from penstock.datastream import KeyedProcessFunction, ProcessFunction
from penstock.datastream.window import TumblingEventTimeWindows

pytestmark = pytest.mark.spark


class Late(KeyedProcessFunction):
    """Emits (record's time, watermark on arrival), and sets a timer at each record's time."""

    def process_element(self, value: Any, ctx: Any) -> Any:
        ctx.timer_service().register_event_time_timer(value.time)
        yield value.time, ctx.timer_service().current_watermark()

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield "timer", timestamp


class Collected:
    """The records of a running job, as they arrive."""

    def __init__(self, results: Any) -> None:
        self._results = results
        self.all: list[Any] = []

    def until(self, condition: Any) -> None:
        for record in self._results:
            self.all.append(record)
            if condition(self.all):
                return


def write(folder: Path, name: str, times: list[int]) -> None:
    pq.write_table(pa.table({"time": pa.array(times, pa.int64())}), folder / f".{name}")
    (folder / f".{name}").rename(folder / f"{name}.parquet")


def test_event_time_advances_with_varying_numbers_of_input_partitions(
    make_env: Any, session: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    epochs: queue.Queue[Any] = queue.Queue()
    session.conf.set("spark.sql.files.maxPartitionBytes", "4096")  # a partition for each file
    try:
        env = make_env(parallelism=2)
        env.add_epoch_listener(epochs.put)
        stream = env.from_spark(session.readStream.schema("time long").parquet(str(folder)))
        strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(50))
        stamped = stream.assign_timestamps_and_watermarks(
            strategy.with_timestamp_assigner(lambda row, timestamp: row.time)
        )
        results = stamped.key_by(lambda row: row.time % 4).process(Late()).execute_and_collect()
        with results:
            collected = Collected(results)
            start = 0
            for files in (7, 1, 3, 1):
                # Distribute ascending times over the files round-robin: each file covers the full range.
                times = list(range(start, start + 420, 10))
                for number in range(files):
                    write(folder, f"{start}-{number}", times[number::files])
                start += 420
                seen = start // 10
                collected.until(lambda all_, seen=seen: len([r for r in all_ if r[0] != "timer"]) == seen)
            records = [record for record in collected.all if record[0] != "timer"]
            assert [record for record in records if record[0] <= record[1]] == []
            # The last file arrived alone, so event time has almost reached its end and all earlier timers have fired.
            collected.until(lambda all_: ("timer", 1260) in all_)
    finally:
        session.conf.unset("spark.sql.files.maxPartitionBytes")
    assert epochs.qsize() >= 4


class Reminder(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        now = ctx.timer_service().current_processing_time()
        ctx.timer_service().register_processing_time_timer(now + 300)
        yield "set", now + 300

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield "fired", timestamp, ctx.timer_service().current_processing_time()


@pytest.mark.parametrize("checkpoints", [False, True])
def test_a_processing_time_timer_fires_although_the_source_is_silent(
    make_env: Any, session: Any, tmp_path: Path, checkpoints: bool
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    write(folder, "one", [1])
    env = make_env(parallelism=2, checkpoints=checkpoints)
    epochs: SimpleQueue[Any] = SimpleQueue()
    env.add_epoch_listener(epochs.put)
    stream = env.from_spark(session.readStream.schema("time long").parquet(str(folder)))
    results = stream.key_by(lambda row: row.time).process(Reminder()).execute_and_collect()
    with results:
        collected = Collected(results)
        collected.until(lambda all_: any(record[0] == "fired" for record in all_))
        (_, due), (_, set_for, clock) = collected.all
        assert set_for == due <= clock
        # Only data or a timer causes an epoch; the next data causes an ordinary epoch again. The results of an epoch
        # arrive before its listener is called.
        assert [epochs.get().records for _ in range(2)] == [1, 0]
        write(folder, "two", [2])
        collected.until(lambda all_: len(all_) == 4)
        assert [epochs.get().records for _ in range(2)] == [1, 0]
        assert epochs.empty()


class Stamp(ProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield "record", value, ctx.timestamp()


def test_watermarks_continue_across_epochs_and_branches_keep_their_timestamps(
    make_env: Any,
) -> None:
    env = make_env(parallelism=2, records=1)
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(10))

    def stamped(records: list[int]) -> Any:
        task = env.from_collection(records).rebalance().map(lambda value: value).set_parallelism(1)
        own = strategy.with_timestamp_assigner(lambda value, timestamp: value)
        return task.assign_timestamps_and_watermarks(own).set_parallelism(1)

    # After its second epoch the first stream is far behind the other, and behind its own watermark.
    first, second = stamped([300, 295, 301, 302, 303]), stamped([300, 10_000])
    later = strategy.with_timestamp_assigner(lambda value, timestamp: timestamp + 1_000_000)
    branch = first.assign_timestamps_and_watermarks(later).set_parallelism(1).filter(lambda value: False)
    shown = first.process(Stamp()).set_parallelism(1)
    windows = first.union(second).key_by(lambda value: 0).window(TumblingEventTimeWindows.of(Time.milliseconds(50)))
    counted = windows.apply(lambda key, window, values: [("window", window.start, sorted(values))])
    with counted.union(shown, branch).execute_and_collect() as results:
        rows = sorted(results, key=repr)
    assert rows == sorted(
        [
            *(("record", value, value) for value in (295, 300, 301, 302, 303)),
            ("window", 250, [295]),
            ("window", 300, [300, 300, 301, 302, 303]),
            ("window", 10_000, [10_000]),
        ],
        key=repr,
    )


@pytest.mark.parametrize("behind", [False, True], ids=["in the chain of the source", "behind an exchange"])
def test_an_idle_source_is_ignored_after_its_timeout(make_env: Any, session: Any, tmp_path: Path, behind: bool) -> None:
    busy, quiet = tmp_path / "busy", tmp_path / "quiet"
    for folder in (busy, quiet):
        folder.mkdir()
    write(quiet, "one", [10])
    write(busy, "one", [100])
    env = make_env(parallelism=2)

    def stamped(folder: Path) -> Any:
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_idleness(Duration.of_millis(1500))
        rows = env.from_spark(session.readStream.schema("time long").parquet(str(folder)))
        if behind:
            rows = rows.rebalance().map(lambda row: row)
        return rows.assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(lambda row, timestamp: row.time))

    results = stamped(busy).union(stamped(quiet)).key_by(lambda row: 0).process(Late()).execute_and_collect()
    began = time.monotonic()
    with results:
        collected = Collected(results)
        collected.until(lambda all_: ("timer", 10) in all_)
        assert ("timer", 100) not in collected.all
    assert time.monotonic() - began >= 1.5
