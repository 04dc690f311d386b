"""Sinks on Spark: transactions of a user's system, and Spark writers through the write-ahead log."""

import os
import select
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest
from pyspark.sql.datasource import DataSource, DataSourceWriter, WriterCommitMessage

from penstock.common import Encoder, RestartStrategies, Row, Types
from penstock.connectors.two_phase import TwoPhaseCommitSink
from penstock.datastream import RuntimeExecutionMode, StreamExecutionEnvironment, TwoPhaseCommitSinkFunction
from penstock.datastream.connectors import Sink, SinkWriter, Source
from penstock.datastream.connectors.file_system import FileSink, RollingPolicy
from penstock.driver.epoch_errors import EpochFailed
from penstock.driver.epoch_settings import Settings
from penstock.spark.writing import SparkWriterFailed
from penstock.state.local_storage import LocalStorage
from penstock.testing import JobHarness

pytestmark = pytest.mark.spark


class Renamed(TwoPhaseCommitSinkFunction):
    """A transaction is a file that is renamed."""

    def __init__(self, directory):
        self.directory = str(directory)

    def path(self, transaction, state=""):
        return os.path.join(self.directory, state + transaction)

    def begin_transaction(self):
        return uuid.uuid4().hex

    def invoke(self, transaction, value, context):
        with open(self.path(transaction, "open-"), "a") as file:
            file.write(f"{value}\n")

    def pre_commit(self, transaction):
        os.rename(self.path(transaction, "open-"), self.path(transaction, "prepared-"))

    def commit(self, transaction):
        os.rename(self.path(transaction, "prepared-"), self.path(transaction))

    def abort(self, transaction):
        for state in ("open-", "prepared-"):
            if os.path.exists(self.path(transaction, state)):
                os.remove(self.path(transaction, state))


def test_workers_begin_transactions_and_the_driver_commits_them(make_env, tmp_path):
    env = make_env(records=10, checkpoints=True)
    (tmp_path / "target").mkdir()
    env.from_collection(range(40)).rebalance().add_sink(Renamed(tmp_path / "target"))
    env.execute()
    shown = list((tmp_path / "target").iterdir())
    assert [path.name for path in shown if "-" in path.name] == []
    assert sorted(int(line) for path in shown for line in path.read_text().split()) == list(range(40))


class Blocking(Renamed):
    """In the second epoch it signals that it has begun, and blocks forever."""

    def __init__(self, directory, said, never):
        super().__init__(directory)
        self.said, self.never = said, never

    def invoke(self, transaction, value, context):
        super().invoke(transaction, value, context)
        if value >= 10:
            with open(self.said, "wb") as pipe:
                pipe.write(b"!")
            open(self.never, "rb").close()


@pytest.mark.parametrize("retention", ["DELETE_ON_CANCELLATION", "RETAIN_ON_CANCELLATION"])
def test_cancelling_in_the_middle_of_an_epoch_aborts_its_transactions(make_env, tmp_path, retention):
    said, never, target = str(tmp_path / "said"), str(tmp_path / "never"), tmp_path / "target"
    target.mkdir()
    os.mkfifo(said)
    os.mkfifo(never)
    reading = os.open(said, os.O_RDONLY | os.O_NONBLOCK)
    key = "execution.checkpointing.externalized-checkpoint-retention"
    env = make_env(records=10, checkpoints=True, **{key: retention})
    numbers = env.from_collection(range(20)).rebalance()
    numbers.add_sink(Blocking(target, said, never)).uid("target")
    job = env.execute_async()
    try:
        assert select.select([reading], [], [], 120)[0], "no record of the second epoch arrived"
    finally:
        job.cancel().result()
        os.close(reading)
    assert [path.name for path in target.iterdir() if "-" in path.name] == []
    assert sorted(int(line) for path in target.iterdir() for line in path.read_text().split()) == list(range(10))
    assert [path for path in (tmp_path / "checkpoints").rglob("transactions/**/*") if path.is_file()] == []


class Numbers(Source):
    """Emits 0, 1, 2, … without end, five per epoch."""

    bounded = False

    def start(self, parallelism):
        return {"only": 0}

    def advance(self, positions, limit):
        return {"only": positions["only"] + 5}

    def read(self, split, start, end):
        return iter(range(start, end))


