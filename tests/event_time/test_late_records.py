"""With one channel, watermarks depend on the records alone: the same records are late regardless of epochs."""

from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common import Duration, Time, WatermarkStrategy
from penstock.datastream import OutputTag, ProcessWindowFunction, StreamExecutionEnvironment
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.testing import JobHarness

SIZE, BOUND = 10, 7
LATE = OutputTag("late")


class Sum(ProcessWindowFunction):
    def process(self, key, context, elements):
        yield "window", key, context.window().start, sum(value for _, _, value in elements)


def oracle(records, lateness):
    """Return the window results and the late records, computed record by record."""
    watermark, furthest = -(2**63), -(2**63)
    held, results, late = defaultdict(int), [], []
    fired = set()
    for key, time, value in records:
        start = time // SIZE * SIZE
        if start + SIZE - 1 + lateness <= watermark:
            late.append((key, time, value))
        else:
            held[key, start] += value
            if (key, start) in fired:
                results.append(("window", key, start, held[key, start]))
        furthest = max(furthest, time)
        watermark = max(watermark, furthest - BOUND - 1)
        for each, total in sorted(held.items()):
            if each not in fired and each[1] + SIZE - 1 <= watermark:
                fired.add(each)
                results.append(("window", *each, total))
    results += [("window", *each, total) for each, total in held.items() if each not in fired]
    return sorted(results), sorted(late)


streams = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 100), st.integers(1, 9)), max_size=50)


@pytest.mark.parametrize("lateness", [0, 15])
@pytest.mark.parametrize("parallelism", [1, 2, 4])
@settings(max_examples=25, deadline=None)
@given(records=streams, size=st.sampled_from([1, 3, 1000]))
def test_windows_and_late_records_equal_those_of_the_oracle(lateness, parallelism, records, size):
    env = StreamExecutionEnvironment.get_execution_environment()
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(BOUND))
    timed = env.from_collection(records).assign_timestamps_and_watermarks(
        strategy.with_timestamp_assigner(lambda record, timestamp: record[1])
    )
    windows = timed.key_by(lambda record: record[0]).window(TumblingEventTimeWindows.of(Time.milliseconds(SIZE)))
    summed = windows.allowed_lateness(lateness).side_output_late_data(LATE).process(Sum())
    late = summed.get_side_output(LATE).map(lambda record: ("late", *record))
    with JobHarness(summed.union(late), parallelism=parallelism) as job:
        given_out = job.run(size)
    expected, expected_late = oracle(records, lateness)
    assert sorted(row for row in given_out if row[0] == "window") == expected
    assert sorted(row[1:] for row in given_out if row[0] == "late") == expected_late
