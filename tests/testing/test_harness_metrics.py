"""Metrics of functions and exchanges in the harness: completed epochs count once."""

import gc
import socket

import pytest

from penstock.datastream import KeyedProcessFunction, MapFunction, StreamExecutionEnvironment
from penstock.datastream.connectors import DiscardingSink
from penstock.driver.epoch_errors import UserFunctionFailed
from penstock.errors import PenstockError
from penstock.metrics import Counter, Distribution, DistributionValue, Meter, MetricGroup
from penstock.runtime.metrics import TaskMetrics
from penstock.runtime.task_epoch import TaskEpoch
from penstock.testing import JobHarness

WORDS = ["a", "bb", "a", "ccc", "dd", "a", "eeee"]


@pytest.fixture
def env():
    return StreamExecutionEnvironment.get_execution_environment()


class Measure(KeyedProcessFunction):
    """Passes words on and measures them with every kind of metric."""

    def open(self, runtime_context):
        group = runtime_context.get_metrics_group()
        self.seen = group.counter("seen")
        self.long = group.add_group("size").add_group("kind", "long").counter("seen")
        self.rate = group.meter("rate", time_span_in_seconds=3600)
        self.lengths = group.distribution("lengths")
        self.last = 0
        group.gauge("last", lambda: self.last)

    def process_element(self, word, ctx):
        self.seen.inc()
        if len(word) > 2:
            self.long.inc(len(word))
            self.long.dec()
        self.rate.mark_event(2)
        self.lengths.update(len(word))
        self.last = len(word)
        yield word


class CountMap(MapFunction):
    """Counts its calls."""

    def open(self, runtime_context):
        self.calls = runtime_context.get_metrics_group().counter("calls")

    def map(self, value):
        self.calls.inc()
        return value


def measured(env, **options):
    stream = env.from_collection([]).uid("words").key_by(lambda word: word).process(Measure()).name("Measure it")
    return JobHarness(stream.uid("measure"), **options)


@pytest.mark.parametrize("parallelism", [1, 3])
def test_all_kinds_of_metrics_aggregate_over_epochs_and_subtasks(env, parallelism):
    with measured(env, parallelism=parallelism) as job:
        job.push(*WORDS).epochs(records=2)
        metrics = job.metrics()
        assert metrics.epoch == 4
        assert metrics["measure.seen"] == len(WORDS)
        assert metrics["measure.size.kind.long.seen"] == 2 + 3
        assert metrics["measure.lengths"] == DistributionValue(7, 14, 1, 4)
        assert metrics["measure.lengths"].mean == 2.0
        assert metrics["measure.rate"].count == 2 * len(WORDS)
        assert metrics["measure.rate"].rate == pytest.approx(2 * len(WORDS) / 3600)
        assert set(metrics["measure.last"]) == set(range(parallelism))
        assert 4 in metrics["measure.last"].values()
        by_subtask = metrics.subtasks("measure.seen")
        assert set(by_subtask) == set(range(parallelism))
        assert sum(by_subtask.values()) == len(WORDS)


def test_the_metrics_of_the_last_epoch_can_be_read_separately(env):
    with measured(env, parallelism=2) as job:
        job.push("a", "bb", "ccc").epoch()
        job.push("dddd").epoch()
        last = job.metrics().last_epoch
        assert last["measure.seen"] == 1
        assert last["measure.rate"] == 2
        assert last["measure.lengths"] == DistributionValue(1, 4, 4, 4)
        assert last["words.numRecordsIn"] == 1
        job.epoch()
        assert job.metrics().last_epoch["measure.lengths"] == DistributionValue(0, 0, None, None)
        assert job.metrics()["measure.lengths"] == DistributionValue(4, 10, 1, 4)


def test_a_metrics_reading_does_not_change_later(env):
    with measured(env) as job:
        job.push("a").epoch()
        before = job.metrics()
        job.push("a").epoch()
        assert (before.epoch, before["measure.seen"]) == (1, 1)
        assert (before.subtasks("measure.seen"), before["measure.last"]) == ({0: 1}, {0: 1})


