"""Error reports for failing functions: the operator, the uid, the frames of the user's code, and a fix."""

import os
import sys
import threading

import pytest

import penstock
from penstock.checkpoint.manifest_chain import ManifestChain
from penstock.common import Types
from penstock.datastream import (
    FilterFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    ProcessFunction,
    ReduceFunction,
    StreamExecutionEnvironment,
)
from penstock.datastream.connectors import Sink, SinkWriter
from penstock.datastream.state import ValueStateDescriptor
from penstock.driver.epoch_errors import EpochFailed, UserFunctionFailed
from penstock.graph.builder import build
from penstock.runtime import task
from penstock.runtime.chain import ChainRun
from penstock.runtime.inbox import Misaligned
from penstock.runtime.rows import BARRIER, DATA, FAILURE, decode_barrier, decode_failure
from penstock.runtime.task import Task
from penstock.runtime.task_epoch import TaskEpoch
from penstock.runtime.task_state import snapshot
from penstock.state.access import StateAccess
from penstock.state.driver_storage import DriverStorage
from penstock.state.engines.base import EngineError
from penstock.state.engines.memory import MemoryEngine
from penstock.state.key_groups import key_group_of, owner_of
from penstock.state.keys import encode_key
from penstock.testing import JobHarness

OURS = os.path.dirname(penstock.__file__)


def words(*records):
    env = StreamExecutionEnvironment.get_execution_environment()
    return env.from_collection(records or ["ok", "bad"]).uid("words")


def failure_of(stream, **options):
    """Return the failure of a program that must fail in its first epoch."""
    with JobHarness(stream, **options) as job, pytest.raises(UserFunctionFailed) as caught:
        job.epoch()
    text = str(caught.value)
    assert OURS not in text, "the message shows a frame of Penstock"
    assert text.count("Traceback") <= 1
    return text, caught.value.failures[0]


def reject(word):
    if word == "bad":
        raise LookupError("no such word")
    return word


class RejectMap(MapFunction):
    def map(self, value):
        return reject(value)


class RejectFlatMap(FlatMapFunction):
    def flat_map(self, value):
        yield "before"
        yield reject(value)


class RejectFilter(FilterFunction):
    def filter(self, value):
        return bool(reject(value))


class RejectProcess(ProcessFunction):
    def process_element(self, value, ctx):
        yield reject(value)


class RejectKeyedProcess(KeyedProcessFunction):
    def process_element(self, value, ctx):
        yield reject(value)


class RejectReduce(ReduceFunction):
    def reduce(self, value1, value2):
        return reject(value2)


class RejectKey(KeySelector):
    def get_key(self, value):
        return reject(value)


class RejectOpen(MapFunction):
    def open(self, runtime_context):
        reject("bad")

    def map(self, value):
        return value


