"""Complete programs in the harness: the same results, state and output for any parallelism, epochs and crashes."""

import gc
import pickle
from collections import Counter
from decimal import Decimal

import pytest

from penstock.checkpoint.manifest import Fenced
from penstock.common import Row, Types
from penstock.datastream import (
    KeyedProcessFunction,
    MapFunction,
    ReduceFunction,
    StreamExecutionEnvironment,
)
from penstock.datastream.connectors import Sink, SinkWriter, Source
from penstock.datastream.state import ListStateDescriptor, ValueStateDescriptor
from penstock.driver.epoch_errors import UserFunctionFailed
from penstock.errors import PenstockError
from penstock.runtime.operators import Operator
from penstock.runtime.rows import BARRIER, DATA
from penstock.runtime.task import Task
from penstock.state.engines import lmdb as lmdb_module
from penstock.state.engines import memory as memory_module
from penstock.state.local_storage import LocalStorage
from penstock.state.serializers import serializer_for
from penstock.testing import JobHarness, keyed_harness

BACKENDS = ["memory", "filesystem"]


@pytest.fixture
def env():
    return StreamExecutionEnvironment.get_execution_environment()


class Count(KeyedProcessFunction):
    """Emits (key, running count) for every record."""

    def open(self, runtime_context):
        self.n = runtime_context.get_state(ValueStateDescriptor("n", int))

    def process_element(self, value, ctx):
        n = (self.n.value() or 0) + 1
        self.n.update(n)
        yield ctx.get_current_key(), n


class Sum(KeyedProcessFunction):
    """Emits (key, running sum) over the second field."""

    def open(self, runtime_context):
        self.total = runtime_context.get_state(ValueStateDescriptor("total", int))

    def process_element(self, value, ctx):
        total = (self.total.value() or 0) + value[1]
        self.total.update(total)
        yield ctx.get_current_key(), total


def letters(number, seed):
    return [f"{'abcdefg'[i * seed % 7]}{i * i * seed % 31}" for i in range(number)]


LEFT, RIGHT = letters(200, 3), letters(100, 5)


def two_stages(env):
    """Count the words of two sources, then sum the counts by first letter."""
    left, right = env.from_collection(LEFT).uid("left"), env.from_collection(RIGHT).uid("right")
    counted = left.union(right.map(str.lower).uid("lower")).key_by(lambda word: word).process(Count()).uid("count")
    return counted.key_by(lambda pair: pair[0][0]).process(Sum()).uid("sum")


def oracle():
    """Return the final states of `two_stages`: counts by word, sums by letter."""
    counts = Counter(LEFT + RIGHT)
    sums = Counter()
    for word, n in counts.items():
        sums[word[0]] += n * (n + 1) // 2
    return dict(counts), dict(sums)


def states_of(job):
    return job.states("n", operator="count"), job.states("total", operator="sum")


