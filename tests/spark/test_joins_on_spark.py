"""Joins of all kinds in one program on Spark, in epochs of three records, compared with plain lists."""

from typing import Any

import pytest

from penstock.common import Duration, Time, WatermarkStrategy
from penstock.datastream.window import TumblingEventTimeWindows

pytestmark = pytest.mark.spark

LEFTS = [(number % 3, number * 7) for number in range(12)]
RIGHTS = [(number % 3, number * 5) for number in range(12)]


def test_joins_and_co_groups_match_those_of_plain_lists(make_env: Any) -> None:
    env = make_env(records=3, checkpoints=True)
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(1))
    strategy = strategy.with_timestamp_assigner(lambda record, _: record[1])
    lefts = env.from_collection(LEFTS).uid("lefts").assign_timestamps_and_watermarks(strategy)
    rights = env.from_collection(RIGHTS).uid("rights").assign_timestamps_and_watermarks(strategy)

    def key(record: tuple[int, int]) -> int:
        return record[0]

    near = lefts.key_by(key).interval_join(rights.key_by(key)).between(-10, 10)
    near = near.process(lambda left, right, ctx: [("near", left, right)]).uid("near")
    windows = TumblingEventTimeWindows.of(Time.milliseconds(20))
    joined = lefts.join(rights).where(key).equal_to(key).window(windows)
    joined = joined.apply(lambda left, right: ("pair", left, right)).uid("joined")
    grouped = lefts.co_group(rights).where(key).equal_to(key).window(windows)
    grouped = grouped.apply(lambda one, two: [("group", sorted(one), sorted(two))]).uid("grouped")
    with near.union(joined, grouped).execute_and_collect("joins") as results:
        given = sorted(results, key=repr)

    expected: list[Any] = [
        ("near", left, right)
        for left in LEFTS
        for right in RIGHTS
        if left[0] == right[0] and abs(right[1] - left[1]) <= 10
    ]
    for window, each in {(record[1] // 20, record[0]) for record in LEFTS + RIGHTS}:
        one, two = (
            sorted(record for record in records if record[0] == each and record[1] // 20 == window)
            for records in (LEFTS, RIGHTS)
        )
        expected.append(("group", one, two))
        expected += [("pair", left, right) for left in one for right in two]
    assert given == sorted(expected, key=repr)
