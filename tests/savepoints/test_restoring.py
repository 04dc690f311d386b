"""Savepoints in the harness: what a job saved is what the next one has, whatever changed in between."""

import pytest

from penstock.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from penstock.datastream.state import ValueStateDescriptor
from penstock.testing import JobHarness

BACKENDS = ["memory", "filesystem", "rocksdb"]


class Sum(KeyedProcessFunction):
    """(key, running sum)."""

    def __init__(self, state="sum"):
        self.state = state

    def open(self, runtime_context):
        self.total = runtime_context.get_state(ValueStateDescriptor(self.state, int))

    def process_element(self, value, ctx):
        self.total.update((self.total.value() or 0) + value[1])
        yield value[0], self.total.value()


def environment():
    return StreamExecutionEnvironment.get_execution_environment()


def sums(uid="sum"):
    stream = environment().from_collection([]).uid("numbers")
    return stream.key_by(lambda pair: pair[0]).process(Sum()).uid(uid)


class TestAtAnotherParallelism:
    @pytest.mark.parametrize(("before", "after"), [(3, 4), (4, 2), (1, 13), (13, 1)])
    def test_forty_two_keys_in_thirteen_groups_go_on_where_they_were(self, tmp_path, before, after):
        keys = range(42)
        job = JobHarness(sums(), parallelism=before, max_parallelism=13)
        for _ in range(10):
            job.push(*((key, key * 100) for key in keys)).epoch()
        path = job.stop_with_savepoint(tmp_path)
        with JobHarness(sums(), parallelism=after, max_parallelism=13, from_savepoint=path) as job:
            assert job.states("sum") == {key: key * 1000 for key in keys}
            for _ in range(5):
                job.push(*((key, key * 100) for key in keys)).epoch()
            assert job.states("sum") == {key: key * 1500 for key in keys}

    def test_fifteen_to_seventy_seven_to_fifteen_at_128_groups(self, tmp_path):
        path, expected = None, 0
        for parallelism in (15, 77, 15):
            job = JobHarness(sums(), parallelism=parallelism, max_parallelism=128, from_savepoint=path)
            job.push(*((key, 1) for key in range(300))).epoch()
            job.push(*((key, 2) for key in range(300))).epoch()
            expected += 3
            assert job.states("sum") == dict.fromkeys(range(300), expected)
            path = job.stop_with_savepoint(tmp_path)