class TestTheSameResults:
    """Two keyed stages and a union of two sources."""

    @pytest.mark.parametrize("backend", BACKENDS)
    @pytest.mark.parametrize("per_epoch", [None, 4], ids=["1 epoch", "50 epochs"])
    @pytest.mark.parametrize("parallelism", [1, 2, 5])
    def test_results_do_not_depend_on_parallelism_epochs_or_backend(self, env, parallelism, per_epoch, backend):
        # Counts of a letter's words arrive in no fixed order, so the running sums vary. The counts and the last (and
        # largest) sum of each letter do not.
        with JobHarness(two_stages(env), parallelism=parallelism, backend=backend) as job:
            output = job.run(per_epoch)
            assert job.epochs_run == (2 if per_epoch is None else 51)
            assert states_of(job) == oracle()
        assert len(output) == 300
        assert {letter: max(n for key, n in output if key == letter) for letter, _ in output} == oracle()[1]

    @pytest.mark.parametrize("backend", BACKENDS)
    def test_the_complete_output_is_the_same_multiset(self, backend):
        """With sums that do not depend on the order between words, the complete output is the same."""
        outputs = []
        for parallelism in (1, 2, 5):
            for per_epoch in (None, 4):
                env = StreamExecutionEnvironment.get_execution_environment()
                words = env.from_collection(LEFT).union(env.from_collection(RIGHT))
                counted = words.key_by(lambda word: word).process(Count()).uid("count")
                # Keyed by count, all records of a key are equal, so any order yields the same running sums.
                stream = counted.key_by(lambda pair: pair[1]).process(Sum()).uid("sum")
                with JobHarness(stream, parallelism=parallelism, backend=backend) as job:
                    outputs.append(Counter(job.run(per_epoch)))
        assert all(output == outputs[0] for output in outputs)
        assert outputs[0].total() == 300

    def test_results_do_not_depend_on_input_partitions(self, env):
        with JobHarness(two_stages(env), parallelism=2) as job:
            for source in ("left", "right"):
                job.set_partitions(3, source=source)
            job.run(10)
            assert states_of(job) == oracle()

    def test_results_do_not_depend_on_chaining(self, env):
        env.disable_operator_chaining()
        with JobHarness(two_stages(env), parallelism=3) as job:
            job.run(50)
            assert states_of(job) == oracle()

    @pytest.mark.parametrize("backend", BACKENDS)
    def test_results_survive_the_loss_of_replicas(self, env, backend):
        with JobHarness(two_stages(env), parallelism=2, backend=backend) as job:
            for _ in range(20):
                job.epoch(10)
                job.lose_replicas()
            assert states_of(job) == oracle()

    @pytest.mark.parametrize(("before", "after"), [(4, 2), (2, 4), (1, 5), (15, 77), (77, 15)])
    def test_results_survive_a_change_of_parallelism(self, before, after):
        """42 keys with 1000 records each, then 500 more each at another parallelism."""

        def stream():
            env = StreamExecutionEnvironment.get_execution_environment()
            return env.from_collection([]).uid("numbers").key_by(lambda pair: pair[0]).process(Sum()).uid("sum")

        with JobHarness(stream(), parallelism=before, max_parallelism=128) as job:
            job.push(*((key, key * 100) for key in range(42) for _ in range(10))).epochs(100)
            assert job.states("total") == {key: key * 1000 for key in range(42)}
            with JobHarness(stream(), parallelism=after, max_parallelism=128, storage=job.storage) as rescaled:
                rescaled.push(*((key, key * 100) for key in range(42) for _ in range(5))).epochs(100)
                assert rescaled.states("total") == {key: key * 1500 for key in range(42)}
                with pytest.raises(Fenced):
                    job.push((1, 1)).epoch()


def without(rows, place):
    return [*rows[:place], *rows[place + 1 :]]


class TestWhatTheShuffleLoses:
    """Rows are damaged on their way to the second level, in the first attempt of an epoch."""

    @pytest.mark.parametrize(
        "harm",
        [
            lambda rows: without(rows, [row.kind for row in rows].index(DATA)),
            lambda rows: without(rows, [row.kind for row in rows].index(BARRIER)),
            lambda rows: [*rows, rows[[row.kind for row in rows].index(DATA)]],
            lambda rows: [*rows, rows[[row.kind for row in rows].index(BARRIER)]],
            # All rows of a source partition: tasks cannot notice the loss, but the coordinator counts them.
            lambda rows: [row for row in rows if row.channel != rows[0].channel or row.kind not in (DATA, BARRIER)],
        ],
        ids=["lost buffer", "lost barrier", "duplicate buffer", "duplicate barrier", "lost channel"],
    )
    def test_lost_or_duplicate_rows_are_detected_and_the_epoch_is_retried(self, env, harm, monkeypatch):
        harmed = []

        def over_rows(task, epoch, rows):
            if epoch.number == 2 and not harmed:
                rows = list(rows)
                harmed.append(harm(rows) != rows)
                rows = harm(rows)
            return whole(task, epoch, rows)

        whole = Task.over_rows
        monkeypatch.setattr(Task, "over_rows", over_rows)
        with JobHarness(two_stages(env), parallelism=2) as job:
            job.set_partitions(2, source="left")
            job.run(60)
            assert harmed == [True]
            assert states_of(job) == oracle()
            assert len(job.output) == 300


CALLS = []


def counted(word):
    CALLS.append(word)
    return word