def test_a_savepoint_whose_open_part_file_was_finished_later_is_refused_permanently(make_env, tmp_path):
    target, savepoints = tmp_path / "target", str(tmp_path / "savepoints")
    policy = RollingPolicy.default_rolling_policy(part_size=10**9, rollover_interval=10**9, inactivity_interval=10**9)

    def start(**settings):
        env = make_env(parallelism=1, checkpoints=True, **settings)
        env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 10))
        sink = FileSink.for_row_format(str(target), Encoder.simple_string_encoder()).with_rolling_policy(policy)
        env.from_source(Numbers(), source_name="numbers").uid("numbers").sink_to(sink.build()).uid("out")
        begun = threading.Event()
        env.add_epoch_listener(lambda epoch: begun.set())
        return env.execute_async("parts"), begun

    first, begun = start()
    assert begun.wait(120)
    older = first.trigger_savepoint(savepoints).result()
    first.stop_with_savepoint(True, savepoints).result()
    (part,) = (path for path in target.rglob("part-*") if not path.name.startswith("."))
    numbers = part.read_text().split()
    assert numbers == [str(number) for number in range(len(numbers))]
    for _ in range(2):
        second, begun = start(**{"execution.state-recovery.path": older})
        with pytest.raises(EpochFailed, match=r"\.chunk', a piece of an unfinished part file .* is missing"):
            second.result()
        assert second.restarts() == 0
        assert not begun.is_set(), "an epoch was completed"
        assert [path for path in target.rglob("*") if path.is_file()] == [part]
        assert part.read_text().split() == numbers


class Waiting(Sink):
    """Commits the first epoch once a task of the next one runs; without a pipe, every commit fails."""

    concurrent_commit = True

    def __init__(self, pipe=None):
        self.pipe = pipe
        self.committed = []

    def create_writer(self, context):
        return Counted()

    def commit(self, commits, context):
        if self.pipe is None:
            raise ConnectionError(f"cannot commit epoch {commits[0].epoch}")
        if not self.committed:
            assert select.select([self.pipe], [], [], 60)[0], "no task has begun"
        self.committed.append(commits[0].epoch)


class Counted(SinkWriter):
    def begin_epoch(self, epoch):
        self.records = 0

    def write(self, value):
        self.records += 1

    def prepare_commit(self):
        return b"%d" % self.records if self.records else None


def test_a_commit_runs_concurrently_with_the_tasks_of_the_next_epoch(make_env, tmp_path):
    path = str(tmp_path / "pipe")
    os.mkfifo(path)
    reading = os.open(path, os.O_RDONLY | os.O_NONBLOCK)

    def say(number):
        if number == 10:
            writing = os.open(path, os.O_WRONLY)
            os.write(writing, b"!")
            os.close(writing)
        return number

    try:
        sink = Waiting(reading)
        env = make_env(parallelism=1, records=10, checkpoints=True)
        env.from_collection(range(30)).map(say).sink_to(sink).uid("out")
        env.execute()
    finally:
        os.close(reading)
    assert sink.committed == [1, 2, 3]


class ByUid(Sink):
    """Counts records of each subtask by the operator that it commits for."""

    def __init__(self):
        self.epochs = {}

    def create_writer(self, context):
        return Counted()

    def commit(self, commits, context):
        for commit in commits:
            self.epochs.setdefault((context.uid, commit.epoch, commit.subtask), int(commit.payload))

    def records(self, uid):
        return sum(records for (whose, *_), records in self.epochs.items() if whose == uid)


def test_one_sink_of_two_streams_commits_for_each(make_env, tmp_path):
    (tmp_path / "target").mkdir()
    counts, renamed = ByUid(), TwoPhaseCommitSink(Renamed(tmp_path / "target"))
    env = make_env(parallelism=2, records=10, checkpoints=True)
    numbers = env.from_collection(range(30)).uid("numbers")
    few = numbers.filter(lambda n: n < 12).uid("few")
    for sink, name in ((counts, "counts"), (renamed, "renamed")):
        numbers.sink_to(sink).uid(f"{name} of all")
        few.sink_to(sink).uid(f"{name} of few")
    env.execute()
    assert counts.records("counts of all") == 30
    assert counts.records("counts of few") == 12
    shown = list((tmp_path / "target").iterdir())
    assert [path.name for path in shown if "-" in path.name] == []
    written = sorted(int(line) for path in shown for line in path.read_text().split())
    assert written == sorted([*range(30), *range(12)])


