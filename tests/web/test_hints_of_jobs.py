"""Hints that running jobs provoke, and that disappear with their cause. The jobs run in the harness."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.common import Configuration, Duration, Time, WatermarkStrategy
from penstock.common.watermark_strategy import TimestampAssigner
from penstock.datastream import MapFunction, StreamExecutionEnvironment
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.driver.job_snapshot import JobSnapshot
from penstock.testing import JobHarness
from penstock.web.board import without_keys
from penstock.web.hints import Hint, hints
from penstock.web.observation import Watch


class Watched:
    """A job as the page sees it: each look is some seconds after the last one."""

    def __init__(self, job: JobHarness) -> None:
        self.job, self.watch, self.at_ms = job, Watch(), 0

    def look(self, after_s: float = 5) -> JobSnapshot:
        snapshot = self.job.snapshot()
        self.at_ms = max(self.at_ms, snapshot.taken_ms) + int(1000 * after_s)
        snapshot = msgspec.structs.replace(snapshot, taken_ms=self.at_ms)
        self.watch.observe(snapshot)
        return snapshot

    def hint(self, kind: str, after_s: float = 5) -> Hint | None:
        return next((each for each in hints(self.look(after_s), self.watch) if each.kind == kind), None)


class First(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[0]


def keyed() -> Any:
    env = StreamExecutionEnvironment.get_execution_environment()
    words = env.from_collection([]).uid("words")
    return words.key_by(lambda word: word).reduce(lambda a, b: a).name("last").uid("last")


def test_skewed_keys_are_named_until_the_records_are_even_again():
    with JobHarness(keyed(), parallelism=4, backend="filesystem") as job:
        watched = Watched(job)
        job.push(*(["popular"] * 1900), *(f"w{each}" for each in range(100))).epoch()
        snapshot = watched.look()
        hint = next(each for each in hints(snapshot, watched.watch) if each.kind == "skew")
        assert "Its heaviest key is 'popular' in key group " in hint.text
        assert "% of the records" in hint.text
        # Without the state browser, the page names no keys.
        hidden = next(each for each in hints(without_keys(snapshot), watched.watch) if each.kind == "skew")
        assert "popular" not in hidden.text
        assert "Its heaviest key is one key in key group " in hidden.text
        job.push(*(f"w{each}" for each in range(2000))).epoch()
        assert watched.hint("skew") is None


def test_late_records_are_reported_until_ten_minutes_have_passed():
    env = StreamExecutionEnvironment.get_execution_environment()
    timed = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(First())
    records = env.from_collection([]).uid("records").assign_timestamps_and_watermarks(timed).uid("timed")
    windows = records.key_by(lambda each: each[1]).window(TumblingEventTimeWindows.of(Time.seconds(1)))
    counts = windows.reduce(lambda a, b: a).name("windows").uid("windows")
    with JobHarness(counts, parallelism=1, backend="filesystem") as job:
        watched = Watched(job)
        job.push((0, "a"), (5000, "a")).epoch()
        assert watched.hint("late") is None
        job.push((10, "a"), (20, "a"), (6000, "a")).epoch()
        hint = watched.hint("late")
        assert hint is not None
        assert hint.text == "Operator 'windows' dropped 2 late records since the job started."
        job.push((7000, "a")).epoch()
        assert watched.hint("late", after_s=601) is None


def test_a_watermark_that_an_idle_partition_holds_back_is_reported_until_it_moves():
    env = StreamExecutionEnvironment.get_execution_environment()
    timed = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(0)).with_timestamp_assigner(First())
    left = env.from_collection([]).uid("left").assign_timestamps_and_watermarks(timed).uid("left-timed")
    right = env.from_collection([]).uid("right").assign_timestamps_and_watermarks(timed).uid("right-timed")
    both = left.union(right).key_by(lambda each: each[1]).reduce(lambda a, b: a).name("both").uid("both")
    with JobHarness(both, parallelism=1, backend="filesystem") as job:
        watched = Watched(job)
        job.push((1000, "a"), source="left").push((1000, "b"), source="right").epoch()
        watched.look()
        for at in range(2000, 20_000, 1000):
            job.push((at, "a"), source="left").epoch()
            watched.look()
        hint = watched.hint("watermark")
        assert hint is not None
        assert "The watermark of 'both -> Collect' has stood at 1970-01-01 00:00:00.999 UTC" in hint.text
        assert "held back by 'Source: Collection -> Timestamps/Watermarks' (uid 'right')" in hint.text
        job.push((20_000, "b"), source="right").epoch()
        assert watched.hint("watermark") is None


class Fails(MapFunction):
    """Fails at a bad line, but only once."""

    failed = False

    def map(self, value):
        if value == "bad" and not Fails.failed:
            Fails.failed = True
            raise ValueError("bad line")
        return value


def test_a_job_that_waits_for_its_restart_is_reported_until_it_runs():
    strategy = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": "1"}
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(strategy))
    stream = env.from_collection([]).uid("lines").map(Fails()).name("parse").uid("parse")
    with JobHarness(stream, parallelism=1, backend="filesystem") as job:
        watched = Watched(job)
        found: list[Hint | None] = []
        wait = job.clock.wait

        def look(seconds: float) -> None:
            found.append(watched.hint("restarting"))
            wait(seconds)

        job.clock.wait = look  # type: ignore[method-assign]
        job.push("good").epoch()
        job.push("bad")
        job.epoch()
        assert found[0] is not None
        assert found[0].text.endswith("Cause: ValueError in Source: Collection -> parse -> Collect (1/1): bad line")
        assert watched.look().state == "RUNNING"
        assert watched.hint("restarting") is None


def test_state_that_grows_with_every_epoch_is_reported_until_it_stops():
    with JobHarness(keyed(), parallelism=1, backend="filesystem") as job:
        watched = Watched(job)
        for epoch in range(15):
            job.push(*(f"{epoch}-{each}-{'x' * 1000}" for each in range(60))).epoch()
        hint = watched.hint("state")
        assert hint is not None
        assert "in the last 15 epochs; 'last -> Collect' holds" in hint.text
        for _ in range(60):
            job.push("0-0").epoch()
        assert watched.hint("state") is None