def test_an_operator_that_feeds_two_others_runs_once_per_record(env):
    CALLS.clear()
    shared = env.from_collection(LEFT).map(counted).uid("shared")
    by_word = shared.key_by(lambda word: word).process(Count()).uid("words")
    by_letter = shared.key_by(lambda word: word[0]).process(Count()).uid("letters")
    stream = by_word.union(by_letter).map(lambda pair: pair)
    with JobHarness(stream, parallelism=2) as job:
        job.run(20)
        assert job.states("n", operator="words") == dict(Counter(LEFT))
        assert job.states("n", operator="letters") == dict(Counter(word[0] for word in LEFT))
        assert len(job.output) == 2 * len(LEFT)
    assert CALLS == LEFT


class Ledger(Sink):
    """A durable sink. Each subtask writes one page per epoch, and committing a page again is idempotent."""

    def __init__(self):
        self.pages = {}
        self.commits = 0

    def __getstate__(self):
        return {}

    def create_writer(self, context):
        return PageWriter()

    def commit(self, commits, context):
        self.commits += len(commits)
        for commit in commits:
            page = pickle.loads(commit.payload)
            assert self.pages.setdefault((commit.epoch, commit.subtask), page) == page

    @property
    def records(self):
        return [record for page in self.pages.values() for record in page]


class PageWriter(SinkWriter):
    def __init__(self):
        self.page = []

    def write(self, value):
        self.page.append(value)

    def prepare_commit(self):
        page, self.page = self.page, []
        return pickle.dumps(page) if page else None


POINTS = [
    *(f"source.{point}" for point in ("processed", "snapshot", "reported")),
    *(f"level{level}.{point}" for level in (1, 2) for point in ("received", "processed", "snapshot", "reported")),
    *(f"driver.{point}" for point in ("triggered", "collected", "published", "committed")),
]


class TestCrashes:
    def job(self, env, backend):
        ledger = Ledger()
        two_stages(env).sink_to(ledger).uid("ledger")
        ledger.job = JobHarness(env, parallelism=2, backend=backend)
        return ledger.job, ledger

    @pytest.mark.parametrize("backend", BACKENDS)
    @pytest.mark.parametrize("point", POINTS)
    def test_a_crash_at_any_point_loses_and_duplicates_nothing(self, env, point, backend):
        job, ledger = self.job(env, backend)
        with job:
            for crashing in (True, False, True):
                if crashing:
                    job.crash_at(point)
                    assert job.epoch(40) is None
                job.epoch(40)
            job.run(40)
            assert states_of(job) == oracle()
        assert len(ledger.records) == 300
        assert {letter: max(n for key, n in ledger.records if key == letter) for letter in "abcdefg"} == oracle()[1]

    @pytest.mark.parametrize("point", POINTS)
    def test_a_crash_in_the_final_epoch_loses_and_duplicates_nothing(self, env, point):
        job, ledger = self.job(env, "memory")
        with job:
            job.epochs(60)
            before = len(ledger.records)
            job.crash_at(point)
            job.end()
            assert states_of(job) == oracle()
            assert len(ledger.records) == before == 300
            assert job._driver.last.ended

    def test_a_new_driver_commits_after_a_crash_between_manifest_and_sinks(self, env):
        job, ledger = self.job(env, "memory")
        with job:
            job.crash_at("driver.published")
            assert job.epoch() is None
            assert len(ledger.records) == 300, "the recovery commits without another epoch"
            assert job.checkpoint == 1

    def test_a_new_driver_commits_again_after_a_crash_behind_the_sinks(self, env):
        job, ledger = self.job(env, "memory")
        with job:
            job.crash_at("driver.committed")
            job.epoch()
            assert ledger.commits == 2 * len(ledger.pages)
            assert len(ledger.records) == 300

    @pytest.mark.parametrize("point", POINTS)
    def test_state_is_correct_after_a_crash_that_loses_collected_output(self, env, point):
        # Collected output is lost with a driver that dies after the manifest, like console output.
        with JobHarness(two_stages(env), parallelism=2) as job:
            job.crash_at(point)
            job.epoch(60)
            job.run(60)
            assert states_of(job) == oracle()
            lost = 120 if point == "driver.published" else 0
            assert len(job.output) == 300 - lost

    def test_a_crash_rolls_back_to_the_last_checkpoint(self, env):
        with keyed_harness(Count()) as job:
            job.push("a", "a").epoch()
            job.crash()
            assert job.states("n") == {"a": 2}
            job.push("a")
            job.crash_at("level1.snapshot")
            job.epoch()
            assert job.states("n") == {"a": 2}
            job.epoch()
            assert job.states("n") == {"a": 3}

    def test_a_crash_point_that_is_never_reached_is_an_error(self):
        with keyed_harness(Count()) as job:
            job.crash_at("level3.snapshot")
            with pytest.raises(
                PenstockError, match=r"the crash point 'level3.snapshot'. It reached only driver.triggered, so"
            ):
                job.push("a").epoch()


