"""Hints that running jobs provoke, and that disappear with their cause. The jobs run in the harness."""

from __future__ import annotations

import re
from typing import Any

import pytest
from watched_harness import Watched, environment

from penstock.common import Duration, Time, WatermarkStrategy
from penstock.common.watermark_strategy import TimestampAssigner
from penstock.connectors.source import Positions
from penstock.datastream import MapFunction, OutputTag, ProcessJoinFunction, StreamExecutionEnvironment
from penstock.datastream.connectors import Source
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.driver.epoch_errors import UserFunctionFailed
from penstock.testing import JobHarness
from penstock.web.board import without_keys
from penstock.web.hints import Hint, hints


class First(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[0]


TIMED = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(0)).with_timestamp_assigner(First())


class Pairs(ProcessJoinFunction):
    def process_element(self, left, right, ctx):
        yield left, right


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
        assert re.search(
            r"receives \d\d % of the records\. Its heaviest key is .* \(about \d\d % of all records\)\.", hint.text
        )
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


def test_late_records_of_an_interval_join_are_reported_until_ten_minutes_have_passed():
    env = StreamExecutionEnvironment.get_execution_environment()
    left, right = (
        env.from_collection([]).uid(uid).assign_timestamps_and_watermarks(TIMED).uid(f"{uid}-timed")
        for uid in ("left", "right")
    )
    pairs = left.key_by(lambda each: each[1]).interval_join(right.key_by(lambda each: each[1]))
    paired = pairs.between(Time.seconds(-1), Time.seconds(1)).process(Pairs()).name("pairs").uid("pairs")
    with JobHarness(paired, parallelism=1, backend="filesystem") as job:
        watched = Watched(job)
        job.push((0, "a"), (5000, "a"), source="left").push((5000, "a"), source="right").epoch()
        assert watched.hint("late") is None
        job.push((10, "a"), source="left").push((6000, "a"), source="right").epoch()
        hint = watched.hint("late")
        assert hint is not None
        assert hint.text == "Operator 'pairs' dropped 1 late record since the job started."
        assert watched.hint("late", after_s=601) is None


def two_timed_sources() -> Any:
    env = StreamExecutionEnvironment.get_execution_environment()
    left, right = (
        env.from_collection([]).uid(uid).assign_timestamps_and_watermarks(TIMED).uid(f"{uid}-timed")
        for uid in ("left", "right")
    )
    return left.union(right).key_by(lambda each: each[1]).reduce(lambda a, b: a).name("both").uid("both")


def test_a_source_without_any_record_is_reported_as_holding_back_the_watermark():
    with JobHarness(two_timed_sources(), parallelism=1, backend="filesystem") as job:
        watched = Watched(job)
        for at in range(1000, 20_000, 1000):
            job.push((at, "a"), source="left").epoch()
            watched.look()
        hint = watched.hint("watermark")
        assert hint is not None
        assert "The watermark of 'both -> Collect' has had no value for 1 min 35 s, although records" in hint.text
        assert "(uid 'right'), which has no watermark." in hint.text
        job.push((20_000, "b"), source="right").epoch()
        assert watched.hint("watermark") is None


def test_a_watermark_that_an_idle_partition_holds_back_is_reported_until_it_moves():
    with JobHarness(two_timed_sources(), parallelism=1, backend="filesystem") as job:
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
    """Fails at a bad line, as often as `left` says."""

    left = 0

    def map(self, value):
        if value == "bad" and Fails.left:
            Fails.left -= 1
            raise ValueError("bad line")
        return value


def parsed(failures: int, restarts: int) -> Any:
    """Return a stream whose function fails, in a job that restarts at once."""
    Fails.left = failures
    strategy = {"type": "fixed-delay", "fixed_delay__attempts": str(restarts)} if restarts else {"type": "none"}
    env = environment(**{f"restart_strategy__{key}": value for key, value in strategy.items()})
    return env.from_collection([]).uid("lines").map(Fails()).name("parse").uid("parse")


def test_a_job_that_waits_for_its_restart_is_reported_until_it_runs():
    with JobHarness(parsed(failures=1, restarts=1), parallelism=1, backend="filesystem") as job:
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


def test_a_job_that_fails_repeatedly_is_reported_until_ten_minutes_have_passed():
    with JobHarness(parsed(failures=2, restarts=5), parallelism=1, backend="filesystem") as job:
        watched = Watched(job)
        job.push("good").epoch()
        assert watched.kinds() == []
        job.push("bad").epoch()
        hint = watched.hint("restarting")
        assert hint is not None
        assert hint.text.startswith("The job failed 2 times within 10 min. Last cause: ValueError in ")
        assert watched.kinds(after_s=601) == []


def test_a_failed_job_is_reported_until_it_runs_again():
    with JobHarness(parsed(failures=1, restarts=0), parallelism=1, backend="filesystem") as job:
        watched = Watched(job)
        job.push("bad")
        with pytest.raises(UserFunctionFailed):
            job.epoch()
        (hint,) = watched.found()
        assert hint.kind == "failed"
        assert hint.text.endswith("ValueError in Source: Collection -> parse -> Collect (1/1): bad line")
        job.epoch()
        assert watched.kinds() == []


MESSAGES: list[str] = []
"""The messages that `Numbers` reads."""


class Numbers(Source):
    """Reads the numbers in `MESSAGES`."""

    def advance(self, positions: Positions, limit: int | None) -> Positions:
        begin = positions.get("0") or 0
        return {"0": len(MESSAGES) if limit is None else min(len(MESSAGES), begin + limit)}

    def read(self, split: str, start: Any, end: Any) -> Any:
        for offset in range(start or 0, end):
            message = MESSAGES[offset]
            number = message.isdigit() or message == "bad"
            yield message if number else self.unreadable("topic/0", f"offset {offset}", message, "not a number")


def test_dead_letters_are_reported_until_ten_minutes_have_passed():
    MESSAGES.clear()
    Fails.left = 1
    broken = OutputTag("broken")
    env = environment(restart_strategy__type="fixed-delay", restart_strategy__fixed_delay__attempts="5")
    orders = env.from_source(Numbers(), source_name="orders", dead_letters=broken)
    letters = orders.get_side_output(broken).map(lambda letter: letter.position)
    with JobHarness(orders.map(Fails()).union(letters), parallelism=2, backend="filesystem") as job:
        watched = Watched(job)
        MESSAGES.extend(["1", "2"])
        job.epoch()
        assert watched.kinds() == []
        MESSAGES.extend(["3", "x", "y"])
        job.epoch()
        (hint,) = watched.found()
        assert hint.text == "Source 'orders' could not read 2 records, which became dead letters."
        assert {"offset 3", "offset 4"} <= set(job.output)
        assert watched.kinds(after_s=601) == []
        # A restart keeps the counts. It does not report old dead letters again.
        MESSAGES.append("bad")
        job.epoch()
        assert job.restarts == 1
        assert watched.kinds() == []
        MESSAGES.append("z")
        job.epoch()
        assert watched.kinds() == ["dead-letters"]


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
