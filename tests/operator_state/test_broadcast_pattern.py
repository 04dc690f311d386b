"""The broadcast state pattern: keyed and unkeyed streams connected to a broadcast stream of rules."""

import pytest
from several_workers import Workers

from penstock.common import Types, WatermarkStrategy
from penstock.common.restart_strategy import RestartStrategies
from penstock.common.time import Time
from penstock.common.watermark_strategy import TimestampAssigner
from penstock.datastream import (
    BroadcastProcessFunction,
    CheckpointedFunction,
    KeyedBroadcastProcessFunction,
    OutputTag,
    StreamExecutionEnvironment,
)
from penstock.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from penstock.driver.epoch_settings import Settings
from penstock.graph.logical import GraphError
from penstock.state.overlay import Overlay
from penstock.testing import JobHarness

RULES = MapStateDescriptor("rules", Types.STRING(), Types.INT())


@pytest.fixture
def env():
    return StreamExecutionEnvironment.get_execution_environment()


class Weigh(BroadcastProcessFunction):
    """Yields a word with its current weight in the rules."""

    def process_element(self, value, ctx):
        yield value, ctx.get_broadcast_state(RULES).get(value)

    def process_broadcast_element(self, value, ctx):
        word, weight = value
        if weight is None:
            ctx.get_broadcast_state(RULES).remove(word)
        else:
            ctx.get_broadcast_state(RULES)[word] = weight


def weigh(function=None, parallelism=2, storage=None):
    env = StreamExecutionEnvironment.get_execution_environment()
    rules = env.from_collection([]).uid("rules").broadcast(RULES)
    words = env.from_collection([]).uid("words").rebalance()
    stream = words.connect(rules).process(function or Weigh()).name("weigh").uid("weigh")
    return JobHarness(stream, parallelism=parallelism, storage=storage)