class TestUserExceptions:
    @pytest.mark.parametrize(
        ("method", "function", "frame"),
        [
            ("map", RejectMap(), "in map"),
            ("map", reject, "in reject"),
            ("flat_map", RejectFlatMap(), "in flat_map"),
            ("filter", RejectFilter(), "in filter"),
            ("process", RejectProcess(), "in process_element"),
            ("map", RejectOpen(), "in open"),
        ],
        ids=["map", "plain function", "flat_map", "filter", "process", "open"],
    )
    def test_an_exception_in_a_function_names_its_operator_and_frames(self, method, function, frame):
        stream = getattr(words().map(str).uid("first"), method)(function).name("check words").uid("check")
        text, failure = failure_of(stream.map(str).uid("last"))
        assert (failure.operator, failure.uid) == ("check words", "check")
        assert text.startswith("Operator 'check words' (uid 'check') failed in subtask 0 of epoch 1:\nTraceback")
        assert text.endswith("\nLookupError: no such word")
        assert frame in text
        assert "in reject" in text
        assert __file__ in text

    @pytest.mark.parametrize(
        ("add", "frame"),
        [
            (lambda keyed: keyed.process(RejectKeyedProcess()), "in process_element"),
            (lambda keyed: keyed.map(RejectMap()), "in map"),
            (lambda keyed: keyed.reduce(RejectReduce()), "in reduce"),
        ],
        ids=["process", "map", "reduce"],
    )
    def test_an_exception_on_a_keyed_stream_names_its_operator_and_frames(self, add, frame):
        stream = add(words("ok", "bad").key_by(lambda word: 1)).name("check words").uid("check")
        text, failure = failure_of(stream, parallelism=3)
        assert (failure.operator, failure.uid) == ("check words", "check")
        assert frame in text
        assert text.endswith("LookupError: no such word")

    @pytest.mark.parametrize("selector", [RejectKey(), reject], ids=["KeySelector", "plain function"])
    def test_an_exception_in_a_key_selector_names_the_operator_after_it(self, selector):
        stream = words().map(str).uid("before").key_by(selector).process(RejectKeyedProcess()).name("count").uid("c")
        text, _ = failure_of(stream)
        assert text.startswith("Operator 'key selector of count' (uid 'c') failed in subtask 0")
        assert text.endswith("LookupError: no such word")
        assert "in reject" in text

    def test_an_exception_in_a_key_selector_behind_a_source_names_the_operator_after_it(self):
        text, _ = failure_of(words().key_by(reject).process(RejectKeyedProcess()).name("count").uid("c"))
        assert text.startswith("Operator 'key selector of count' (uid 'c') failed")

    def test_a_value_that_cannot_be_a_key_is_reported_with_an_alternative(self):
        stream = words().key_by(lambda word: {word}).process(RejectKeyedProcess()).name("count").uid("c")
        text, _ = failure_of(stream)
        assert "Operator 'key selector of count' (uid 'c')" in text
        assert "set cannot be a key" in text
        assert "tuple" in text

    def test_an_exception_in_a_sink_names_the_sink_and_not_the_operator_before_it(self):
        env = StreamExecutionEnvironment.get_execution_environment()
        env.from_collection(["a"]).map(str).uid("before").sink_to(FullSink()).name("disk").uid("disk-uid")
        text, failure = failure_of(env)
        assert (failure.operator, failure.uid) == ("disk", "disk-uid")
        assert text.endswith("OSError: disk full")

    def test_an_exception_is_reported_with_its_cause(self):
        def convert(word):
            try:
                return int(word)
            except ValueError as error:
                raise LookupError("not a number") from error

        tried = convert.__code__.co_firstlineno + 2
        with JobHarness(words("x").map(convert)) as job, pytest.raises(UserFunctionFailed) as caught:
            job.epoch()
        text = str(caught.value)
        assert "ValueError: invalid literal for int() with base 10: 'x'" in text
        assert text.index("ValueError") < text.index("direct cause") < text.index("LookupError: not a number")
        assert caught.value.headline().splitlines() == [
            "LookupError: not a number",
            f"after ValueError: invalid literal for int() with base 10: 'x', in convert, line {tried}",
        ]
        assert OURS not in text

    def test_an_exception_is_reported_with_its_subtask(self):
        stream = words("bad").key_by(lambda word: word).process(RejectKeyedProcess())
        _, failure = failure_of(stream, parallelism=3, max_parallelism=128)
        assert failure.subtask == owner_of(key_group_of(encode_key("bad"), 128), 3, 128)


class Total(KeyedProcessFunction):
    """The parent of some classes below."""

    def open(self, runtime_context):
        self.total = runtime_context.get_state(ValueStateDescriptor("total", int))

    def process_element(self, value, ctx):
        yield self.total.value(), value


class OpensWithoutItsParent(Total):
    def open(self, runtime_context):
        self.prefix = "a"


class OpenIsMisspelled(KeyedProcessFunction):
    def opne(self, runtime_context):
        self.total = runtime_context.get_state(ValueStateDescriptor("total", int))

    def process_element(self, value, ctx):
        yield self.total.value()


class HasNoOpen(KeyedProcessFunction):
    def process_element(self, value, ctx):
        yield self.total.value()


class OpensAndForgets(KeyedProcessFunction):
    def open(self, runtime_context):
        self.count = 0

    def process_element(self, value, ctx):
        yield self.total


class Prefixed(MapFunction):
    def __init__(self):
        self.prefix = "a"

    def map(self, value):
        return self.prefix + value


class PrefixedWithoutIt(Prefixed):
    def __init__(self):
        self.suffix = "z"


