"""Functions with operator state: when they are restored, and that epochs, workers and crashes do not affect it."""

import json

import pytest
from several_workers import Workers

from penstock.checkpoint import manifest_chain
from penstock.common import Time, Types, WatermarkStrategy
from penstock.common.watermark_strategy import TimestampAssigner
from penstock.datastream import (
    AggregateFunction,
    AsyncDataStream,
    AsyncFunction,
    CheckpointedFunction,
    CoGroupFunction,
    CoMapFunction,
    FilterFunction,
    FlatMapFunction,
    JoinFunction,
    KeyedProcessFunction,
    KeySelector,
    ListCheckpointed,
    MapFunction,
    ProcessFunction,
    ProcessJoinFunction,
    ProcessWindowFunction,
    ReduceFunction,
    SinkFunction,
    StreamExecutionEnvironment,
)
from penstock.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.driver.epoch_errors import UserFunctionFailed
from penstock.driver.epoch_settings import Settings
from penstock.driver.memory_limit import StateTooLarge
from penstock.graph.logical import GraphError
from penstock.testing import JobHarness

WAITING = ListStateDescriptor("waiting", Types.INT())
GIVEN = ListStateDescriptor("given", Types.INT())


@pytest.fixture
def env():
    return StreamExecutionEnvironment.get_execution_environment()


class Pairs(FlatMapFunction, CheckpointedFunction):
    """Yields numbers in pairs. Numbers without a partner are in an attribute, and at a snapshot in state."""

    def __init__(self, size=2):
        self.size = size
        self.waiting = []
        self.calls = []

    def initialize_state(self, context):
        self.calls.append("initialize")
        self.state = context.get_operator_state_store().get_list_state(WAITING)
        self.given = context.get_operator_state_store().get_list_state(GIVEN)
        if context.is_restored():
            # As in Flink's own example: appended, because the object is new.
            for number in self.state.get():
                self.waiting.append(number)

    def open(self, runtime_context):
        self.calls.append("open")
        assert self.calls == ["initialize", "open"]

    def flat_map(self, value):
        self.waiting.append(value)
        if len(self.waiting) == self.size:
            yield tuple(self.waiting)
            self.given.add_all(self.waiting)
            self.waiting.clear()

    def snapshot_state(self, context):
        self.state.update(self.waiting)


def pairs(env, records=(), size=2, **options):
    stream = env.from_collection(list(records)).uid("numbers").rebalance().flat_map(Pairs(size)).uid("pairs")
    return JobHarness(stream, **options)


def flat(shares):
    return sorted(number for share in shares for number in share)


POINTS = [
    *(f"level1.{point}" for point in ("received", "processed", "snapshot", "reported")),
    *(f"driver.{point}" for point in ("triggered", "collected", "published", "committed")),
]


