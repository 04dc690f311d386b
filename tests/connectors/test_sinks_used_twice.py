"""One sink object at the end of two streams: each operator commits its own records after any failure."""

import json

import psycopg
import pytest
from files_helpers import lines
from test_kafka_sink import numbers as in_topic
from test_kafka_sink import sink_to, to_topic
from test_two_phase_commit import Renamed, committed, unfinished

from penstock.common.serialization import Encoder
from penstock.common.typeinfo import Types
from penstock.connectors.two_phase import TwoPhaseCommitSink
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors import CheckpointCommitter, GenericWriteAheadSink, Sink, SinkWriter
from penstock.datastream.connectors.file_system import FileSink
from penstock.datastream.connectors.postgres import PostgresSink
from penstock.datastream.connectors.redis import RedisSink
from penstock.driver.epoch_settings import Settings
from penstock.errors import PenstockError
from penstock.state.local_storage import LocalStorage
from penstock.testing import JobHarness

FILES = Settings(inline_bytes=0, asynchronous=False)
POINTS = [f"driver.{point}" for point in ("triggered", "collected", "published", "committed")]
NUMBERS = range(40)


@pytest.fixture(params=["memory", "files"])
def storage(request, tmp_path):
    return None if request.param == "memory" else LocalStorage(tmp_path / "checkpoints")


def job(sink, behind_exchange=False, **options):
    """Return a job with even numbers in operator `even`, odd ones in `odd`; both use the same sink object."""
    env = StreamExecutionEnvironment.get_execution_environment()
    numbers = env.from_collection(NUMBERS).uid("numbers")
    if behind_exchange:
        numbers = numbers.rebalance()
    numbers.filter(lambda n: n % 2 == 0).uid("only even").sink_to(sink).uid("even")
    numbers.filter(lambda n: n % 2 == 1).uid("only odd").sink_to(sink).uid("odd")
    return JobHarness(env, settings=FILES, **options)


def run_with_a_crash(sink, point, **options):
    with job(sink, **options) as harness:
        harness.epoch(10)
        harness.crash_at(point)
        harness.epoch(10)
        harness.run(10)


class Shelf(Sink):
    """Stores epochs by operator uid and epoch number, and skips those it already has."""

    def __init__(self):
        self.epochs = {}

    def __getstate__(self):
        return {}

    def create_writer(self, context):
        return ShelfWriter()

    def commit(self, commits, context):
        for commit in commits:
            self.epochs.setdefault((context.uid, commit.epoch, commit.subtask), json.loads(commit.payload))

    def of(self, uid):
        return sorted(n for (whose, *_), numbers in self.epochs.items() if whose == uid for n in numbers)


class ShelfWriter(SinkWriter):
    def begin_epoch(self, epoch):
        self.numbers = []

    def write(self, value):
        self.numbers.append(value)

    def prepare_commit(self):
        return json.dumps(self.numbers).encode()


class ByOperator(CheckpointCommitter):
    """Remembers the last epoch of each operator and subtask."""

    def __init__(self):
        self.last = {}
        self.calls = []

    def open(self):
        self.calls.append(f"open {self.operator_id}")

    def close(self):
        self.calls.append(f"close {self.operator_id}")

    def commit_checkpoint(self, subtask_idx, checkpoint_id):
        self.last[self.job_id, self.operator_id, subtask_idx] = checkpoint_id

    def is_checkpoint_committed(self, subtask_idx, checkpoint_id):
        return self.last.get((self.job_id, self.operator_id, subtask_idx), -1) >= checkpoint_id


class Mailbox(GenericWriteAheadSink):
    """`refuse`: how many times to return False, by epoch."""

    def __init__(self, refuse):
        super().__init__(ByOperator())
        self.refuse = refuse
        self.received = []

    def send_values(self, values, checkpoint_id, timestamp):
        values = list(values)
        if self.refuse.get(checkpoint_id):
            self.refuse[checkpoint_id] -= 1
            return False
        self.received += values
        return True


@pytest.mark.parametrize("point", POINTS)
def test_a_sink_that_keys_epochs_by_uid_stores_the_records_of_both_operators(point, storage):
    shelf = Shelf()
    run_with_a_crash(shelf, point, storage=storage)
    assert shelf.of("even") == [n for n in NUMBERS if n % 2 == 0]
    assert shelf.of("odd") == [n for n in NUMBERS if n % 2 == 1]


@pytest.mark.parametrize("refuse", [{}, {1: 1}, {2: 3}])
@pytest.mark.parametrize("point", POINTS)
def test_a_write_ahead_sink_sends_the_records_of_both_operators_once(point, refuse, storage):
    mailbox = Mailbox(dict(refuse))
    run_with_a_crash(mailbox, point, storage=storage)
    assert sorted(mailbox.received) == list(NUMBERS)


def test_a_committer_is_opened_for_one_operator_at_a_time():
    mailbox = Mailbox({})
    with job(mailbox) as harness:
        harness.epoch(10)
    assert mailbox.committer.calls == ["open even", "close even", "open odd", "close odd"]