class Flush(Operator):
    """Passes records on, and at the end of input emits what it has seen."""

    def __init__(self, label, keyed=False):
        super().__init__()
        self.label = label
        self.keyed = keyed
        self.seen = []

    def process(self, value):
        self.seen.append(value)
        self.emit(value)

    def end_input(self):
        self.emit((self.label, list(self.seen)))


class ReadsStateAtTheEnd(Flush):
    def open(self, context, emit):
        super().open(context, emit)
        self.state = context.get_state(ValueStateDescriptor("n", int))

    def process(self, value):
        self.state.update(1)

    def end_input(self):
        self.state.value()


class TestTheEndOfInput:
    def test_the_end_of_input_flushes_operators_in_order(self, env):
        first = env.from_collection(["a"])._add("first", Flush("first"), None)
        second = first._add("second", Flush("second"), None)
        third = second.key_by(lambda value: 1)._add("third", Flush("third", keyed=True), None)
        with JobHarness(third) as job:
            output = job.run()
        from_first = ("first", ["a"])
        from_second = ("second", ["a", from_first])
        from_third = ("third", ["a", from_first, from_second])
        assert output == ["a", from_first, from_second, from_third]

    def test_the_end_of_input_arrives_once_after_the_last_record(self, env):
        with JobHarness(env.from_collection(["a", "b", "c"])._add("first", Flush("first"), None)) as job:
            assert job.run(1) == ["a", "b", "c", ("first", ["a", "b", "c"])]
            assert job.epochs_run == 4

    def test_the_end_of_input_reaches_subtasks_without_records(self, env):
        flushing = env.from_collection(["a"])._add("flush", Flush("flush"), None).set_parallelism(3)
        with JobHarness(flushing) as job:
            output = job.run()
        assert sorted(record for record in output if record != "a") == [("flush", []), ("flush", []), ("flush", ["a"])]

    def test_the_end_of_input_reaches_a_program_without_records(self, env):
        with JobHarness(env.from_collection([])._add("flush", Flush("flush"), None)) as job:
            assert job.run() == [("flush", [])]

    def test_the_end_of_input_has_no_current_key(self, env):
        # Not even the key of a record that the preceding operator emitted at its end in the same epoch.
        before = env.from_collection(["a"])._add("before", Flush("before"), None)
        stream = before.key_by(lambda value: 1)._add("end", ReadsStateAtTheEnd("end", keyed=True), None)
        with JobHarness(stream) as job, pytest.raises(UserFunctionFailed, match="State 'n' was used without a current"):
            job.run()