def test_metrics_are_empty_before_the_first_epoch(env):
    with measured(env) as job:
        assert (job.metrics().epoch, dict(job.metrics())) == (0, {})


def test_metrics_of_an_operator_are_found_by_uid_or_name(env):
    with measured(env) as job:
        job.push("a").epoch()
        metrics = job.metrics()
        assert metrics.of("Measure it") == metrics.of("measure")
        assert metrics.of("measure")["size.kind.long.seen"] == 0
        with pytest.raises(PenstockError, match=r"0 operators are named 'else'.*'Measure it' \(uid 'measure'\)"):
            metrics.of("else")


@pytest.mark.parametrize("partitions", [1, 3])
def test_chained_operators_of_a_source_count_separately(env, partitions):
    stream = env.from_collection([]).uid("words")
    stream = stream.map(CountMap()).uid("first").filter(lambda word: word != "a").map(CountMap()).uid("second")
    with JobHarness(stream.key_by(len).map(CountMap()).uid("third").map(CountMap()).uid("fourth")) as job:
        job.set_partitions(partitions)
        job.push(*WORDS).epoch()
        job.push(*WORDS).epoch()
        counters = job.metrics().counters()
        assert [counters[f"{uid}.calls"] for uid in ("first", "second", "third", "fourth")] == [14, 8, 8, 8]
        assert set(job.metrics().subtasks("first.calls")) == set(range(partitions))
        assert counters["words.numRecordsIn"] == 14


def fail_once(job, monkeypatch, point):
    """Lose the next task that reaches `point`, as Spark does when a worker dies. The driver stays."""
    lost = []
    probe = job._engine._probe

    def lose(reached):
        probe(reached)
        if reached == point and not lost:
            lost.append(point)
            raise PenstockError("the worker is gone")

    monkeypatch.setattr(job._engine, "_probe", lose)
    return lost


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize(
    "point",
    ["source.snapshot", "source.reported", "level1.received", "level1.snapshot", "level1.reported"],
)
def test_a_retried_epoch_counts_once(env, monkeypatch, parallelism, point):
    stream = env.from_collection([]).uid("words").map(CountMap()).uid("first")
    stream = stream.key_by(lambda word: word).process(Measure()).uid("measure")
    with JobHarness(stream, parallelism=parallelism) as job:
        job.push(*WORDS).epoch()
        lost = fail_once(job, monkeypatch, point)
        job.push(*WORDS).epoch()
        assert lost == [point]
        job.push(*WORDS).epoch()
        metrics = job.metrics()
        assert metrics["first.calls"] == metrics["measure.seen"] == metrics["words.numRecordsIn"] == 3 * len(WORDS)
        assert metrics["measure.lengths"] == DistributionValue(21, 42, 1, 4)
        assert metrics["measure.rate"].count == 6 * len(WORDS)


def test_a_task_that_runs_twice_counts_once(env, monkeypatch):
    with measured(env, parallelism=3) as job:
        execute = job._driver.execute
        monkeypatch.setattr(job._driver, "execute", lambda parameters: [*(rows := execute(parameters)), *rows[-4:]])
        job.push(*WORDS).epoch()
        assert job.metrics()["measure.seen"] == job.metrics()["words.numRecordsOut"] == len(WORDS)


def test_measurements_of_earlier_epochs_are_released(env):
    gc.collect()
    of_others = held_metrics()
    with measured(env) as job:
        for _ in range(5):
            job.push("a").epoch()
        gc.collect()
        assert len(held_metrics()) == len(of_others)


def held_metrics():
    return [each for each in gc.get_objects() if isinstance(each, TaskMetrics)]


def test_a_failed_epoch_counts_nothing(env):
    class Fussy(CountMap):
        def map(self, value):
            if super().map(value) == "bad":
                raise ValueError("no")
            return value

    with JobHarness(env.from_collection([]).map(Fussy()).uid("fussy")) as job:
        job.push("a").epoch()
        job.push("a", "bad")
        with pytest.raises(UserFunctionFailed):
            job.epoch()
        assert job.metrics()["fussy.calls"] == 1