def test_a_write_ahead_sink_rejects_streams_of_different_types():
    env = StreamExecutionEnvironment.get_execution_environment()
    mailbox = Mailbox({})
    env.from_collection([1], Types.INT()).sink_to(mailbox)
    env.from_collection([2], Types.INT()).sink_to(mailbox)
    with pytest.raises(PenstockError, match=r"Mailbox receives streams of different types.*type_info="):
        env.from_collection(["a"], Types.STRING()).sink_to(mailbox)


@pytest.mark.parametrize("point", POINTS)
def test_a_two_phase_sink_commits_the_transactions_of_both_operators(point, storage, tmp_path):
    target = tmp_path / "target"
    target.mkdir()
    run_with_a_crash(TwoPhaseCommitSink(Renamed(target)), point, storage=storage)
    assert committed(target) == list(NUMBERS)
    if storage is not None:
        assert unfinished(target) == []


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("point", POINTS)
def test_a_redis_sink_sends_the_commands_of_both_operators_once(point, late, redis_server):
    run_with_a_crash(RedisSink(redis_server.url, lambda n: ("RPUSH", "numbers", n)), point, commits_late=late)
    assert sorted(int(n) for n in redis_server.client().lrange("numbers", 0, -1)) == list(NUMBERS)


def test_a_redis_sink_keeps_equal_commands_of_two_operators_apart(redis_server):
    env = StreamExecutionEnvironment.get_execution_environment()
    numbers = env.from_collection(NUMBERS).uid("numbers")
    sink = RedisSink(redis_server.url, lambda n: ("INCRBY", "sum", n))
    numbers.sink_to(sink).uid("one")
    numbers.sink_to(sink).uid("other")
    with JobHarness(env) as harness:
        harness.run(10)
    assert int(redis_server.client().get("sum")) == 2 * sum(NUMBERS)


def test_a_restarted_program_commits_the_published_records_of_both_operators(tmp_path):
    storage, shelf = LocalStorage(tmp_path / "checkpoints"), Shelf()
    first = job(shelf, storage=storage)
    first.epoch(10)
    first.crash_at("driver.published")
    first.epoch(10)
    with job(shelf, storage=storage) as second:
        second.run(10)
    assert shelf.of("even") == [n for n in NUMBERS if n % 2 == 0]
    assert shelf.of("odd") == [n for n in NUMBERS if n % 2 == 1]


@pytest.mark.parametrize("point", POINTS)
def test_a_file_sink_commits_the_files_of_both_operators(point, storage, tmp_path):
    base = str(tmp_path / "out")
    run_with_a_crash(FileSink.for_row_format(base, Encoder.simple_string_encoder()).build(), point, storage=storage)
    assert sorted(map(int, lines(base))) == list(NUMBERS)


@pytest.mark.parametrize("point", POINTS)
def test_a_kafka_sink_sends_the_messages_of_both_operators_once(point, kafka):
    topic = kafka.topic()
    run_with_a_crash(sink_to(kafka, to_topic(topic)), point)
    assert in_topic(kafka, topic) == list(NUMBERS)


@pytest.mark.parametrize("point", POINTS)
def test_a_postgres_sink_writes_the_rows_of_both_operators_once(point, postgres):
    with psycopg.connect(postgres, autocommit=True) as db:
        db.execute("CREATE TABLE numbers (n int)")
        env = StreamExecutionEnvironment.get_execution_environment()
        numbers = env.from_collection([(n,) for n in NUMBERS]).uid("numbers")
        sink = PostgresSink(postgres, "numbers")
        numbers.filter(lambda row: row[0] % 2 == 0).uid("only even").sink_to(sink).uid("even")
        numbers.filter(lambda row: row[0] % 2 == 1).uid("only odd").sink_to(sink).uid("odd")
        with JobHarness(env) as harness:
            harness.epoch(10)
            harness.crash_at(point)
            harness.epoch(10)
            harness.run(10)
        assert sorted(n for (n,) in db.execute("SELECT n FROM numbers")) == list(NUMBERS)


@pytest.mark.parametrize("make", [Shelf, lambda: Mailbox({2: 1, 4: 2})], ids=["ledger", "write-ahead"])
def test_both_operators_keep_their_records_across_a_crash_a_rescale_and_a_savepoint(make, tmp_path):
    sink = make()
    with job(sink, behind_exchange=True, parallelism=2, storage=LocalStorage(tmp_path / "before")) as harness:
        harness.epoch(10)
        harness.rescale(3)
        harness.crash_at("driver.published")
        harness.epoch(5)
        harness.epoch(5)
        savepoint = harness.stop_with_savepoint(tmp_path / "savepoints")
    restored = {"storage": LocalStorage(tmp_path / "after"), "from_savepoint": savepoint}
    with job(sink, behind_exchange=True, parallelism=1, **restored) as harness:
        harness.epoch(5)
        harness.rescale(2)
        harness.crash_at("driver.published")
        harness.epoch(5)
        harness.run(10)
    received = sink.received if isinstance(sink, Mailbox) else sink.of("even") + sink.of("odd")
    assert sorted(received) == list(NUMBERS)


def test_a_job_does_not_modify_the_sink_object():
    shelf = Shelf()
    before = dict(vars(shelf))
    with job(shelf) as harness:
        harness.epoch(10)
    assert vars(shelf) == before