class TestKeys:
    """The table of docs/write/keys.md, through exchanges, key groups and state."""

    np = pytest.importorskip("numpy")
    NAN = float("nan")
    CLASSES = {
        "int": [1, np.int64(1), np.uint8(1)],
        "float": [1.0, np.float64(1.0)],
        "bool": [True, np.bool_(True)],
        "tuple": [(1,), (np.int64(1),)],
        "none": [None],
        "nan": [NAN, float("-nan"), np.float64("nan")],
        "text": ["1"],
        "decimal": [Decimal("1"), Decimal("1.00")],
    }

    @pytest.mark.parametrize("backend", BACKENDS)
    @pytest.mark.parametrize("parallelism", [1, 3])
    @pytest.mark.parametrize("per_epoch", [None, 1], ids=["1 epoch", "an epoch each"])
    def test_keys_are_equal_or_different_as_documented(self, backend, parallelism, per_epoch):
        records = [(name, key) for name, keys in self.CLASSES.items() for key in keys]
        options = {"key": lambda record: record[1], "backend": backend, "parallelism": parallelism}
        with keyed_harness(Named(), **options) as job:
            job.push(*records).run(per_epoch)
            counts = Counter()
            for name, n in job.output:
                counts[name] = max(counts[name], n)
            # Every record of an equivalence class incremented the same count, and no other record did.
            assert counts == {name: len(keys) for name, keys in self.CLASSES.items()}
            for name, keys in self.CLASSES.items():
                assert [job.state("n", key) for key in keys] == [len(keys)] * len(keys), name
            with pytest.raises(PenstockError, match="8 keys of 'n' are equal in Python, such as 1 and True"):
                job.states("n")

    def test_keys_return_as_python_objects(self):
        with keyed_harness(Count(), key=lambda value: value) as job:
            job.push(self.np.int64(1), (self.np.float64(2.5), "x"), None).epoch()
            keys = [key for key, _ in job.output]
        assert [(type(key), key) for key in keys] == [(int, 1), (tuple, (2.5, "x")), (type(None), None)]
        assert type(keys[1][0]) is float

    @pytest.mark.parametrize("backend", BACKENDS)
    @pytest.mark.parametrize(("key", "advice"), [({"id": 1}, "lambda r: r"), ({1}, "sorted tuple")])
    def test_mutable_keys_are_refused_with_advice(self, key, advice, backend):
        with keyed_harness(Count(), key=lambda value: value, backend=backend) as job:
            with pytest.raises(
                UserFunctionFailed, match=rf"(?s)key selector of Keyed Process.*cannot be a key.*{advice}"
            ):
                job.push(key).epoch()
            assert job.checkpoint == 0

    def test_keys_are_converted_to_their_declared_type(self, env):
        stream = env.from_collection([[1], (1,)]).key_by(lambda value: value, key_type=Types.TUPLE([Types.LONG()]))
        with JobHarness(stream.process(Count())) as job:
            assert job.run() == [((1,), 1), ((1,), 2)]


class Named(Count):
    def process_element(self, value, ctx):
        for _, n in super().process_element(value, ctx):
            yield value[0], n


class Remember(KeyedProcessFunction):
    """Adds to a list of any length and reads its first element."""

    def open(self, runtime_context):
        self.items = runtime_context.get_list_state(ListStateDescriptor("items", list[int]))

    def process_element(self, value, ctx):
        if type(value[1]) is range:
            self.items.add_all([[number] for number in value[1]])
        else:
            self.items.add([value[1]])
            next(iter(self.items.get()))