@pytest.mark.parametrize("point", ["level1.reported", "driver.collected", "driver.committed"])
def test_counters_restart_with_each_driver(env, point):
    with measured(env) as job:
        job.push("a", "a").epoch()
        job.crash_at(point)
        job.push("a", "a", "a").epoch()
        assert dict(job.metrics()) == {}
        job.push("a").epoch()
        # Unpublished records are read again; published ones belong to the previous driver.
        assert job.metrics()["measure.seen"] == (1 if point == "driver.committed" else 4)


def test_metrics_can_be_registered_at_any_time_and_twice(env):
    class Late(MapFunction):
        def open(self, runtime_context):
            self.context = runtime_context

        def map(self, word):
            group = self.context.get_metrics_group().add_group("word", word)
            assert isinstance(group, MetricGroup)
            group.counter("seen").inc()
            assert group.counter("seen").get_count() > 0
            assert isinstance(group.counter("seen"), Counter)
            assert isinstance(group.meter("rate"), Meter)
            assert isinstance(group.distribution("lengths"), Distribution)
            return word

    with JobHarness(env.from_collection([]).map(Late()).uid("late")) as job:
        job.push("a", "b", "a").epoch()
        job.push("a").epoch()
        assert (job.metrics()["late.word.a.seen"], job.metrics()["late.word.b.seen"]) == (3, 1)


def test_counts_made_in_open_belong_to_the_first_epoch(env):
    class Opened(MapFunction):
        def open(self, runtime_context):
            runtime_context.get_metrics_group().counter("opened").inc()

        def map(self, value):
            return value

    with JobHarness(env.from_collection([]).map(Opened()).uid("opened").set_parallelism(3)) as job:
        job.push("a").epoch()
        job.push("b").epoch()
        assert job.metrics()["opened.opened"] == 3


def test_numpy_numbers_are_accepted_as_metric_values(env):
    numpy = pytest.importorskip("numpy")

    class Numpy(MapFunction):
        def open(self, runtime_context):
            group = runtime_context.get_metrics_group()
            self.counter, self.distribution = group.counter("n"), group.distribution("d")
            group.gauge("g", lambda: numpy.float32(0.5))

        def map(self, value):
            self.counter.inc(numpy.int64(2))
            self.distribution.update(numpy.float64(1.5))
            return value

    with JobHarness(env.from_collection([]).map(Numpy()).uid("np").set_parallelism(1)) as job:
        job.push("a").epoch()
        assert job.metrics()["np.n"] == 2
        assert job.metrics()["np.d"] == DistributionValue(1, 1.5, 1.5, 1.5)
        assert job.metrics()["np.g"] == {0: 0.5}


def failure(env, register):
    class Registers(MapFunction):
        def open(self, runtime_context):
            register(runtime_context.get_metrics_group())

        def map(self, value):
            return value

    stream = env.from_collection([]).map(Registers()).name("Register").uid("reg")
    with JobHarness(stream) as job, pytest.raises(UserFunctionFailed) as caught:
        job.push("a").epoch()
    assert "Operator 'Register' (uid 'reg') failed in subtask 0 of epoch 1" in str(caught.value)
    return str(caught.value)


def test_a_metric_name_used_for_two_kinds_is_refused(env):
    def register(group):
        group.add_group("x").counter("n")
        group.add_group("x").meter("n")

    text = failure(env, register)
    assert (
        "Operator 'Register' (uid 'reg') registers 'x.n' as a meter, but it is already registered as a counter" in text
    )


@pytest.mark.parametrize(
    "register", [lambda group: group.counter("numRecordsIn"), lambda group: group.add_group("to").counter("n")]
)
def test_reserved_metric_names_are_refused(env, register):
    assert "is reserved for one of Penstock's own metrics" in failure(env, register)