def test_a_job_without_data_notices_a_failed_commit(make_env, session, tmp_path):
    (tmp_path / "input").mkdir()
    (tmp_path / "input" / "lines.txt").write_text("a line\n")
    env = make_env(parallelism=1, checkpoints=True)
    env.set_restart_strategy(RestartStrategies.no_restart())
    env.from_spark(session.readStream.text(str(tmp_path / "input"))).sink_to(Waiting()).uid("out")
    job = env.execute_async()
    with ThreadPoolExecutor(1) as threads:
        try:
            error = threads.submit(job.result).exception(timeout=120)
        finally:
            job.cancel()
    assert repr(error) == "ConnectionError('cannot commit epoch 1')"


@dataclass
class Point:
    id: int
    name: str


def records():
    """Return records of all supported shapes."""
    return [
        Row(id=0, name="Row"),
        (1, "tuple"),
        {"id": 2, "name": "dict"},
        Point(3, "dataclass"),
        *((number, "more") for number in range(4, 20)),
    ]


NAMED = dict.fromkeys(range(4, 20), "more") | {0: "Row", 1: "tuple", 2: "dict", 3: "dataclass"}


@pytest.mark.parametrize("checkpoints", [False, True])
def test_files_have_every_row_once_in_a_directory_per_epoch(make_env, tmp_path, checkpoints):
    env = make_env(records=5, checkpoints=checkpoints)
    path = str(tmp_path / "rows")
    env.from_collection(records()).rebalance().to_spark("id long, name string").format("parquet").save(path)
    env.execute()
    rows = env.spark.read.parquet(path)
    assert {row.id: row.name for row in rows.collect()} == NAMED
    assert rows.count() == 20
    assert rows.select("epoch").distinct().count() == 4


def test_large_epochs_are_read_from_files_of_the_log(make_env, tmp_path):
    env = make_env(records=60_000, checkpoints=True)
    path = str(tmp_path / "rows")
    stream = env.from_collection(range(100_000), Types.LONG()).map(lambda n: (n, "x" * 40))
    stream.to_spark("n long, text string").option("compression", "none").save(path)
    env.execute()
    rows = env.spark.read.parquet(path)
    assert rows.selectExpr("count(*)", "count(distinct n)", "sum(n)").first()[:3] == (100_000, 100_000, 4999950000)


def test_values_of_all_types_survive_a_round_trip(make_env, tmp_path):
    row = (
        True,
        1,
        2,
        1.5,
        Decimal("12.50"),
        b"\x00",
        date(2026, 1, 2),
        datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        datetime(2026, 1, 2, 3, 4, 5),
        [1, None],
        {"a": 1},
        Row(x="y", z=None),
        None,
    )
    schema = (
        "b boolean, i int, s short, d double, dec decimal(10,2), bin binary, day date, at timestamp, "
        "local timestamp_ntz, ints array<int>, by map<string, int>, inner struct<x: string, z: int>, nothing string"
    )
    env = make_env()
    env.from_collection([row]).to_spark(schema).save(str(tmp_path / "rows"))
    env.execute()
    found = env.spark.read.parquet(str(tmp_path / "rows")).first()
    assert found.asDict()["at"].timestamp() == row[7].timestamp()
    assert found[:6] == (True, 1, 2, 1.5, Decimal("12.50"), bytearray(b"\x00"))
    assert found.day == row[6]
    assert found["local"] == row[8]
    assert (found.ints, found.by, tuple(found.inner), found.nothing) == ([1, None], {"a": 1}, ("y", None), None)


def test_rows_are_saved_to_a_catalog_table(make_env, session):
    env = make_env(records=7)
    env.from_collection(records()).to_spark("id long, name string").save_as_table("penstock_rows")
    try:
        env.execute()
        assert session.table("penstock_rows").count() == 20
    finally:
        session.sql("DROP TABLE IF EXISTS penstock_rows")