class TestBroadcastStreams:
    def test_a_broadcast_record_reaches_every_subtask(self):
        with weigh(parallelism=3) as job:
            job.push(("a", 1), ("b", 2), source="rules").epoch()
            job.push(*"aaabbb", "c", source="words").epoch()
            assert sorted(job.output, key=str) == [("a", 1)] * 3 + [("b", 2)] * 3 + [("c", None)]
            job.push(("a", 10), ("b", None), source="rules").epoch()
            job.push(*"aaabbb", source="words").epoch()
            assert sorted(job.output[7:], key=str) == [("a", 10)] * 3 + [("b", None)] * 3

    def test_broadcast_state_is_stored_once_if_all_subtasks_agree_on_it(self):
        with weigh(parallelism=4) as job:
            job.push(("a", 1), source="rules").epoch()
            shares = job._driver.last.operators["weigh"].operator_state["rules"].by_subtask
            assert len(shares) == 1
            assert job.operator_state("rules") == [{"a": 1}] * 4

    @pytest.mark.parametrize("point", ["level1.processed", "level1.reported", "driver.collected", "driver.published"])
    def test_broadcast_state_survives_crashes(self, point):
        with weigh() as job:
            job.push(("a", 1), source="rules").epoch()
            job.push(("b", 2), ("a", 3), source="rules")
            job.crash_at(point)
            job.epoch()
            job.epoch()
            job.push("a", "b", source="words").epoch()
            assert sorted(job.output) == [("a", 3), ("b", 2)]

    def test_broadcast_state_is_the_same_in_every_worker(self):
        with weigh() as job:
            workers = Workers(job)
            for number in range(8):
                job.push((f"w{number}", number), source="rules")
                workers.epoch(lambda subtask, number=number: (number // 2 + subtask) % 2)
            job.push("w0", "w7", source="words")
            workers.epoch(lambda subtask: 0)
            assert sorted(job.output) == [("w0", 0), ("w7", 7)]

    @pytest.mark.parametrize("parallelism", [1, 5])
    def test_broadcast_state_is_copied_to_new_subtasks(self, parallelism):
        with weigh(parallelism=2) as job:
            job.push(("a", 1), ("b", 2), source="rules").epoch()
            with weigh(parallelism=parallelism, storage=job.storage) as rescaled:
                rescaled.push(*["a"] * parallelism, source="words").epoch()
                assert rescaled.output == [("a", 1)] * parallelism
                assert rescaled.operator_state("rules") == [{"a": 1, "b": 2}] * parallelism

    def test_a_function_is_opened_once_per_worker_even_if_its_state_is_restored(self):
        with weigh(Opening()) as job:
            Opening.opened = 0
            workers = Workers(job)
            for place in (0, 1, 0, 0, 1):
                workers.epoch(lambda subtask, place=place: place)
            assert Opening.opened == 2 * 2

    def test_a_broadcast_stream_can_be_a_union_and_have_several_states(self, env):
        names = MapStateDescriptor("names", Types.INT(), Types.STRING())

        class Names(BroadcastProcessFunction):
            def process_element(self, value, ctx):
                yield ctx.get_broadcast_state(names).get(ctx.get_broadcast_state(RULES).get(value))

            def process_broadcast_element(self, value, ctx):
                first, second = value
                ctx.get_broadcast_state(RULES if type(first) is str else names).put(first, second)

        rules = env.from_collection([]).uid("rules").union(env.from_collection([]).uid("names"))
        stream = env.from_collection([]).uid("words").rebalance().connect(rules.broadcast(RULES, names))
        with JobHarness(stream.process(Names()), parallelism=2) as job:
            job.push(("a", 1), source="rules").push((1, "one"), source="names").epoch()
            job.push("a", "a", source="words").epoch()
            assert job.output == ["one", "one"]

    def test_broadcast_state_lists_its_entries_in_the_same_order_everywhere(self):
        class Listing(Weigh):
            def process_element(self, value, ctx):
                state = ctx.get_broadcast_state(RULES)
                assert not state.is_empty()
                assert "b" in state
                assert list(state) == [key for key, _ in state.items()]
                yield list(state.items()), list(state.values()), state["b"]

        with weigh(Listing(), parallelism=2) as job:
            job.push(("c", 3), ("a", 1), ("b", 2), source="rules").epoch()
            job.push("x", "x", source="words").epoch()
            job.crash()
            job.push("x", "x", source="words").epoch()
            assert job.output == [([("a", 1), ("b", 2), ("c", 3)], [1, 2, 3], 2)] * 4

    def test_broadcast_state_is_isolated_from_accidental_changes(self, env):
        lists = MapStateDescriptor("lists", str, list[int])

        class Careless(BroadcastProcessFunction):
            def process_element(self, value, ctx):
                held = ctx.get_broadcast_state(lists).get("all")
                yield list(held)
                held.append(99)

            def process_broadcast_element(self, value, ctx):
                numbers = [value]
                ctx.get_broadcast_state(lists).put("all", numbers)
                numbers.append(98)

        numbers = env.from_collection([]).uid("numbers").broadcast(lists)
        stream = env.from_collection([]).uid("words").connect(numbers).process(Careless())
        with JobHarness(stream) as job:
            job.push(1, source="numbers").epoch()
            job.push("a", "b", source="words").epoch()
            assert job.output == [[1], [1]]

    @pytest.mark.parametrize(
        "write",
        [
            lambda state: state.put("a", 1),
            lambda state: state.put_all({"a": 1}),
            lambda state: state.remove("a"),
            lambda state: state.clear(),
            lambda state: state.__setitem__("a", 1),
            lambda state: state.__delitem__("a"),
        ],
    )
    def test_broadcast_state_cannot_be_written_from_the_other_input(self, write):
        class Writing(Weigh):
            def process_element(self, value, ctx):
                write(ctx.get_broadcast_state(RULES))
                yield value

        message = r"'rules' of 'weigh' \(uid 'weigh'\) can only be read here.*process_broadcast_element"
        with weigh(Writing()) as job, pytest.raises(Exception, match=message):
            job.push("a", source="words").epoch()

    def test_an_undeclared_broadcast_state_is_refused(self):
        class Asking(Weigh):
            def process_element(self, value, ctx):
                ctx.get_broadcast_state(MapStateDescriptor("other", str, str))

        message = r"'other', but its broadcast stream only has \['rules'\]"
        with weigh(Asking()) as job, pytest.raises(Exception, match=message):
            job.push("a", source="words").epoch()

    def test_a_broadcast_function_can_have_operator_state(self):
        with weigh(Counting()) as job:
            job.push(("a", 1), source="rules").epoch()
            for _ in range(3):
                job.push("a", "a", source="words").epoch()
                job.crash()
            assert sorted(job.output) == sorted([("a", 1, n) for n in (1, 2, 3)] * 2)


class Opening(Weigh):
    opened = 0

    def open(self, runtime_context):
        Opening.opened += 1


class Counting(Weigh, CheckpointedFunction):
    count = 0

    def initialize_state(self, context):
        self.state = context.get_operator_state_store().get_list_state(ListStateDescriptor("count", int))
        self.count = sum(self.state.get())

    def process_element(self, value, ctx):
        self.count += 1
        yield value, ctx.get_broadcast_state(RULES).get(value), self.count

    def snapshot_state(self, context):
        self.state.update([self.count])


class Limits(KeyedBroadcastProcessFunction):
    """Sums by key, up to a broadcast limit; `reset` clears all sums."""

    rejected = OutputTag("rejected", Types.TUPLE([Types.STRING(), Types.INT()]))

    def open(self, runtime_context):
        self.total = runtime_context.get_state(ValueStateDescriptor("total", int))

    def process_element(self, value, ctx):
        key, amount = value
        assert ctx.get_current_key() == key
        total = (self.total.value() or 0) + amount
        if total > (ctx.get_broadcast_state(RULES).get("limit") or 0):
            yield self.rejected, value
        else:
            self.total.update(total)
            yield key, total

    def process_broadcast_element(self, value, ctx):
        if value == "reset":
            ctx.apply_to_keyed_state(ValueStateDescriptor("total", int), lambda key, state: state.clear())
        elif value == "double":
            ctx.apply_to_keyed_state(ValueStateDescriptor("total", int), Doubling())
        else:
            ctx.get_broadcast_state(RULES).put("limit", value)


class Doubling:
    def process(self, key, state):
        state.update(state.value() * 2)


def limits(parallelism=2, storage=None, side=False, settings=None):
    env = StreamExecutionEnvironment.get_execution_environment()
    rules = env.from_collection([]).uid("rules").broadcast(RULES)
    amounts = env.from_collection([]).uid("amounts").key_by(lambda pair: pair[0])
    stream = amounts.connect(rules).process(Limits()).uid("limits")
    if side:
        stream = stream.get_side_output(Limits.rejected)
    return JobHarness(stream, parallelism=parallelism, max_parallelism=16, storage=storage, settings=settings)


class TestKeyedStreams:
    def test_a_keyed_broadcast_function_has_keyed_state_and_the_rules(self):
        with limits() as job:
            job.push(10, source="rules").epoch()
            job.push(("a", 6), ("a", 6), ("b", 7), source="amounts").epoch()
            assert sorted(job.output) == [("a", 6), ("b", 7)]
            job.push(20, source="rules").epoch()
            job.push(("a", 6), source="amounts").epoch()
            assert job.output[-1] == ("a", 12)

    def test_a_keyed_broadcast_function_has_side_outputs(self):
        with limits(side=True) as job:
            job.push(10, source="rules").epoch()
            job.push(("a", 6), ("a", 6), source="amounts").epoch()
            assert job.output == [("a", 6)]

    @pytest.mark.parametrize("epochs", [True, False])
    def test_a_rule_can_change_the_state_of_every_key(self, epochs):
        """This covers stored keys and keys written in this epoch, but not cleared ones."""
        with limits(parallelism=3) as job:
            job.push(1000, source="rules").epoch()
            job.push(*[(f"k{n}", n) for n in range(1, 30)], source="amounts").epoch()
            job.crash()
            if epochs:
                job.push("double", source="rules").epoch()
                assert job.states("total") == {f"k{n}": 2 * n for n in range(1, 30)}
                job.push("reset", source="rules").epoch()
            else:
                job.push("double", "reset", source="rules").epoch()
            assert job.states("total") == {}
            job.push("double", source="rules").push(("k1", 5), source="amounts").epoch()
            job.push("double", source="rules").epoch()
            assert job.states("total") in ({"k1": 10}, {"k1": 20})

    def test_a_rule_can_change_more_keys_than_fit_in_memory(self, monkeypatch):
        """The overlay can spill between two keys; every key is still seen once."""
        spills = []
        spill = Overlay.spill
        monkeypatch.setattr(Overlay, "spill", lambda overlay: (spills.append(1), spill(overlay)))
        with limits(settings=Settings(overlay_bytes=40_000)) as job:
            job.push(10_000, source="rules").epoch()
            job.push(*[(f"k{n}", n) for n in range(1, 2000)], source="amounts").epoch()
            spills.clear()
            job.push("double", "double", source="rules").epoch()
            assert len(spills) > 10
            assert job.states("total") == {f"k{n}": 4 * n for n in range(1, 2000)}
            job.push("reset", source="rules").epoch()
            assert job.states("total") == {}

    def test_rules_and_sums_are_kept_at_another_parallelism(self):
        with limits(2) as job:
            job.push(1000, source="rules").epoch()
            job.push(*[(f"k{n}", n) for n in range(42)], source="amounts").epoch()
            with limits(5, job.storage) as more:
                more.push(*[(f"k{n}", n) for n in range(42)], source="amounts").epoch()
                assert sorted(more.output) == sorted((f"k{n}", 2 * n) for n in range(42))
                more.push("double", source="rules").epoch()
                assert more.states("total") == {f"k{n}": 4 * n for n in range(42)}

    def test_a_rule_has_no_current_key(self):
        class Confused(Limits):
            def process_broadcast_element(self, value, ctx):
                self.total.value()

        env = StreamExecutionEnvironment.get_execution_environment()
        amounts = env.from_collection([("a", 1)]).key_by(lambda pair: pair[0])
        stream = amounts.connect(env.from_collection([1]).broadcast(RULES)).process(Confused())
        with JobHarness(stream) as job, pytest.raises(Exception, match="'total' was used without a current key"):
            job.epoch()


KINDS = {
    "list": (ListStateDescriptor("kept", int), lambda state, n: state.add(n), lambda state: sum(state.get())),
    "map": (
        MapStateDescriptor("kept", str, int),
        lambda state, n: state.put("n", n),
        lambda state: sum(state.values()),
    ),
    "reducing": (
        ReducingStateDescriptor("kept", lambda a, b: a + b, int),
        lambda state, n: state.add(n),
        lambda state: state.get(),
    ),
}


class TestKindsOfKeyedState:
    @pytest.mark.parametrize("ttl", [False, True])
    @pytest.mark.parametrize("kind", KINDS)
    def test_a_rule_reaches_keyed_state_of_any_kind(self, env, kind, ttl):
        descriptor, add, total = KINDS[kind]
        if ttl:
            descriptor = type(descriptor).__new__(type(descriptor))
            descriptor.__setstate__(KINDS[kind][0].__getstate__())
            descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.seconds(100)).build())

        class Keeps(KeyedBroadcastProcessFunction):
            def open(self, runtime_context):
                getters = {
                    "list": runtime_context.get_list_state,
                    "map": runtime_context.get_map_state,
                    "reducing": runtime_context.get_reducing_state,
                }
                self.kept = getters[kind](descriptor)

            def process_element(self, value, ctx):
                if value < 0:
                    self.kept.clear()
                else:
                    add(self.kept, value)

            def process_broadcast_element(self, value, ctx):
                found = []
                ctx.apply_to_keyed_state(descriptor, lambda key, state: found.append((key, total(state))))
                yield sorted(found)

        rules = env.from_collection([]).uid("rules").broadcast(RULES)
        stream = env.from_collection([]).uid("numbers").key_by(abs).connect(rules).process(Keeps()).uid("keeps")
        with JobHarness(stream) as job:
            job.set_clock(1000)
            job.push(1, 2, 3, source="numbers").epoch()
            job.push("ask", source="rules").epoch()
            job.push(-2, 4, source="numbers").epoch()
            job.crash()
            job.push("ask", source="rules").epoch()
            assert job.output == [[(1, 1), (2, 2), (3, 3)], [(1, 1), (3, 3), (4, 4)]]

    def test_a_key_whose_map_is_empty_is_not_reached(self, env):
        descriptor = MapStateDescriptor("kept", str, int)

        class Keeps(KeyedBroadcastProcessFunction):
            def open(self, runtime_context):
                self.kept = runtime_context.get_map_state(descriptor)

            def process_element(self, value, ctx):
                _, entry, number = value
                if number is None:
                    self.kept.remove(entry)
                else:
                    self.kept.put(entry, number)

            def process_broadcast_element(self, value, ctx):
                found = []
                ctx.apply_to_keyed_state(descriptor, lambda key, state: found.append((key, dict(state.items()))))
                yield found

        rules = env.from_collection([]).uid("rules").broadcast(RULES)
        stream = env.from_collection([]).uid("entries").key_by(lambda entry: entry[0]).connect(rules).process(Keeps())
        with JobHarness(stream) as job:
            job.push((1, "x", 1), (1, "y", 2), (2, "x", 3), source="entries").epoch()
            # In one epoch: the removal is not stored yet when the rule arrives.
            job.push((1, "x", None), (2, "x", None), source="entries").push("ask", source="rules").epoch()
            job.push("ask", source="rules").epoch()
            assert job.output == [[(1, {"y": 2})]] * 2