def test_a_failing_gauge_fails_the_job_with_the_gauges_name(env):
    text = failure(env, lambda group: group.gauge("ratio", lambda: 1 // 0))
    assert "ZeroDivisionError" in text
    assert "while reading gauge 'ratio' at the end of the epoch" in text
    assert 'group.gauge("ratio", lambda: 1 // 0)' in text


@pytest.mark.parametrize(
    ("register", "words"),
    [
        (lambda group: group.gauge("g", lambda: "many"), "'many' is not a number"),
        (lambda group: group.gauge("g", lambda: 2**63), "is not an int of at most 64 bits"),
        (lambda group: group.gauge("g", 7), "gauge('g', …) needs a function that returns the value, not 7"),
        (lambda group: group.counter("c").inc(0.5), "0.5 is not an int of at most 64 bits"),
        (lambda group: group.meter("m", 0), "the time span must be positive"),
        (lambda group: group.counter(7), "names of metrics and groups are texts"),
        (lambda group: group.add_group("").counter("c"), "names of metrics and groups are texts"),
    ],
)
def test_the_error_for_an_invalid_metric_explains_it(env, register, words):
    assert words in failure(env, register)


def test_exchanges_report_records_buffers_bytes_and_fill(env):
    words = env.from_collection([]).uid("words")
    upper = words.map(str.upper).uid("upper")
    upper.key_by(lambda word: word).process(Measure()).uid("measure").sink_to(DiscardingSink()).uid("out")
    upper.broadcast().map(str.lower).uid("lower").sink_to(DiscardingSink()).uid("out2")
    with JobHarness(env, parallelism=2) as job:
        job.push(*(f"{number % 100}" * 100 for number in range(2000))).epoch()
        metrics = job.metrics()
        sent = metrics.of("upper")
        assert metrics["words.numRecordsIn"] == 2000
        assert metrics["measure.numRecordsIn"] == sent["to.measure.numRecordsOut"] == 2000
        assert metrics["lower.numRecordsIn"] == sent["to.lower.numRecordsOut"] == 4000
        for edge, least in (("to.measure.", 2000 * 100), ("to.lower.", 4000 * 100)):
            buffers, size = sent[f"{edge}numBuffersOut"], sent[f"{edge}numBytesOut"]
            assert size > least
            assert sent[f"{edge}bufferFill"] == size / (buffers * 32 * 1024)
        for name in ("numRecordsOut", "numBuffersOut", "numBytesOut"):
            assert sent[name] == sent[f"to.measure.{name}"] + sent[f"to.lower.{name}"]
        assert metrics.subtasks("measure.numRecordsIn").keys() == {0, 1}
        assert "out.numRecordsOut" not in metrics


def test_an_edge_that_sent_nothing_has_no_fill(env):
    with measured(env) as job:
        job.epoch()
        assert job.metrics()["words.bufferFill"] == 0


def test_a_job_without_metrics_sends_only_a_few_bytes_per_task(env, monkeypatch):
    sizes = []
    made = TaskEpoch.__init__

    def spy(self, metrics, **fields):
        made(self, metrics=lambda data: (sizes.append(len(data)), metrics(data)), **fields)

    monkeypatch.setattr(TaskEpoch, "__init__", spy)
    stream = env.from_collection([]).key_by(lambda word: word).map(len).key_by(lambda size: size).map(str)
    with JobHarness(stream, parallelism=2) as job:
        job.push(*WORDS * 100).epoch()
    assert len(sizes) == 5
    # With the heaviest keys, of which these words have few.
    assert max(sizes) < 115 + len(socket.gethostname())


def test_metrics_with_the_same_full_name_stay_separate(env):
    class Counted(MapFunction):
        def __init__(self, name, step):
            self.name, self.step = name, step

        def open(self, context):
            self.counter = context.get_metrics_group().counter(self.name)

        def map(self, value):
            self.counter.inc(self.step)
            return value

    stream = env.from_collection([1, 2]).uid("s").map(Counted("b.c", 1)).uid("a").map(Counted("c", 10)).uid("a.b")
    with JobHarness(stream) as job:
        job.run()
        assert job.metrics().of("a")["b.c"] == 2
        assert job.metrics().of("a.b")["c"] == 20