class TestUnsetAttributes:
    @pytest.mark.parametrize(
        ("function", "fix"),
        [
            (HasNoOpen(), "Set self.total in a method open(self, runtime_context) of HasNoOpen: it runs before"),
            (OpenIsMisspelled(), "Rename OpenIsMisspelled.opne, which sets 'total', to open(self, runtime_context)"),
            (
                OpensWithoutItsParent(),
                "Call super().open(runtime_context) in OpensWithoutItsParent.open: Total.open sets 'total'.",
            ),
            (OpensAndForgets(), "Change process_element to handle such a record"),
        ],
        ids=["no open", "misspelled", "no super().open", "open that sets something else"],
    )
    def test_an_attribute_missing_from_open_is_reported_with_the_fix(self, function, fix):
        _, failure = failure_of(words().key_by(lambda word: word).process(function).uid("total"))
        assert "has no attribute 'total'" in failure.error
        assert failure.fix.startswith(fix)

    def test_an_attribute_missing_from_the_constructor_is_reported_with_the_fix(self):
        _, failure = failure_of(words().map(PrefixedWithoutIt()))
        assert failure.fix.startswith("Call super().__init__() in PrefixedWithoutIt.__init__: Prefixed.__init__ sets")

    def test_an_attribute_missing_from_another_object_gets_the_general_fix(self):
        _, failure = failure_of(words().map(lambda word: word.uper()))
        assert failure.fix.startswith("Change <lambda> to handle such a record")


def test_a_module_that_workers_lack_is_reported_with_how_to_ship_it():
    def parse(word):
        from parsers_of_ours.words import split

        return split(word)

    _, failure = failure_of(words().map(parse))
    assert "No module named 'parsers_of_ours'" in failure.error
    assert failure.fix.startswith("Ship 'parsers_of_ours' to the workers with env.add_python_file(...), or install it")


class ExitsWhenItOpens(MapFunction):
    def open(self, runtime_context):
        sys.exit("no licence")

    def map(self, value):
        return value


class TestSysExitInAFunction:
    def test_sys_exit_fails_the_job_with_the_operator_and_the_record(self):
        def leave(word):
            if word == "bad":
                sys.exit(3)
            return word

        text, failure = failure_of(words().map(leave).name("leaver").uid("leaver"))
        assert (failure.operator, failure.headline, failure.record) == ("leaver", "SystemExit: 3", "'bad'")
        assert failure.fix.startswith("Remove the call to sys.exit() from leave:")
        assert "in leave" in text

    @pytest.mark.parametrize("parallelism", [1, 2])
    def test_sys_exit_behind_an_exchange_fails_the_job(self, parallelism):
        stream = words().key_by(lambda word: word).map(lambda word: sys.exit())
        _, failure = failure_of(stream, parallelism=parallelism)
        assert failure.headline == "SystemExit"

    def test_sys_exit_in_open_fails_the_job(self):
        _, failure = failure_of(words().map(ExitsWhenItOpens()))
        assert failure.headline == "SystemExit: no licence"
        assert failure.fix.startswith("Remove the call to sys.exit() from open:")

    def test_sys_exit_is_not_retried(self):
        CALLS.clear()
        failure_of(words("a").map(leave_noted))
        assert CALLS == ["a"]


def test_a_keyboard_interrupt_in_the_harness_reaches_the_developer():
    def interrupt(word):
        raise KeyboardInterrupt

    with JobHarness(words().map(interrupt)) as job, pytest.raises(KeyboardInterrupt):
        job.epoch()


class FullSink(Sink):
    def create_writer(self, context):
        return FullWriter()

    def commit(self, commits, context):
        raise AssertionError("nothing must be committed")


class FullWriter(SinkWriter):
    def write(self, value):
        raise OSError("disk full")

    def prepare_commit(self):
        return None


class CountsInState(KeyedProcessFunction):
    def __init__(self, wrong):
        self.wrong = wrong

    def open(self, runtime_context):
        self.total = runtime_context.get_state(ValueStateDescriptor("total", int))

    def process_element(self, value, ctx):
        self.total.update(self.wrong)