def test_foreach_epoch_is_called_with_the_rows_of_each_epoch(make_env):
    env = make_env(records=10)
    seen = []

    def take(df, epoch):
        seen.append((epoch.number, epoch.again, sorted(row.id for row in df.collect()), epoch.key))

    env.from_collection(records()).to_spark("id long, name string").foreach_epoch(take)
    env.execute()
    assert [each[:3] for each in seen] == [(1, False, list(range(10))), (2, False, list(range(10, 20)))]
    assert len({key for *_, key in seen}) == 2


def test_foreach_epoch_is_called_once_for_a_batch(make_env):
    env = make_env(records=10).set_runtime_mode(RuntimeExecutionMode.BATCH)
    seen = []
    rows = env.from_collection(records()).to_spark("id long, name string")
    rows.foreach_epoch(lambda df, epoch: seen.append(sorted(row.id for row in df.collect())))
    env.execute()
    assert seen == [list(range(20))]


class Inspected(DataSource):
    """Writes its options and row count into a directory."""

    @classmethod
    def name(cls):
        return "delta"

    def writer(self, schema, overwrite):
        return _Writer(self.options)


class _Writer(DataSourceWriter):
    def __init__(self, options):
        self.options = options

    def write(self, rows):
        message = WriterCommitMessage()
        message.count = len(list(rows))
        return message

    def commit(self, messages):
        rows = sum(message.count for message in messages)
        with open(os.path.join(self.options["place"], self.options["txnversion"]), "x") as file:
            file.write(f"{self.options['txnappid']} {rows}")


def test_delta_receives_the_job_and_the_epoch(make_env, session, tmp_path):
    session.dataSource.register(Inspected)
    env = make_env(records=10)
    stream = env.from_collection(records()).to_spark("id long, name string").format("delta")
    stream.option("place", str(tmp_path)).mode("append").save()
    env.execute()
    written = {name: (tmp_path / name).read_text().split() for name in ("1", "2")}
    assert written["1"][0] == written["2"][0]
    assert [rows for _, rows in written.values()] == ["10", "10"]


@pytest.mark.parametrize("point", ["driver.collected", "driver.published", "driver.committed"])
def test_a_directory_is_rewritten_after_a_driver_dies(session, tmp_path, point):
    env = StreamExecutionEnvironment.get_execution_environment()
    env._spark = session
    path = str(tmp_path / "rows")
    stream = env.from_collection(range(20)).rebalance().map(lambda n: (n, str(n % 3)))
    stream.to_spark("n long, rest string").format("json").partition_by("rest").save(path)
    storage = LocalStorage(tmp_path / "checkpoints")
    with JobHarness(env, parallelism=2, storage=storage, settings=Settings(inline_bytes=0)) as job:
        job.epoch(5)
        job.crash_at(point)
        job.epoch(5)
        job.run(5)
    rows = session.read.json(path)
    assert sorted(row.n for row in rows.collect()) == list(range(20))
    assert rows.select("epoch").distinct().count() == 4


def test_a_damaged_file_of_the_log_is_reported(session, tmp_path):
    env = StreamExecutionEnvironment.get_execution_environment()
    env._spark = session
    env.from_collection(range(20)).map(lambda n: (n,)).to_spark("n long").save(str(tmp_path / "rows")).uid("out")
    storage = LocalStorage(tmp_path / "checkpoints")
    with JobHarness(env, storage=storage, settings=Settings(inline_bytes=0)) as job:
        job.epoch(5)
        [name] = storage.list("wal/")
        with open(storage.root / name, "r+b") as file:
            file.seek(30)
            file.write(b"x")
        with pytest.raises(SparkWriterFailed, match=rf"{name}', which sink 'out' needs to commit epoch 1, is damaged"):
            job.crash()


def test_a_spark_writer_error_names_the_sink_and_the_epoch(make_env):
    env = make_env()
    env.from_collection([(1, "a")]).to_spark("id long, name string").format("nonesuch").save("/x").uid("out")
    with pytest.raises(SparkWriterFailed, match=r"Sink 'out' \(nonesuch /x\) could not write epoch 1: .*nonesuch"):
        env.execute()