class TestCheckpointedFunctions:
    def test_a_function_keeps_its_state_across_epochs(self, env):
        with pairs(env, range(7)) as job:
            for _ in range(7):
                job.epoch(1)
            assert job.output == [(0, 1), (2, 3), (4, 5)]
            assert job.operator_state("waiting") == [[6]]

    @pytest.mark.parametrize("point", POINTS)
    @pytest.mark.parametrize("parallelism", [1, 3])
    def test_a_function_neither_loses_nor_repeats_records_after_a_crash_at_any_point(self, env, point, parallelism):
        with pairs(env, range(61), size=3, parallelism=parallelism) as job:
            job.epoch(10)
            job.crash_at(point)
            job.epoch(10)
            job.run(10)
            seen = flat(job.operator_state("waiting")) + flat(job.operator_state("given"))
            assert sorted(seen) == list(range(61))

    def test_a_function_has_the_state_of_the_checkpoint_in_every_worker(self, env):
        with pairs(env, range(20), size=3, parallelism=2) as job:
            workers = Workers(job)
            places = [0, 0, 1, 0, 1, 1, 0, 1, 0, 0]
            for place in places:
                workers.epoch(lambda subtask, place=place: (place + subtask) % 2, 2)
            # Each subtask receives every second number, and yields them in threes.
            evens, odds = list(range(0, 20, 2)), list(range(1, 20, 2))
            expected = [tuple(numbers[at : at + 3]) for numbers in (evens, odds) for at in (0, 3, 6)]
            assert sorted(job.output) == sorted(expected)
            assert job.operator_state("waiting") == [[18], [19]]

    def test_a_function_is_recreated_after_an_epoch_that_was_not_committed(self, env):
        """Another task failed, so the epoch runs again: the changes to this function's attributes must be discarded."""
        with pairs(env, range(12), size=5) as job:
            workers = Workers(job, 1)
            workers.epoch(lambda subtask: 0, 3)
            job.crash_at("driver.collected")
            workers.epoch(lambda subtask: 0, 3)
            for _ in range(3):
                workers.epoch(lambda subtask: 0, 3)
            assert job.output == [(0, 1, 2, 3, 4), (5, 6, 7, 8, 9)]
            assert job.operator_state("waiting") == [[10, 11]]

    def test_a_function_resumes_from_the_manifest_and_not_from_its_own_attempt(self, env):
        """The manifest has one of two attempts at an epoch; a function that ran in the other must not continue."""
        with JobHarness(env.from_collection(range(4)).map(Attempts()).uid("attempts")) as job:
            workers = Workers(job)
            Attempts.number = 0
            workers.epoch(lambda subtask: 0, 1)
            job.crash_at("driver.collected")
            Attempts.number = 1
            workers.epoch(lambda subtask: 0, 1)
            Attempts.number = 2
            workers.epoch(lambda subtask: 1, 1)
            assert job.operator_state("attempts") == [[0, 2]]
            workers.epoch(lambda subtask: 0, 1)
            assert job.operator_state("attempts") == [[0, 2, 2]]

    def test_all_subtasks_take_their_part_of_a_union_together(self, env):
        """Subtask 1 runs in another worker and leaves 0 to subtask 0, which must take it."""
        with JobHarness(env.from_collection(range(9)).rebalance().map(Parts()).uid("parts"), parallelism=2) as job:
            workers = Workers(job)
            for number in range(9):
                workers.epoch(lambda subtask, number=number: number % 2 if subtask else 0, 1)
                assert flat(job.operator_state("parts")) == list(range(number + 1))

    def test_a_function_is_kept_while_it_is_at_the_last_checkpoint(self, env):
        with JobHarness(env.from_collection(range(6)).map(CountsOpens()).uid("opens")) as job:
            CountsOpens.opened = 0
            for _ in range(3):
                job.epoch(2)
            assert CountsOpens.opened == 1
            job.crash()
            job.epoch()
            assert CountsOpens.opened == 2

    def test_a_function_with_state_behind_a_source_starts_a_new_task(self, env):
        env.from_collection([1]).map(CountsOpens()).print()
        plan = json.loads(env.get_execution_plan())
        assert [node["level"] for node in plan["nodes"]] == [0, 1, 1]

    def test_several_functions_with_state_can_share_a_task(self, env):
        stream = env.from_collection(range(8)).rebalance().flat_map(Pairs()).uid("first")
        stream = stream.map(lambda pair: sum(pair)).flat_map(Pairs()).uid("second")
        with JobHarness(stream, parallelism=1) as job:
            assert len(job._graph.levels) == 2
            job.epoch(3)
            job.crash()
            job.epoch(3)
            job.run()
            assert job.output == [(1, 5), (9, 13)]

    def test_a_function_sees_the_id_and_time_of_the_checkpoint(self, env):
        with JobHarness(env.from_collection(range(3)).map(SeesCheckpoints()).uid("checkpoints")) as job:
            job.set_clock(1000)
            job.epoch(1)
            job.crash()
            job.set_clock(2000)
            job.epoch(1)
            job.crash()
            job.epoch(1)
            assert job.output == [(0, False, None, []), (1, True, 1, [(1, 1000)]), (2, True, 2, [(1, 1000), (2, 2000)])]


def test_a_worker_caches_operator_state_of_recent_checkpoints_only(env):
    """Each checkpoint has all operator state, and a worker caches many checkpoints."""
    manifest_chain._manifests.clear()
    with pairs(env, range(40), size=50) as job:
        job.epochs(2)
        assert len(manifest_chain._manifests) > 10
        assert len(manifest_chain._wanted_manifests) <= manifest_chain._CACHED_WANTED
        assert job.operator_state("waiting") == [list(range(40))]