class TestWrongResults:
    @pytest.mark.parametrize("result", [7, "text", b"bytes"], ids=["int", "str", "bytes"])
    def test_flat_map_must_return_an_iterable(self, result):
        def split(word):
            return result

        text, failure = failure_of(words().flat_map(split).uid("split"))
        assert failure.uid == "split"
        assert f"split returned {type(result).__name__} from flat_map" in text
        assert "Write `yield value` or `return [value]`." in text

    @pytest.mark.parametrize("result", [7, "text"], ids=["int", "str"])
    def test_process_element_must_return_an_iterable(self, result):
        class Last(KeyedProcessFunction):
            def process_element(self, value, ctx):
                return result

        text, _ = failure_of(words().key_by(lambda word: word).process(Last()))
        assert f"Last returned {type(result).__name__} from process_element" in text
        assert "`yield value`" in text

    def test_none_from_flat_map_and_process_emits_nothing(self):
        stream = words("a", "b").flat_map(lambda word: None).process(lambda word, ctx: None)
        with JobHarness(stream) as job:
            assert job.run() == []

    def test_a_result_that_does_not_match_the_declared_type_is_reported(self):
        def length(word):
            return str(len(word))

        text, failure = failure_of(words().map(length, output_type=Types.INT()).name("measure").uid("m"))
        assert failure.uid == "m"
        assert "length returned a result that does not match the output_type of 'measure'" in text
        assert "The str '2' is not an int" in text
        assert "Convert it to int, or declare its actual type." in text

    def test_a_result_that_cannot_be_pickled_is_reported(self):
        def lock(word):
            return threading.Lock()

        # Detected when the buffer is written, long after the function returned; the name must still be right.
        stream = words().map(str).uid("before").map(lock).name("locker").uid("l").map(str).set_parallelism(2)
        text, failure = failure_of(stream)
        assert (failure.operator, failure.uid) == ("locker", "l")
        assert "locker emitted a record that cannot be sent to the next task: cannot pickle '_thread.lock'" in text

    @pytest.mark.parametrize("records", [1, 1000])
    def test_an_unsendable_result_does_not_blame_the_key_selector_behind_it(self, records):
        # With many records, the buffer is full and written while the selector's loop runs.
        locks = words(*range(records)).map(lambda number: (number, threading.Lock())).name("locker").uid("l")
        _, failure = failure_of(locks.key_by(lambda pair: pair[0]).process(RejectKeyedProcess()))
        assert (failure.operator, failure.uid) == ("locker", "l")

    def test_a_result_that_its_declared_type_cannot_encode_is_reported(self):
        stream = words("a").map(lambda word: 2**64, output_type=int).uid("big").map(str).set_parallelism(2)
        text, failure = failure_of(stream)
        assert failure.uid == "big"
        assert "declare Types.BIG_INT()" in text

    def test_a_value_that_state_cannot_encode_is_reported(self):
        stream = words().key_by(lambda word: word).process(CountsInState("seven")).name("counts").uid("c")
        text, failure = failure_of(stream)
        assert (failure.operator, failure.uid) == ("counts", "c")
        assert "State 'total': The str 'seven' is not a long" in text
        assert "in process_element" in text

    def test_a_declared_type_converts_values_with_and_without_an_exchange(self):
        for parallelism in (None, 2):
            stream = words(1, 2).map(lambda number: number, output_type=Types.DOUBLE()).uid("double")
            after = stream.map(lambda number: (type(number).__name__, number))
            if parallelism:
                after.set_parallelism(parallelism)
            with JobHarness(after) as job:
                assert sorted(job.run()) == [("float", 1.0), ("float", 2.0)]


NO_STATE = StateAccess(ManifestChain(DriverStorage(), None), None, lambda uid, groups: MemoryEngine(), 0)


