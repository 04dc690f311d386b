"""Operator state over random epochs, workers, crashes and parallelisms, compared with plain lists and dicts."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from several_workers import Workers

from penstock.datastream import (
    BroadcastProcessFunction,
    CheckpointedFunction,
    KeyedBroadcastProcessFunction,
    StreamExecutionEnvironment,
)
from penstock.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from penstock.state.driver_storage import DriverStorage
from penstock.testing import JobHarness

RULES = MapStateDescriptor("rules", int, list[int])


class Keeps(BroadcastProcessFunction, CheckpointedFunction):
    """Keeps its records in every kind of operator state, and between snapshots in attributes."""

    def __init__(self):
        self.listed, self.united, self.raw = [], [], []

    def initialize_state(self, context):
        store = context.get_operator_state_store()
        self.list_state = store.get_list_state(ListStateDescriptor("listed", int))
        self.union_state = store.get_union_list_state(ListStateDescriptor("united", int))
        runtime = context.get_runtime_context()
        self.subtask, subtasks = runtime.get_index_of_this_subtask(), runtime.get_number_of_parallel_subtasks()
        # Appended and not assigned, to detect a reused object.
        self.listed += self.list_state
        self.united += [number for number in self.union_state if number % subtasks == self.subtask]
        self.raw += [stream.read() for stream in context.get_raw_operator_state_inputs()]

    def process_element(self, value, ctx):
        self.listed.append(value)
        self.united.append(value)
        self.raw.append(str(value).encode())
        yield value, sorted(ctx.get_broadcast_state(RULES).items())

    def process_broadcast_element(self, value, ctx):
        key, number = value
        rules = ctx.get_broadcast_state(RULES)
        if number is None:
            rules.remove(key)
        else:
            rules.put(key, [*(rules.get(key) or []), number])

    def snapshot_state(self, context):
        self.list_state.update(self.listed)
        self.union_state.update(self.united)
        output = context.get_raw_operator_state_output()
        for data in self.raw:
            output.start_new_partition()
            output.write(data)


POINTS = ["level1.received", "level1.processed", "level1.reported", "driver.triggered", "driver.collected"]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("numbers"), st.integers(0, 5)),
        st.tuples(
            st.just("rule"),
            st.tuples(st.integers(0, 2), st.one_of(st.none(), st.integers(0, 9))),
        ),
        st.tuples(st.just("crash"), st.sampled_from(POINTS)),
        st.tuples(st.just("lost"), st.none()),
        st.tuples(st.just("rescale"), st.integers(1, 4)),
    ),
    min_size=3,
    max_size=14,
)


def start(parallelism: int, storage: Any) -> tuple[JobHarness, Workers]:
    env = StreamExecutionEnvironment.get_execution_environment()
    rules = env.from_collection([]).uid("rules").broadcast(RULES)
    numbers = env.from_collection([]).uid("numbers").rebalance()
    job = JobHarness(numbers.connect(rules).process(Keeps()).uid("keeps"), parallelism=parallelism, storage=storage)
    return job, Workers(job, 3)


@settings(max_examples=60)
@given(STEPS, st.randoms(use_true_random=False), st.integers(1, 4))
def test_operator_state_is_neither_lost_duplicated_nor_mixed_up(
    steps: list[tuple[str, Any]], chance: Any, parallelism: int
) -> None:
    numbers: list[int] = []
    rules: dict[int, list[int]] = {}
    storage = DriverStorage()
    job, workers = start(parallelism, storage)
    before = parallelism

    def epoch() -> None:
        last = job.checkpoint
        while job.checkpoint == last:
            workers.epoch(lambda subtask: chance.randrange(3))

    for step, argument in steps:
        if step == "numbers":
            job.push(*range(len(numbers), len(numbers) + argument), source="numbers")
            job.output.clear()
            epoch()
            # All rules of earlier epochs, in every subtask.
            new = range(len(numbers), len(numbers) + argument)
            assert sorted(job.output) == [(number, sorted(rules.items())) for number in new]
            numbers += new
        elif step == "rule":
            key, number = argument
            job.push(argument, source="rules")
            if number is None:
                rules.pop(key, None)
            else:
                rules.setdefault(key, []).append(number)
            epoch()
        elif step == "crash":
            job.crash_at(argument)
            epoch()
        elif step == "lost":
            workers = Workers(job, 3)
        else:
            before, parallelism = parallelism, argument
            job, workers = start(parallelism, storage)
            epoch()
        if job.checkpoint:
            shares = job.operator_state("listed")
            assert len(shares) == parallelism
            assert sorted(number for share in shares for number in share) == numbers
            united = job.operator_state("united")
            assert sorted(number for share in united for number in share) == numbers
            raw = job.operator_state("raw operator state") if numbers else []
            assert sorted(int(data) for share in raw for data in share) == numbers
            assert job.operator_state("rules") == [rules] * parallelism
            if step == "rescale" and before != parallelism:
                lengths = [len(share) for share in shares]
                assert lengths == sorted(lengths, reverse=True)
                assert max(lengths) - min(lengths) <= 1


FACTORS = MapStateDescriptor("factors", str, int)
SUM, SEEN = ValueStateDescriptor("sum", int), ListStateDescriptor("seen", int)


class Scaled(KeyedBroadcastProcessFunction):
    """Sums and lists numbers by key, each multiplied by a broadcast factor; rules change the state of all keys."""

    def open(self, runtime_context):
        self.sum, self.seen = runtime_context.get_state(SUM), runtime_context.get_list_state(SEEN)

    def process_element(self, value, ctx):
        _, number = value
        number *= ctx.get_broadcast_state(FACTORS).get("factor") or 1
        self.sum.update((self.sum.value() or 0) + number)
        self.seen.add(number)

    def process_broadcast_element(self, value, ctx):
        if value == "negate":
            ctx.apply_to_keyed_state(SUM, lambda key, state: state.update(-state.value()))
        elif value == "forget":
            # Clears the odd keys; later rules do not see them any more.
            ctx.apply_to_keyed_state(SEEN, lambda key, state: state.clear() if key % 2 else None)
        elif value == "count":
            ctx.apply_to_keyed_state(SEEN, lambda key, state: state.add(len(list(state))))
        else:
            ctx.get_broadcast_state(FACTORS).put("factor", value)


def start_scaled(parallelism: int, storage: Any) -> tuple[JobHarness, Workers]:
    env = StreamExecutionEnvironment.get_execution_environment()
    rules = env.from_collection([]).uid("rules").broadcast(FACTORS)
    numbers = env.from_collection([]).uid("numbers").key_by(lambda pair: pair[0])
    job = JobHarness(
        numbers.connect(rules).process(Scaled()).uid("scaled"),
        parallelism=parallelism,
        max_parallelism=8,
        storage=storage,
    )
    return job, Workers(job, 2)


KEYED_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("numbers"), st.lists(st.tuples(st.integers(0, 6), st.integers(1, 9)), max_size=6)),
        st.tuples(st.just("rule"), st.sampled_from(["negate", "forget", "count", 2, 3])),
        st.tuples(st.just("crash"), st.sampled_from(POINTS)),
        st.tuples(st.just("rescale"), st.integers(1, 4)),
    ),
    min_size=3,
    max_size=14,
)


@settings(max_examples=60)
@given(KEYED_STEPS, st.randoms(use_true_random=False))
def test_rules_reach_every_key_with_state_and_no_other(steps: list[tuple[str, Any]], chance: Any) -> None:
    sums: dict[int, int] = {}
    seen: dict[int, list[int]] = {}
    factor = 1
    storage = DriverStorage()
    job, workers = start_scaled(2, storage)
    for step, argument in steps:
        if step == "numbers":
            job.push(*argument, source="numbers")
            for key, number in argument:
                sums[key] = sums.get(key, 0) + number * factor
                seen.setdefault(key, []).append(number * factor)
        elif step == "rule":
            job.push(argument, source="rules")
            if argument == "negate":
                sums = {key: -total for key, total in sums.items()}
            elif argument == "forget":
                seen = {key: numbers for key, numbers in seen.items() if key % 2 == 0}
            elif argument == "count":
                seen = {key: [*numbers, len(numbers)] for key, numbers in seen.items()}
            else:
                factor = argument
        elif step == "crash":
            job.crash_at(argument)
        else:
            job, workers = start_scaled(argument, storage)
        last = job.checkpoint
        while job.checkpoint == last:
            workers.epoch(lambda subtask: chance.randrange(2))
        assert job.states("sum") == sums
        assert job.states("seen") == seen
