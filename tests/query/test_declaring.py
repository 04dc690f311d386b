"""Which states a job makes queryable, and where that is recorded."""

import pytest

from penstock.checkpoint.manifest import StateAddress, latest
from penstock.common.configuration import Configuration
from penstock.common.time import Time
from penstock.common.typeinfo import Types
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.functions import KeyedProcessFunction, ProcessWindowFunction
from penstock.datastream.window import TumblingProcessingTimeWindows
from penstock.driver.queryable import DuplicateQueryableState, QueryableStateDisabled
from penstock.graph.logical import GraphError
from penstock.state.descriptors import (
    BadStateType,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from penstock.testing import JobHarness


def environment(enabled=True):
    configuration = Configuration()
    configuration.set_string("queryable-state.enable", str(enabled).lower())
    return StreamExecutionEnvironment.get_execution_environment(configuration)


def queryable(job):
    manifest, _ = latest(job.storage)
    return manifest.queryable


class Total(KeyedProcessFunction):
    def __init__(self, name="totals"):
        self.name = name

    def open(self, runtime_context):
        descriptor = ValueStateDescriptor("total", Types.LONG())
        descriptor.set_queryable(self.name)
        self.total = runtime_context.get_state(descriptor)

    def process_element(self, value, ctx):
        self.total.update((self.total.value() or 0) + 1)


class SometimesQueryable(Total):
    """Hides the call behind a condition, so that only a task finds out."""

    def open(self, runtime_context):
        descriptor = ValueStateDescriptor("total", Types.LONG())
        if self.name:
            descriptor.set_queryable(self.name)
        self.total = runtime_context.get_state(descriptor)


class PerWindow(ProcessWindowFunction):
    def process(self, key, context, elements):
        descriptor = ValueStateDescriptor("seen", Types.LONG())
        descriptor.set_queryable("per window")
        state = context.window_state().get_state(descriptor)
        state.update(len(list(elements)))
        return []

    def clear(self, context):
        pass


def test_a_queryable_state_is_recorded_in_the_manifest_by_its_name():
    stream = environment().from_collection([]).key_by(lambda v: v).process(Total()).uid("sums")
    with JobHarness(stream) as job:
        job.push("a").epoch()
        assert queryable(job) == {"totals": StateAddress(uid="sums", state="total")}
        assert job.state("total", "a") == 1


def test_a_manifest_of_a_job_without_queryable_states_has_none():
    stream = environment(enabled=False).from_collection([]).key_by(lambda v: v).sum().uid("sums")
    with JobHarness(stream) as job:
        job.push(1).epoch()
        assert queryable(job) == {}


def test_as_queryable_state_keeps_the_last_record_of_each_key():
    env = environment()
    orders = env.from_collection([], type_info=Types.TUPLE([Types.STRING(), Types.LONG()]))
    orders.key_by(lambda order: order[0]).as_queryable_state("last").uid("end")
    with JobHarness(env) as job:
        job.push(("ann", 1), ("bob", 2), ("ann", 3)).epoch()
        assert job.states("last") == {"ann": ("ann", 3), "bob": ("bob", 2)}
        assert queryable(job) == {"last": StateAddress(uid="end", state="last")}


def test_as_queryable_state_keeps_records_of_a_type_that_only_an_annotation_declares():
    def order(line: str) -> tuple[str, int]:
        name, _, amount = line.partition(" ")
        return name, int(amount)

    env = environment()
    env.from_collection([]).map(order).key_by(lambda order: order[0]).as_queryable_state("last").uid("end")
    with JobHarness(env) as job:
        job.push("ann 1", "ann 7").epoch()
        assert job.state("last", "ann") == ("ann", 7)


def test_as_queryable_state_reduces_the_records_of_a_key_with_a_reducing_state():
    env = environment()
    numbers = env.from_collection([], type_info=Types.LONG()).key_by(lambda n: n % 2)
    numbers.as_queryable_state("sums", ReducingStateDescriptor("sum", lambda a, b: a + b, Types.LONG())).uid("end")
    with JobHarness(env) as job:
        job.push(1, 2, 3).epoch()
        assert job.states("sum") == {0: 2, 1: 4}
        assert queryable(job) == {"sums": StateAddress(uid="end", state="sum")}


def test_as_queryable_state_refuses_other_kinds_of_state():
    keyed = environment().from_collection([]).key_by(lambda n: n)
    with pytest.raises(GraphError, match="not ListStateDescriptor"):
        keyed.as_queryable_state("all", ListStateDescriptor("all", Types.LONG()))


def test_as_queryable_state_is_a_sink():
    env = environment()
    env.from_collection([1]).key_by(lambda n: n).as_queryable_state("last").uid("end")
    assert [node.is_sink for node in env._graph.nodes.values()] == [False, True]


def test_a_job_with_a_queryable_sink_is_refused_if_queryable_state_is_disabled():
    env = environment(enabled=False)
    env.from_collection([1]).key_by(lambda n: n).as_queryable_state("last").uid("end")
    with pytest.raises(QueryableStateDisabled, match=r"as 'last', but .* -D queryable-state.enable=true"):
        JobHarness(env)


@pytest.mark.parametrize("holds", ["attribute", "open"])
def test_a_job_with_a_queryable_function_is_refused_at_submission(holds):
    class Holder(KeyedProcessFunction):
        def __init__(self):
            self.descriptor = MapStateDescriptor("m", Types.LONG(), Types.LONG())
            self.descriptor.set_queryable("map")

        def process_element(self, value, ctx):
            pass

    function = Holder() if holds == "attribute" else Total()
    stream = environment(enabled=False).from_collection([]).key_by(lambda v: v).process(function).uid("f")
    with pytest.raises(QueryableStateDisabled, match="Operator 'Keyed Process' makes a state queryable"):
        JobHarness(stream)


GLOBAL = ValueStateDescriptor("total", Types.LONG())
GLOBAL.set_queryable("global totals")


def queryable_totals():
    descriptor = ValueStateDescriptor("total", Types.LONG())
    descriptor.set_queryable("totals of a helper")
    return descriptor


class Counting(KeyedProcessFunction):
    def process_element(self, value, ctx):
        self.total.update((self.total.value() or 0) + 1)


class OfAGlobal(Counting):
    def open(self, runtime_context):
        if runtime_context is not None:
            self.total = runtime_context.get_state(GLOBAL)


class OfAHelper(Counting):
    def open(self, runtime_context):
        self.total = runtime_context.get_state(queryable_totals())


class OfAClassAttribute(Counting):
    DESCRIPTOR = GLOBAL

    def open(self, runtime_context):
        self.total = runtime_context.get_state(self.DESCRIPTOR)


class OfAList(Counting):
    def __init__(self):
        self.descriptors = [GLOBAL]

    def open(self, runtime_context):
        for descriptor in self.descriptors:
            self.total = runtime_context.get_state(descriptor)


def of_a_closure():
    descriptor = queryable_totals()

    class OfAClosure(Counting):
        def open(self, runtime_context):
            self.total = runtime_context.get_state(descriptor)

    return OfAClosure()


@pytest.mark.parametrize("make", [OfAGlobal, OfAHelper, OfAClassAttribute, OfAList, of_a_closure])
def test_a_descriptor_that_a_function_refers_to_is_seen_at_submission(make):
    stream = environment(enabled=False).from_collection([]).key_by(lambda v: v).process(make()).uid("f")
    with pytest.raises(QueryableStateDisabled, match="makes a state queryable"):
        JobHarness(stream)
    stream = environment().from_collection([]).key_by(lambda v: v).process(make()).uid("f")
    with JobHarness(stream) as job:
        job.push("a").epoch()
        assert len(queryable(job)) == 1


def test_functions_that_only_refer_to_one_descriptor_are_no_duplicates():
    class Named(Counting):
        def open(self, runtime_context):
            self.total = runtime_context.get_state(ValueStateDescriptor(GLOBAL.name, Types.LONG()))

    keyed = environment().from_collection([], type_info=Types.LONG()).key_by(lambda v: v)
    keyed.process(OfAGlobal()).uid("one").print()
    other = keyed.process(Named()).uid("two")
    other.print()
    with JobHarness(other) as job:
        job.push(1).epoch()
        assert queryable(job) == {"global totals": StateAddress(uid="one", state="total")}


def test_a_descriptor_that_is_not_queryable_is_no_reason_to_refuse_a_job():
    stream = environment(enabled=False).from_collection([]).key_by(lambda v: v).process(SometimesQueryable("")).uid("f")
    with JobHarness(stream) as job:
        job.push("a").epoch()
        assert queryable(job) == {}


def test_a_state_that_becomes_queryable_in_a_task_fails_the_first_epoch_before_anything_is_published():
    stream = environment(enabled=False).from_collection([]).key_by(lambda v: v).process(SometimesQueryable()).uid("f")
    with JobHarness(stream) as job:
        with pytest.raises(QueryableStateDisabled, match="makes its state 'total' queryable as 'totals'"):
            job.push("a").epoch()
        assert latest(job.storage) is None


def test_two_states_cannot_be_queryable_under_one_name():
    env = environment()
    keyed = env.from_collection([], type_info=Types.LONG()).key_by(lambda v: v)
    keyed.process(SometimesQueryable()).uid("one").print()
    keyed.process(SometimesQueryable()).uid("two").print()
    with JobHarness(env) as job, pytest.raises(DuplicateQueryableState, match="are both queryable as 'totals'"):
        job.push(1).epoch()


def test_two_queryable_sinks_of_one_name_are_refused_at_submission():
    env = environment()
    keyed = env.from_collection([], type_info=Types.LONG()).key_by(lambda v: v)
    keyed.as_queryable_state("last").uid("one")
    keyed.as_queryable_state("last").uid("two")
    with pytest.raises(DuplicateQueryableState, match="both make a state queryable as 'last'"):
        JobHarness(env)


def test_a_state_that_is_no_longer_declared_queryable_is_removed_from_the_manifest():
    stream = environment().from_collection([]).key_by(lambda v: v).process(SometimesQueryable()).uid("f")
    with JobHarness(stream, backend="filesystem") as job:
        job.push("a").epoch()
        assert [*queryable(job)] == ["totals"]
        later = environment().from_collection([]).key_by(lambda v: v).process(SometimesQueryable("")).uid("f")
        with JobHarness(later, backend="filesystem", storage=job.storage) as resumed:
            resumed.push("a").epoch()
            assert queryable(resumed) == {}


def test_a_state_of_windows_stays_queryable_while_no_window_uses_it():
    def stream():
        windows = environment().from_collection([]).key_by(lambda v: v)
        return windows.window(TumblingProcessingTimeWindows.of(Time.seconds(1))).process(PerWindow()).uid("w")

    expected = {"per window": StateAddress(uid="w", state="window function seen")}
    with JobHarness(stream(), backend="filesystem") as job:
        job.set_clock(100)
        job.push("a").epoch()
        job.set_clock(1500)
        assert queryable(job) == expected
        with JobHarness(stream(), backend="filesystem", storage=job.storage) as resumed:
            resumed.set_clock(1600)
            resumed.epoch(0)
            assert queryable(resumed) == expected


class PerKey(ProcessWindowFunction):
    """Counts the windows of a key, in a state that it first uses when a window ends."""

    def __init__(self, name="windows"):
        self.name = name

    def process(self, key, context, elements):
        descriptor = ValueStateDescriptor("count", Types.LONG())
        if self.name:
            descriptor.set_queryable(self.name)
        state = context.global_state().get_state(descriptor)
        state.update((state.value() or 0) + 1)
        return []


def test_a_state_that_a_function_first_uses_for_a_window_stays_queryable_until_the_next_window():
    def stream(name="windows"):
        windows = environment().from_collection([]).key_by(lambda v: v)
        return windows.window(TumblingProcessingTimeWindows.of(Time.seconds(1))).process(PerKey(name)).uid("w")

    expected = {"windows": StateAddress(uid="w", state="count")}
    with JobHarness(stream(), backend="filesystem") as job:
        job.set_clock(100)
        job.push("a").epoch()
        job.set_clock(1500)
        assert queryable(job) == expected
        for again in (lambda: job.rescale(2), job.crash):
            again()
            job.push("b").epoch()
            assert queryable(job) == expected
        # The next version of the program declares another name, or none.
        for name, found in (("others", {"others": expected["windows"]}), ("", {})):
            with JobHarness(stream(name), backend="filesystem", storage=job.storage) as resumed:
                resumed.set_clock(10_000)
                resumed.push("a").epoch()
                resumed.set_clock(20_000)
                assert queryable(resumed) == found


def test_a_state_of_windows_that_is_no_longer_declared_queryable_is_removed_from_the_manifest():
    class Seen(ProcessWindowFunction):
        def __init__(self, name):
            self.name = name

        def process(self, key, context, elements):
            descriptor = ValueStateDescriptor("seen", Types.LONG())
            if self.name:
                descriptor.set_queryable(self.name)
            context.window_state().get_state(descriptor).update(len(list(elements)))
            return []

    def stream(name):
        windows = environment().from_collection([]).key_by(lambda v: v)
        return windows.window(TumblingProcessingTimeWindows.of(Time.seconds(1))).process(Seen(name)).uid("w")

    with JobHarness(stream("per window"), backend="filesystem") as job:
        job.set_clock(100)
        job.push("a").epoch()
        job.set_clock(1500)
        assert [*queryable(job)] == ["per window"]
        with JobHarness(stream(""), backend="filesystem", storage=job.storage) as resumed:
            resumed.set_clock(1600)
            resumed.push("a").epoch()
            resumed.set_clock(3000)
            assert queryable(resumed) == {}


def test_a_descriptor_has_one_queryable_name():
    descriptor = ValueStateDescriptor("total", Types.LONG())
    assert (descriptor.is_queryable(), descriptor.get_queryable_state_name()) == (False, None)
    descriptor.set_queryable("totals")
    descriptor.set_queryable("totals")
    assert (descriptor.is_queryable(), descriptor.get_queryable_state_name()) == (True, "totals")
    with pytest.raises(BadStateType, match="already queryable as 'totals'"):
        descriptor.set_queryable("sums")
    with pytest.raises(BadStateType, match="non-empty string"):
        ValueStateDescriptor("total", Types.LONG()).set_queryable("")