class TestAfterAFailure:
    def rows_of_failed_source(self, *batches):
        stream = words().map(reject).uid("first").key_by(lambda word: word).process(lambda word, ctx: [word])
        graph = build(stream.get_execution_environment()._graph, parallelism=1)
        run = ChainRun(graph, graph.chains[0], None)
        return graph, list(Task(run, 0).over_records(TaskEpoch(1, False, NO_STATE), batches))

    def test_a_failed_task_reports_to_the_driver_and_closes_every_channel_as_failed(self):
        _, rows = self.rows_of_failed_source(["a", "bad"])
        assert [row.kind for row in rows] == [FAILURE, BARRIER]
        assert decode_failure(rows[0].payload).error == "LookupError: no such word"
        assert decode_barrier(rows[1].payload).failed

    def test_a_task_downstream_of_a_failure_ends_silently(self):
        graph, rows = self.rows_of_failed_source(["a", "bad"])
        run = ChainRun(graph, graph.chains[1], 0)
        task = Task(run, 0)
        passed = list(task.over_rows(TaskEpoch(1, False, NO_STATE), rows))
        # It passes the failure on to the driver and adds neither a report nor a second failure.
        assert [(row.kind, row.payload) for row in passed] == [(FAILURE, rows[0].payload)]
        assert task.failed

    def test_buffers_sent_before_a_failure_are_ignored(self):
        graph, rows = self.rows_of_failed_source(["a"] * 1000, ["bad"])
        assert DATA in {row.kind for row in rows}
        passed = list(Task(ChainRun(graph, graph.chains[1], 0), 0).over_rows(TaskEpoch(1, False, NO_STATE), rows))
        assert [row.kind for row in passed] == [FAILURE]

    def test_functions_are_closed_and_reopened_for_the_next_attempt(self, tmp_path):
        class Logged(MapFunction):
            def open(self, runtime_context):
                self.note("open")

            def map(self, value):
                if value == "bad" and not (tmp_path / "repaired").exists():
                    raise LookupError(value)
                return value

            def close(self):
                self.note("close")

            def note(self, what):
                with open(tmp_path / "log", "a") as file:
                    file.write(f"{what} ")

        with JobHarness(words("ok", "bad").map(Logged())) as job:
            with pytest.raises(UserFunctionFailed):
                job.epoch()
            (tmp_path / "repaired").touch()
            job.epoch()
            job.epoch()
            assert job.output == ["ok", "bad"]
        assert (tmp_path / "log").read_text().split() == ["open", "close", "open", "close"]

    def test_an_operator_whose_open_failed_is_not_closed_but_the_others_are(self, tmp_path):
        class Opens(MapFunction):
            def __init__(self, name):
                self.name = name

            def open(self, runtime_context):
                if self.name == "second":
                    raise LookupError("no model")

            def map(self, value):
                return value

            def close(self):
                (tmp_path / self.name).touch()

        stream = words().map(Opens("first")).map(Opens("second")).uid("second").map(Opens("third"))
        _, failure = failure_of(stream)
        assert failure.uid == "second"
        # Operators are opened last first, so that each finds its consumers ready: the first was never opened.
        assert [path.name for path in tmp_path.iterdir()] == ["third"]


class TestInfrastructureErrors:
    """The driver runs the epoch again after these errors, because that can help. A user's error ends the job."""

    @pytest.mark.parametrize("error", [Misaligned("lost"), EngineError("no space on disk")], ids=["shuffle", "replica"])
    def test_an_infrastructure_error_is_retried(self, error, monkeypatch):
        attempts = []

        def fails_twice(run, epoch):
            attempts.append(epoch.number)
            if len(attempts) < 3:
                raise error
            return snapshot(run, epoch)

        monkeypatch.setattr(task, "snapshot", fails_twice)
        with JobHarness(words("a").map(str)) as job:
            job.epoch()
            assert job.output == ["a"]
        assert attempts == [1, 1, 1]

    def test_a_repeated_infrastructure_error_ends_the_job_with_its_cause(self, monkeypatch):
        def fails(run, epoch):
            raise EngineError("no space on disk")

        monkeypatch.setattr(task, "snapshot", fails)
        with JobHarness(words("a").map(str)) as job, pytest.raises(EpochFailed, match=r"Epoch 1 .* no space on disk"):
            job.epoch()

    def test_a_user_error_is_not_retried(self):
        CALLS.clear()
        with JobHarness(words("a").map(fail)) as job, pytest.raises(UserFunctionFailed):
            job.epoch()
        assert CALLS == ["a"]


CALLS = []


def fail(word):
    CALLS.append(word)
    raise LookupError


def leave_noted(word):
    CALLS.append(word)
    sys.exit()