def test_operator_state_beyond_the_memory_limit_is_refused(env):
    with pairs(env, range(2000), size=5000, settings=Settings(memory_limit=3000)) as job:
        job.epoch(900)
        with pytest.raises(StateTooLarge, match=r"State 'waiting' of operator 'Flat Map' \(uid 'pairs'\)"):
            job.epoch(1100)


class Attempts(MapFunction, CheckpointedFunction):
    """Not deterministic: records the attempt in which it ran."""

    number = 0

    def initialize_state(self, context):
        self.state = context.get_operator_state_store().get_list_state(ListStateDescriptor("attempts", int))

    def map(self, value):
        self.state.add(Attempts.number)
        return value

    def snapshot_state(self, context):
        pass


class Parts(MapFunction, CheckpointedFunction):
    """Each subtask takes the numbers of the union that belong to it by their remainder."""

    def initialize_state(self, context):
        runtime = context.get_runtime_context()
        subtask, subtasks = runtime.get_index_of_this_subtask(), runtime.get_number_of_parallel_subtasks()
        self.state = context.get_operator_state_store().get_union_list_state(ListStateDescriptor("parts", int))
        self.own = [number for number in self.state if number % subtasks == subtask]

    def map(self, value):
        self.own.append(value)
        return value

    def snapshot_state(self, context):
        self.state.update(self.own)


class CountsOpens(MapFunction, CheckpointedFunction):
    opened = 0

    def initialize_state(self, context):
        context.get_operator_state_store().get_list_state(WAITING)

    def open(self, runtime_context):
        CountsOpens.opened += 1

    def map(self, value):
        return value

    def snapshot_state(self, context):
        pass


class SeesCheckpoints(MapFunction, CheckpointedFunction):
    def initialize_state(self, context):
        self.checkpoints = context.get_operator_state_store().get_list_state(
            ListStateDescriptor("checkpoints", Types.TUPLE([Types.LONG(), Types.LONG()]))
        )
        self.beginning = context.is_restored(), context.get_restored_checkpoint_id(), list(self.checkpoints.get())

    def map(self, value):
        return value, *self.beginning

    def snapshot_state(self, context):
        self.checkpoints.add((context.get_checkpoint_id(), context.get_checkpoint_timestamp()))


class Totals(ListCheckpointed):
    """Mixin for any function: counts its calls."""

    state_type = int
    total = 0

    def count(self):
        self.total += 1
        return self.total

    def snapshot_state(self, checkpoint_id, timestamp):
        return [self.total]

    def restore_state(self, state):
        self.total = sum(state)


class CountingMap(MapFunction, Totals):
    def map(self, value):
        return self.count()


class CountingFilter(FilterFunction, Totals):
    def filter(self, value):
        return self.count() % 2


class CountingFlatMap(FlatMapFunction, Totals):
    def flat_map(self, value):
        yield self.count()


class CountingProcess(ProcessFunction, Totals):
    def process_element(self, value, ctx):
        yield self.count()


class CountingKeyed(KeyedProcessFunction, Totals):
    def open(self, runtime_context):
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", int))

    def process_element(self, value, ctx):
        self.seen.update((self.seen.value() or 0) + 1)
        yield self.count(), self.seen.value()


class CountingBoth(CoMapFunction, Totals):
    def map1(self, value):
        return self.count()

    def map2(self, value):
        return self.count()


class CountingWindows(ProcessWindowFunction, Totals):
    def process(self, key, context, elements):
        yield self.count()


class CountingJoins(JoinFunction, Totals):
    def join(self, first, second):
        return self.count()


class CountingGroups(CoGroupFunction, Totals):
    def co_group(self, first, second):
        yield self.count()


class CountingIntervals(ProcessJoinFunction, Totals):
    def process_element(self, left, right, ctx):
        yield self.count()


class CountingCalls(AsyncFunction, Totals):
    async def async_invoke(self, value):
        return [self.count()]


