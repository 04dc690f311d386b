"""Names that users choose: invalid ones are refused where they are set, with the reason."""

import pytest

from penstock.common import Configuration
from penstock.datastream import KeyedProcessFunction, OutputTag, StreamExecutionEnvironment
from penstock.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from penstock.driver.epoch_errors import UserFunctionFailed
from penstock.errors import PenstockError
from penstock.testing import JobHarness, keyed_harness

HALF = "half of a \ud83d pair"


@pytest.fixture
def env():
    return StreamExecutionEnvironment.get_execution_environment()


@pytest.mark.parametrize("name", [HALF, "", None, 5])
@pytest.mark.parametrize(
    "give",
    [
        lambda stream, name: stream.uid(name),
        lambda stream, name: stream.name(name),
        lambda stream, name: stream.map(str).uid(name),
        lambda stream, name: stream.map(str).name(name),
        lambda stream, name: stream.map(str).set_description(name),
        lambda stream, name: stream.print().uid(name),
        lambda stream, name: stream.print().name(name),
        lambda stream, name: stream.print().set_description(name),
        lambda stream, name: OutputTag(name),
        lambda stream, name: ValueStateDescriptor(name, int),
        lambda stream, name: ListStateDescriptor(name, int),
        lambda stream, name: MapStateDescriptor(name, int, int),
    ],
)
def test_an_invalid_name_is_refused_where_it_is_set(env, give, name):
    reason = "unpaired surrogate" if name == HALF else "non-empty string"
    with pytest.raises(PenstockError, match=reason) as raised:
        give(env.from_collection([1]), name)
    str(raised.value).encode()


@pytest.mark.parametrize("end", ["map", "print"])
def test_a_slot_sharing_group_with_half_a_surrogate_pair_is_refused(env, end):
    stream = env.from_collection([1])
    node = stream.map(str) if end == "map" else stream.print()
    with pytest.raises(PenstockError, match=r"A slot sharing group.*unpaired surrogate"):
        node.slot_sharing_group(HALF)


@pytest.mark.parametrize("name", [HALF, "tab\there", "nul\0", "line\nbreak", "\x7f", "\x85", "next\x85line"])
@pytest.mark.parametrize("given", ["argument", "setting"])
def test_an_invalid_job_name_is_refused_before_the_job_starts(name, given):
    configuration = Configuration()
    if given == "setting":
        configuration.set_string("pipeline.name", name)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.from_collection([1]).print()
    with pytest.raises(PenstockError, match=r"The name of a job cannot be .*(half of a|control character)") as raised:
        env.execute_async(name if given == "argument" else None)
    str(raised.value).encode()


@pytest.mark.parametrize("name", [HALF, "", 7])
def test_the_error_for_an_invalid_metric_name_names_the_operator(name):
    class Counting(KeyedProcessFunction):
        def open(self, runtime_context):
            runtime_context.get_metrics_group().add_group("group").counter(name)

        def process_element(self, value, ctx):
            yield value

    with keyed_harness(Counting()) as job, pytest.raises(UserFunctionFailed, match=r"(?s)uid 'function'.*metric"):
        job.push(1).epoch()


def test_any_other_name_is_accepted(env):
    class Kept(KeyedProcessFunction):
        def open(self, runtime_context):
            self.state = runtime_context.get_state(ValueStateDescriptor("Zustand 状態 🙂\n" + "x" * 300, int))

        def process_element(self, value, ctx):
            self.state.update(value)
            yield value

    stream = env.from_collection([1, 2]).key_by(lambda value: value).process(Kept()).uid("演算子 🙂\t" + "x" * 300)
    assert JobHarness(stream.name("Ein\nName")).run() == [1, 2]
