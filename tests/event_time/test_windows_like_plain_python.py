"""Windows have the results of a plain loop over the records, for any epochs and parallelism."""

from collections import defaultdict

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.common import Duration, Types, WatermarkStrategy
from penstock.datastream import AggregateFunction, ProcessWindowFunction, StreamExecutionEnvironment
from penstock.datastream.window import EventTimeSessionWindows, SlidingEventTimeWindows, TumblingEventTimeWindows
from penstock.testing import JobHarness

DISORDER = 20
SIZE, SLIDE, OFFSET, GAP = 17, 5, 3, 9


class Sum(AggregateFunction):
    def create_accumulator(self):
        return 0

    def add(self, value, accumulator):
        return accumulator + value[1]

    def get_result(self, accumulator):
        return accumulator

    def merge(self, acc_a, acc_b):
        return acc_a + acc_b


class Name(ProcessWindowFunction):
    def process(self, key, context, elements):
        for element in elements:
            yield key, context.window().start, context.window().end, element


def tumbling(records):
    sums = defaultdict(int)
    for key, value, time in records:
        start = (time - OFFSET) // SIZE * SIZE + OFFSET
        sums[key, start, start + SIZE] += value
    return sums


def sliding(records):
    sums = defaultdict(int)
    for key, value, time in records:
        for start in range(time // SLIDE * SLIDE, time - SIZE, -SLIDE):
            sums[key, start, start + SIZE] += value
    return sums


def sessions(records):
    sums = defaultdict(int)
    for key in {record[0] for record in records}:
        start = end = None
        total = 0
        for _, value, time in sorted((r for r in records if r[0] == key), key=lambda record: record[2]):
            if end is not None and time > end:
                sums[key, start, end] += total
                start, total = None, 0
            start, end, total = time if start is None else start, time + GAP, total + value
        sums[key, start, end] += total
    return sums


KINDS = {
    "tumbling": (TumblingEventTimeWindows.of(SIZE, OFFSET), tumbling),
    "sliding": (SlidingEventTimeWindows.of(SIZE, SLIDE), sliding),
    "sessions": (EventTimeSessionWindows.with_gap(GAP), sessions),
}

STREAMS = st.lists(
    st.tuples(
        st.sampled_from("abcde"), st.integers(-3, 9), st.integers(0, 12), st.integers(0, DISORDER), st.integers(1, 4)
    ),
    min_size=1,
    max_size=30,
)
"""(key, value, delay after the record before, disorder, number of equal records)"""


def records_of(drawn):
    records, time = [], -40
    for key, value, step, disorder, times in drawn:
        time += step
        # Never further behind the newest record than the watermark. All times are even, while sessions end at odd
        # times: a record that only touches a session belongs to it, but finds it gone if the watermark was there first.
        records += [(key, value, 2 * (time - disorder))] * times
    return records


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("lateness", [0, 1])
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(drawn=STREAMS, records_an_epoch=st.sampled_from([1, 3, 1000]), parallelism=st.sampled_from([1, 2, 4]))
def test_sums_of_windows_equal_those_of_a_plain_loop(kind, lateness, drawn, records_an_epoch, parallelism):
    """A lateness selects another operator, which has the same results if no record is late."""
    assigner, oracle = KINDS[kind]
    records = records_of(drawn)
    env = StreamExecutionEnvironment.get_execution_environment()
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(2 * DISORDER))
    stream = env.from_collection(records).assign_timestamps_and_watermarks(
        strategy.with_timestamp_assigner(lambda value, _: value[2])
    )
    windows = stream.key_by(lambda value: value[0]).window(assigner).allowed_lateness(lateness)
    summed = windows.aggregate(Sum(), Name(), accumulator_type=Types.LONG())
    with JobHarness(summed, parallelism=parallelism) as job:
        found = job.run(records_an_epoch)
    assert sorted(found) == sorted((*window, total) for window, total in oracle(records).items())