class ItsOwn(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value


class CountingAggregate(AggregateFunction, Totals):
    def create_accumulator(self):
        return 0

    def add(self, value, accumulator):
        return accumulator

    def get_result(self, accumulator):
        return accumulator

    def merge(self, acc_a, acc_b):
        return acc_a


class CountingReduce(ReduceFunction, Totals):
    def reduce(self, value1, value2):
        return value1


class CountingKey(KeySelector, Totals):
    def get_key(self, value):
        return self.count()


class Both(KeyedProcessFunction, CheckpointedFunction):
    """Counts records by key in keyed state, and all records in operator state."""

    def initialize_state(self, context):
        self.of_key = context.get_keyed_state_store().get_state(ValueStateDescriptor("of key", int))
        self.seen = context.get_operator_state_store().get_list_state(ListStateDescriptor("seen", int))

    def process_element(self, value, ctx):
        self.of_key.update((self.of_key.value() or 0) + 1)
        self.seen.add(1)
        yield value, self.of_key.value()

    def snapshot_state(self, context):
        self.seen.update([sum(self.seen)])


class Collecting(SinkFunction, Totals):
    seen = []

    def invoke(self, value, context):
        Collecting.seen.append(self.count())


class TestKindsOfFunctions:
    @pytest.mark.parametrize(
        ("add", "expected"),
        [
            (lambda stream: stream.map(CountingMap()), [1, 2, 3, 4, 5, 6]),
            (lambda stream: stream.filter(CountingFilter()), [0, 2, 4]),
            (lambda stream: stream.flat_map(CountingFlatMap()), [1, 2, 3, 4, 5, 6]),
            (lambda stream: stream.process(CountingProcess()), [1, 2, 3, 4, 5, 6]),
            (lambda stream: stream.key_by(lambda n: n % 2).map(CountingMap()), [1, 2, 3, 4, 5, 6]),
            (
                lambda stream: stream.key_by(lambda n: n % 2).process(CountingKeyed()),
                [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (6, 3)],
            ),
            (lambda stream: stream.connect(stream).map(CountingBoth()), list(range(1, 13))),
        ],
    )
    def test_a_function_of_any_kind_can_hold_a_list(self, env, add, expected):
        with JobHarness(add(env.from_collection(range(6))).uid("counting")) as job:
            job.epoch(2)
            job.crash()
            job.epoch(2)
            job.epoch(2)
            assert job.output == expected
            assert job.operator_state("_default_") == [[len(expected) if expected != [0, 2, 4] else 6]]

    def test_a_function_can_get_keyed_state_in_initialize_state(self, env):
        with JobHarness(env.from_collection("abaab").key_by(lambda word: word).process(Both()), parallelism=2) as job:
            job.epoch(3)
            job.crash()
            job.epoch(2)
            assert sorted(job.output) == [("a", 1), ("a", 2), ("a", 3), ("b", 1), ("b", 2)]
            assert sum(flat(job.operator_state("seen"))) == 5
            assert job.states("of key") == {"a": 3, "b": 2}

    def test_a_sink_function_can_hold_operator_state(self, env):
        Collecting.seen = []
        env.from_collection(range(4)).add_sink(Collecting())
        with JobHarness(env) as job:
            job.epoch(2)
            job.crash()
            job.epoch(2)
        assert Collecting.seen == [1, 2, 3, 4]

    @pytest.mark.parametrize("kind", ["window", "window join", "co-group", "interval join", "asynchronous"])
    def test_functions_of_windows_joins_and_async_calls_can_hold_operator_state(self, env, kind):
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(ItsOwn())
        stream = env.from_collection([1, 2, 11, 12, 21, 22, 31]).assign_timestamps_and_watermarks(strategy)
        windows = TumblingEventTimeWindows.of(Time.milliseconds(10))
        keyed = stream.key_by(lambda n: 0)
        if kind == "window":
            counted = keyed.window(windows).process(CountingWindows())
        elif kind == "interval join":
            joined = keyed.interval_join(keyed).between(Time.milliseconds(0), Time.milliseconds(0))
            counted = joined.process(CountingIntervals())
        elif kind == "asynchronous":
            counted = AsyncDataStream.ordered_wait(stream, CountingCalls(), Time.seconds(10), 1)
        else:
            pairs = (stream.join if kind == "window join" else stream.co_group)(stream)
            pairs = pairs.where(lambda n: n).equal_to(lambda n: n).window(windows)
            counted = pairs.apply(CountingJoins() if kind == "window join" else CountingGroups())
        counted = counted.uid("counting") if hasattr(counted, "uid") else counted
        with JobHarness(counted) as job:
            while job._feed.anything_waits(1):
                job.epoch(1)
                job.crash()
            job.end()
            assert sorted(job.output) == list(range(1, len(job.output) + 1))
            assert len(job.output) == (4 if kind == "window" else 7)

    @pytest.mark.parametrize(
        "add",
        [
            lambda stream: stream.key_by(CountingKey()),
            lambda stream: stream.key_by(lambda n: n).reduce(CountingReduce()),
            lambda stream: stream.key_by(lambda n: n).count_window(2).reduce(CountingReduce()),
            lambda stream: stream.key_by(lambda n: n).count_window(2).aggregate(CountingAggregate()),
        ],
    )
    def test_a_function_that_is_not_an_operator_cannot_hold_operator_state(self, env, add):
        with pytest.raises(GraphError, match=r"Counting.* holds operator state, but it is not an operator"):
            add(env.from_collection([1]))


class Changing(MapFunction, CheckpointedFunction):
    def __init__(self, ask):
        self.ask = ask

    def initialize_state(self, context):
        self.state = self.ask(context.get_operator_state_store())

    def map(self, value):
        if self.state is not None:
            self.state.add(value)
        return value

    def snapshot_state(self, context):
        pass


def changing(ask, **options):
    env = StreamExecutionEnvironment.get_execution_environment()
    return JobHarness(env.from_collection([]).rebalance().map(Changing(ask)).name("keep").uid("kept"), **options)


class TestChangedPrograms:
    def test_states_that_a_program_does_not_request_are_kept_unchanged(self):
        def ask_for_both(store):
            store.get_union_list_state(ListStateDescriptor("all", int)).update([7])
            return store.get_list_state(ListStateDescriptor("some", int))

        with changing(ask_for_both, parallelism=2) as job:
            job.push(1, 2, 3).epoch()
            with changing(lambda store: None, parallelism=3, storage=job.storage) as unaware:
                unaware.push(0).epoch()
                unaware.crash()
                unaware.push(0).epoch()
                with changing(ask_for_both, parallelism=2, storage=job.storage) as again:
                    again.push(4).epoch()
                    assert flat(again.operator_state("some")) == [1, 2, 3, 4]

    @pytest.mark.parametrize(
        ("ask", "message"),
        [
            (lambda store: store.get_list_state(ListStateDescriptor("s", str)), "'split list string'"),
            (lambda store: store.get_union_list_state(ListStateDescriptor("s", int)), "'union list long'"),
            (
                lambda store: store.get_broadcast_state(MapStateDescriptor("s", int, int)),
                "'broadcast map long -> long'",
            ),
        ],
    )
    def test_a_state_of_another_type_is_refused(self, ask, message):
        with changing(lambda store: store.get_list_state(ListStateDescriptor("s", int))) as job:
            job.push(1).epoch()
            with (
                changing(ask, storage=job.storage) as other,
                pytest.raises(UserFunctionFailed, match=rf"'s' of operator 'keep' \(uid 'kept'\).*{message}"),
            ):
                other.push(2).epoch()

    def test_two_states_with_the_same_name_are_refused(self):
        def twice(store):
            store.get_list_state(ListStateDescriptor("s", int))
            return store.get_list_state(ListStateDescriptor("s", str))

        with changing(twice) as job, pytest.raises(UserFunctionFailed, match="Give one of them another name"):
            job.push(1).epoch()

    def test_a_value_of_another_type_is_refused(self):
        with (
            changing(lambda store: store.get_list_state(ListStateDescriptor("s", int))) as job,
            pytest.raises(UserFunctionFailed, match="State 's'"),
        ):
            job.push("no number").epoch()