class Counting:
    """Counts the calls to the serializer and the engines."""

    def __init__(self, monkeypatch):
        self.encoded = self.decoded = self.scans = self.scanned = self.gets = 0
        serializer = serializer_for(list[int])
        encode, decode = serializer.encode, serializer.decode

        def counting_encode(value):
            self.encoded += 1
            return encode(value)

        def counting_decode(data):
            self.decoded += 1
            return decode(data)

        monkeypatch.setattr(serializer, "encode", counting_encode)
        monkeypatch.setattr(serializer, "decode", counting_decode)
        for reader in (memory_module._MemoryReader, lmdb_module._LmdbReader):
            monkeypatch.setattr(reader, "scan", self.counting_scan(reader.scan))

    def counting_scan(self, scan):
        def counting(reader, prefix):
            self.scans += 1
            for entry in scan(reader, prefix):
                self.scanned += 1
                yield entry

        return counting


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_hot_key_and_long_lists_take_linear_time(backend, monkeypatch):
    """100,000 records, 90 % of them for one key, with lists of 10,000 entries: work grows linearly with the input."""
    keys, entries, per_epoch = 10, 10_000, 10_000
    work = {}
    for records in (50_000, 100_000):
        with monkeypatch.context() as patch, keyed_harness(Remember(), key=lambda r: r[0], backend=backend) as job:
            counting = Counting(patch)
            job.push(*((key, range(entries)) for key in range(keys))).epoch()
            assert counting.encoded == keys * entries
            # Nine of ten records have key 0, the rest rotate through the other keys.
            job.push(*((0 if number % 10 else 1 + number // 10 % (keys - 1), number) for number in range(records)))
            deltas = [statistics.delta_entries for statistics in iter(lambda: next_epoch(job, per_epoch), None)]
            epochs = records // per_epoch
            # Each element is encoded once, when it is added, and decoded when it is read.
            assert counting.encoded == keys * entries + records
            assert counting.decoded == records
            # Each epoch reads a key's list once, in chunks: one for each epoch in which the list grew.
            assert counting.scans == epochs * keys
            assert counting.scanned == keys * sum(range(1, epochs + 1))
            assert deltas == [keys] * epochs
            assert len(job.state("items", 0)) == entries + records * 9 // 10
            work[records] = counting.encoded + counting.decoded
    assert work[100_000] <= 2 * work[50_000]


def next_epoch(job, records):
    return job.epoch(records) if job._feed.waiting(next(iter(job._feed.logs))) else None


class Concatenate(ReduceFunction):
    def reduce(self, value1, value2):
        return value1[0] + value2[0], value2[1]


class TestRolling:
    """As in PyFlink, each record has one result, and the other fields are those of the first record."""

    def run(self, env, records, apply, key=lambda record: record[0], type_info=None, per_epoch=None):
        with JobHarness(apply(env.from_collection(records, type_info).key_by(key))) as job:
            return job.run(per_epoch)

    @pytest.mark.parametrize("per_epoch", [None, 1])
    def test_a_rolling_reduce_emits_one_result_per_record(self, env, per_epoch):
        records = [("a", 0), ("c", 1), ("d", 1), ("b", 0), ("e", 1)]
        output = self.run(
            env, records, lambda keyed: keyed.reduce(Concatenate()), lambda record: record[1], per_epoch=per_epoch
        )
        assert [text for text, key in output if key == 0] == ["a", "ab"]
        assert [text for text, key in output if key == 1] == ["c", "cd", "cde"]
        assert [text for text, _ in output] == ["a", "c", "cd", "ab", "cde"]

    def test_a_rolling_reduce_accepts_a_plain_function_and_a_declared_type(self, env):
        declared = Types.TUPLE([Types.STRING(), Types.INT()])
        output = self.run(
            env, [("a", 1), ("a", 2)], lambda keyed: keyed.reduce(lambda x, y: (x[0], x[1] + y[1])), type_info=declared
        )
        assert output == [("a", 1), ("a", 3)]

    @pytest.mark.parametrize("per_epoch", [None, 1])
    @pytest.mark.parametrize(
        ("method", "expected"), [("sum", [5, 7, 8, 4]), ("min", [5, 2, 1, 4]), ("max", [5, 5, 5, 4])]
    )
    def test_rolling_sum_min_and_max_change_only_their_field(self, env, method, expected, per_epoch):
        records = [("a", 5, "first"), ("a", 2, "second"), ("a", 1, "third"), ("b", 4, "other")]
        output = self.run(env, records, lambda keyed: getattr(keyed, method)(1), per_epoch=per_epoch)
        # min and max return the smallest and largest value, not the record that contains it.
        assert output == [(key, n, "other" if key == "b" else "first") for (key, _, _), n in zip(records, expected)]

    def test_rolling_aggregates_accept_lists(self, env):
        assert self.run(env, [["a", 1], ["a", 2]], lambda keyed: keyed.sum(1)) == [["a", 1], ["a", 3]]

    @pytest.mark.parametrize("position", [1, "n"])
    def test_rolling_aggregates_accept_rows_by_position_and_name(self, env, position):
        rows = [Row(key="a", n=1), Row(key="a", n=2)]
        assert self.run(env, rows, lambda keyed: keyed.sum(position)) == [Row(key="a", n=1), Row(key="a", n=3)]

    @pytest.mark.parametrize(
        "values", [[1, 2, 3], [1.5, 2.5, 3.0], [Decimal("0.1"), Decimal("0.2"), Decimal(3)], ["x", "y", "z"]], ids=str
    )
    def test_rolling_aggregates_accept_plain_values(self, env, values):
        output = self.run(env, values, lambda keyed: keyed.sum(), key=lambda value: "all")
        assert output == [values[0], values[0] + values[1], values[0] + values[1] + values[2]]
        assert self.run(env_again(), values, lambda keyed: keyed.max(), key=lambda value: 0) == values

    def test_a_rolling_aggregate_of_a_missing_field_fails(self, env):
        with pytest.raises(UserFunctionFailed, match=r"sum\('n'\) needs tuples.*a record of type int"):
            self.run(env, [1, 2], lambda keyed: keyed.sum("n"), key=lambda value: 0)

    def test_a_rolling_aggregate_refuses_an_invalid_field(self, env):
        with pytest.raises(PenstockError, match="sum needs the position or name of a field, not float"):
            env.from_collection([1]).key_by(lambda value: 0).sum(1.5)


def env_again():
    return StreamExecutionEnvironment.get_execution_environment()


class Where(MapFunction):
    def open(self, runtime_context):
        self.where = (
            runtime_context.get_task_name_with_subtasks(),
            runtime_context.get_index_of_this_subtask(),
            runtime_context.get_number_of_parallel_subtasks(),
            runtime_context.get_max_number_of_parallel_subtasks(),
        )

    def map(self, value):
        return self.where


class OpensLate(MapFunction):
    """Hides the call from the graph, so that it runs in a source's chain."""

    def open(self, runtime_context):
        getattr(runtime_context, "get_index_of_this_subtask")()  # noqa: B009

    def map(self, value):
        return value


class UpToNow(Source):
    """Numbers up to a limit that the test sets."""

    now = 0

    def advance(self, positions, limit):
        before = positions.get("all", 0)
        return {"all": max(before, min(self.now, before + (limit or 100)))}

    def read(self, split, start, end):
        return range(start or 0, end)


class TestTheHarness:
    def test_the_harness_runs_its_documented_example(self, env):
        job = JobHarness(env.from_collection([]).key_by(lambda v: v).process(Count()))
        job.push("a", "b", "a")
        job.epoch()
        assert job.output == [("a", 1), ("b", 1), ("a", 2)]
        job.close()

    def test_the_harness_resumes_from_the_last_checkpoint(self):
        with keyed_harness(Count()) as job:
            job.push("a", "b", "c")
            job.epoch(2)
            assert job.output == [("a", 1), ("b", 1)]
            assert job.checkpoint == 1
            job.epoch(2)
            assert job.output[2:] == [("c", 1)]

    def test_a_restarted_harness_reads_only_up_to_its_checkpoint(self, env, tmp_path):
        UpToNow.now = 100
        storage = LocalStorage(tmp_path)
        with JobHarness(env.from_source(UpToNow()), storage=storage) as job:
            job.epoch(20)
            job.epoch(20)
        again = StreamExecutionEnvironment.get_execution_environment()
        with JobHarness(again.from_source(UpToNow()), storage=storage) as job:
            UpToNow.now = 50
            assert job.run(20) == list(range(40, 50))

    def test_the_harness_accepts_a_plain_generator_function(self):
        def twice(value, context):
            yield value
            yield context.get_current_key()

        with keyed_harness(twice, key=len) as job:
            assert job.push("abc").run() == ["abc", 3]

    def test_the_harness_identifies_sources_by_uid_or_name(self, env):
        left, right = env.from_collection([]).uid("l"), env.from_collection([]).name("right")
        with JobHarness(left.union(right).map(str)) as job:
            job.push("a", source="l").push("b", source="right").epoch()
            assert sorted(job.output) == ["a", "b"]
            with pytest.raises(PenstockError, match=r"The program has 2 sources\. Pass source="):
                job.push("c")
            with pytest.raises(PenstockError, match="has no source 'x'"):
                job.push("c", source="x")

    def test_the_error_for_an_unknown_state_lists_the_known_ones(self, env):
        with JobHarness(two_stages(env)) as job:
            job.epoch()
            assert job.state("n", LEFT[0]) == oracle()[0][LEFT[0]]
            assert job.state("n", "never seen") is None
            with pytest.raises(PenstockError, match=r"0 operators hold a state 'm' \(known: .*'count': \['n'\]"):
                job.state("m", "a")

    def test_the_harness_refuses_an_ambiguous_state(self, env):
        words = env.from_collection(["a"])
        stream = words.key_by(len).process(Count()).uid("x").union(words.key_by(len).process(Count()).uid("y")).map(str)
        with JobHarness(stream) as job:
            job.epoch()
            with pytest.raises(PenstockError, match="2 operators hold a state 'n'"):
                job.state("n", 1)
            assert job.state("n", 1, operator="y") == 1

    def test_the_harness_returns_list_state_as_a_list(self):
        with keyed_harness(Remember(), key=lambda pair: pair[0]) as job:
            job.push(("a", range(3)), ("a", 7)).epoch()
            assert job.state("items", "a") == [[0], [1], [2], [7]]
            assert job.states("items") == {"a": [[0], [1], [2], [7]]}

    def test_the_harness_runs_functions_as_subtasks(self, env):
        with JobHarness(env.from_collection([0, 0]).map(Where()).name("where").set_parallelism(2)) as job:
            assert sorted(job.run()) == [("where (1/2)", 0, 2, 128), ("where (2/2)", 1, 2, 128)]

    def test_a_source_chain_has_no_subtask_index(self, env):
        message = r"'late' .* first chain of a source.*set_parallelism\(n\)"
        stream = env.from_collection([0]).map(OpensLate()).name("late")
        with JobHarness(stream) as job, pytest.raises(UserFunctionFailed, match=message):
            job.run()

    def test_the_harness_uses_the_settings_of_the_environment(self, env):
        env.set_parallelism(3).set_max_parallelism(64).disable_operator_chaining()
        with JobHarness(env.from_collection([1]).map(str).map(str)) as job:
            assert [(chain.parallelism, chain.max_parallelism) for chain in job._graph.chains[1:]] == [(3, 64)] * 3

    def test_records_of_a_declared_type_are_converted_as_in_an_exchange(self, env):
        with JobHarness(env.from_collection([1, 2], Types.DOUBLE()).map(lambda value: type(value).__name__)) as job:
            assert job.run() == ["float", "float"]

    def test_state_is_readable_right_after_a_crash(self):
        with keyed_harness(Count()) as job:
            job.push("a").epoch()
            job.crash()
            assert job.state("n", "a") == 1

    def test_a_uid_can_be_any_text(self, env):
        stream = env.from_collection(["a"]).key_by(len).process(Count()).uid("../a/b: " + "x" * 300)
        with JobHarness(stream, backend="filesystem") as job:
            job.run()
            assert job.states("n") == {1: 1}


class TestAStateWhoseTypeChanged:
    @pytest.mark.parametrize("backend", ["memory", "filesystem"])
    def test_a_changed_state_type_is_refused_before_any_record_is_processed(self, backend):
        def remember(kind):
            class Remember(KeyedProcessFunction):
                def open(self, runtime_context):
                    self.last = runtime_context.get_state(ValueStateDescriptor("last", kind))

                def process_element(self, value, ctx):
                    assert kind is int, "a record was processed"
                    self.last.update(value)

            return Remember()

        with keyed_harness(remember(int), backend=backend) as before:
            before.push(1, 2)
            before.epoch()
            with keyed_harness(remember(str), backend=backend, storage=before.storage) as after:
                after.push(1, 2, 3)
                with pytest.raises(PenstockError, match=r"State 'last' of operator .* is stored as 'value long'"):
                    after.epoch()


class Last(KeyedProcessFunction):
    def open(self, runtime_context):
        self.last = runtime_context.get_state(ValueStateDescriptor("last", int))

    def process_element(self, value, ctx):
        self.last.update(value)


def test_checkpoints_outlive_their_harness_for_the_next_one():
    job = keyed_harness(Last(), backend="filesystem")
    job.push(1).epoch()
    storage = job.storage
    del job
    gc.collect()
    with keyed_harness(Last(), backend="filesystem", storage=storage) as after:
        assert after.state("last", 1) == 1