class Reminding(KeyedBroadcastProcessFunction):
    """Yields a word again when the broadcast delay has passed."""

    def process_element(self, value, ctx):
        delay = ctx.get_broadcast_state(RULES).get("delay")
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + delay)

    def on_timer(self, timestamp, ctx):
        yield (
            ctx.get_current_key(),
            timestamp,
            ctx.timestamp(),
            ctx.time_domain().name,
            ctx.get_broadcast_state(RULES).get("delay"),
        )

    def process_broadcast_element(self, value, ctx):
        ctx.get_broadcast_state(RULES).put("delay", value)
        yield "rule", value, ctx.timestamp(), ctx.current_watermark() > 0, ctx.current_processing_time()


class TestTime:
    def test_a_timer_fires_when_both_streams_have_reached_its_time(self, env):
        rules = env.from_collection([]).uid("rules").broadcast(RULES)
        words = env.from_collection([]).uid("words").key_by(lambda word: word)
        with JobHarness(words.connect(rules).process(Reminding()).uid("remind"), parallelism=2) as job:
            job.set_clock(77)
            job.push(10, source="rules", timestamp=5).epoch()
            assert job.output == [("rule", 10, 5, False, 77)] * 2
            job.push("a", source="words", timestamp=100).push_watermark(120, source="words").epoch()
            assert len(job.output) == 2
            job.crash()
            job.push_watermark(109, source="rules").epoch()
            assert len(job.output) == 2
            job.push_watermark(110, source="rules").epoch()
            assert job.output[2:] == [("a", 110, 110, "EVENT_TIME", 10)]

    @pytest.mark.parametrize("parallelism", [1, 3])
    @pytest.mark.parametrize("per_epoch", [1, 4, 100])
    def test_event_time_results_do_not_depend_on_epochs_or_parallelism(self, env, parallelism, per_epoch):
        """The function waits for the watermark because rules can have a later time than the records read with them."""
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Stamp())
        rules = env.from_collection([(1, 0), (2, 50)]).assign_timestamps_and_watermarks(strategy).broadcast(VERSIONS)
        words = [(f"w{n % 5}", n * 10) for n in range(12)]
        stream = env.from_collection(words).assign_timestamps_and_watermarks(strategy).key_by(lambda word: word[0])
        with JobHarness(stream.connect(rules).process(Versioned()), parallelism=parallelism) as job:
            output = job.run(per_epoch)
        assert sorted(output) == sorted((f"w{n % 5}", n * 10, 1 if n * 10 < 50 else 2) for n in range(12))


