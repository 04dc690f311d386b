"""Where records go: every way of partitioning, in the harness."""

from collections import Counter
from typing import Any

import pytest

from penstock.common import Row
from penstock.datastream import Partitioner, ProcessFunction, RuntimeContext, StreamExecutionEnvironment
from penstock.errors import PenstockError
from penstock.testing import JobHarness


class Where(ProcessFunction):
    """(record, subtask that saw it)."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.subtask = runtime_context.get_index_of_this_subtask()

    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value, self.subtask


def numbers(count: int) -> Any:
    return StreamExecutionEnvironment.get_execution_environment().from_collection(range(count))


def seen(stream: Any, parallelism: int) -> list[tuple[int, int]]:
    with JobHarness(stream.process(Where()).set_parallelism(parallelism)) as job:
        return sorted(job.run())


def test_rebalance_gives_every_subtask_the_same_share() -> None:
    assert Counter(subtask for _, subtask in seen(numbers(12).rebalance(), 3)) == {0: 4, 1: 4, 2: 4}


def test_broadcast_gives_every_record_to_every_subtask() -> None:
    assert seen(numbers(2).broadcast(), 3) == [(n, subtask) for n in range(2) for subtask in range(3)]


def test_global_gives_all_to_the_first() -> None:
    assert seen(numbers(5).global_(), 3) == [(n, 0) for n in range(5)]


def test_shuffle_spreads_evenly_and_the_same_at_each_attempt() -> None:
    first, second = seen(numbers(3000).shuffle(), 3), seen(numbers(3000).shuffle(), 3)
    assert first == second
    assert all(900 < count < 1100 for count in Counter(subtask for _, subtask in first).values())
    assert [subtask for _, subtask in first] != [n % 3 for n in range(3000)]


@pytest.mark.parametrize("partitioner", [lambda key, count: key % count, "object"])
def test_a_partitioner_decides(partitioner: Any) -> None:
    class ByRemainder(Partitioner):
        def partition(self, key: int, num_partitions: int) -> int:
            return key % num_partitions

    chosen = ByRemainder() if partitioner == "object" else partitioner
    assert seen(numbers(6).partition_custom(chosen, lambda n: n + 1), 3) == [(n, (n + 1) % 3) for n in range(6)]


@pytest.mark.parametrize("wrong", [3, -1, "0", None, True])
def test_a_partition_that_is_none_is_refused_by_name(wrong: Any) -> None:
    stream = numbers(1).partition_custom(lambda key, count: wrong, lambda n: n).process(Where()).name("where")
    with JobHarness(stream.set_parallelism(3)) as job, pytest.raises(PenstockError, match="partitioner of where"):
        job.run()


@pytest.mark.parametrize(("before", "after"), [(2, 4), (4, 2), (2, 3), (3, 2), (3, 3)])
def test_rescale_keeps_each_producer_to_its_share(before: int, after: int) -> None:
    first = numbers(60).process(Where()).set_parallelism(before)
    with JobHarness(first.rescale().process(Where()).set_parallelism(after)) as job:
        pairs = Counter((producer, subtask) for (_, producer), subtask in job.run())
    assert sum(pairs.values()) == 60
    assert {subtask for _, subtask in pairs} == set(range(after))
    assert len(pairs) == max(before, after)


def test_forward_keeps_the_subtask() -> None:
    first = numbers(10).process(Where()).set_parallelism(2).disable_chaining()
    with JobHarness(first.forward().process(Where()).set_parallelism(2)) as job:
        assert all(before == after for (_, before), after in job.run())


def test_forward_to_another_parallelism_is_refused() -> None:
    stream = numbers(1).process(Where()).set_parallelism(2).forward().process(Where()).name("two").set_parallelism(3)
    with pytest.raises(PenstockError, match=r"forward\(\) before 'two'.*2 upstream and 3 downstream.*rescale"):
        JobHarness(stream)


@pytest.mark.parametrize("method", ["rebalance", "rescale", "shuffle", "forward", "broadcast", "global_"])
def test_a_keyed_stream_is_not_partitioned_again(method: str) -> None:
    with pytest.raises(PenstockError, match="partitioned by its key"):
        getattr(numbers(1).key_by(lambda n: n), method)()


@pytest.mark.parametrize(("call", "chains"), [("disable_chaining", 3), ("start_new_chain", 2), (None, 1)])
def test_chains_are_cut_where_the_user_says(call: str | None, chains: int) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    first = env.from_collection([1]).map(lambda n: n).set_parallelism(2)
    second = first.map(lambda n: n).set_parallelism(2)
    if call is not None:
        getattr(second, call)()
    third = second.map(lambda n: n + 1).set_parallelism(2)
    with JobHarness(third, parallelism=2) as job:
        assert len(job._graph.chains) - 1 == chains
        assert job.run() == [2]


def test_a_slot_sharing_group_is_shown_in_the_plan() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_collection([1]).map(lambda n: n).slot_sharing_group("heavy").print()
    assert '"slot_sharing_group": "heavy"' in env.get_execution_plan()


class TestProjection:
    def test_picks_fields_in_order(self) -> None:
        env = StreamExecutionEnvironment.get_execution_environment()
        records = [(1, "a", True), [2, "b", False], Row(x=3, y="c", z=True)]
        with JobHarness(env.from_collection(records).project(2, 0)) as job:
            assert job.run() == [(True, 1), (False, 2), Row(z=True, x=3)]

    @pytest.mark.parametrize("fields", [(), (-1,), ("a",)])
    def test_needs_positions(self, fields: Any) -> None:
        with pytest.raises(PenstockError, match="positions of fields"):
            numbers(1).project(*fields)