VERSIONS = MapStateDescriptor("versions", int, int)


class Stamp(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


class Versioned(KeyedBroadcastProcessFunction):
    """Processes a record once all rules up to its time are known."""

    def process_element(self, value, ctx):
        ctx.timer_service().register_event_time_timer(value[1])

    def on_timer(self, timestamp, ctx):
        versions = ctx.get_broadcast_state(VERSIONS)
        yield ctx.get_current_key(), timestamp, versions.get(max(since for since in versions if since <= timestamp))

    def process_broadcast_element(self, value, ctx):
        version, since = value
        ctx.get_broadcast_state(VERSIONS).put(since, version)


class TestMistakes:
    def test_a_function_for_the_other_kind_of_stream_is_refused(self, env):
        stream, rules = env.from_collection([1]), env.from_collection([1]).broadcast(RULES)
        with pytest.raises(GraphError, match="needs a BroadcastProcessFunction, for the stream is not keyed"):
            stream.connect(rules).process(Limits())
        with pytest.raises(GraphError, match="needs a KeyedBroadcastProcessFunction, for the stream is keyed"):
            stream.key_by(lambda n: n).connect(rules).process(Weigh())

    def test_a_descriptor_that_is_not_of_a_map_is_refused(self, env):
        with pytest.raises(GraphError, match="each a MapStateDescriptor"):
            env.from_collection([1]).broadcast(ValueStateDescriptor("rules", int))

    def test_two_states_with_the_same_name_are_refused(self, env):
        with pytest.raises(GraphError, match="have the same name"):
            env.from_collection([1]).broadcast(RULES, MapStateDescriptor("rules", str, str))

    def test_a_keyed_stream_cannot_be_broadcast(self, env):
        with pytest.raises(GraphError, match="partitioned by its key"):
            env.from_collection([1]).key_by(lambda n: n).broadcast(RULES)

    def test_streams_of_two_environments_are_refused(self, env):
        other = StreamExecutionEnvironment.get_execution_environment()
        with pytest.raises(GraphError, match="one environment"):
            env.from_collection([1]).connect(other.from_collection([1]).broadcast(RULES))


def test_a_failed_function_resumes_with_the_rules_of_the_last_checkpoint(env):
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(1, 0))
    rules = env.from_collection([]).uid("rules").broadcast(RULES)
    stream = env.from_collection([]).uid("words").connect(rules).process(FailsOnce())
    with JobHarness(stream) as job:
        FailsOnce.failed = False
        job.push(("a", 1), source="rules").epoch()
        job.push("a", source="words").epoch()
        assert job.restarts == 1
        assert job.output == [("a", 1)]


class FailsOnce(Weigh):
    failed = False

    def process_element(self, value, ctx):
        if not FailsOnce.failed:
            FailsOnce.failed = True
            raise ValueError("once")
        yield from super().process_element(value, ctx)
