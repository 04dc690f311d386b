"""TwoPhaseCommitSinkFunction: transactions of a system that prepares them and commits them later."""

import os
import uuid
from dataclasses import dataclass

import psycopg
import pytest

from penstock.checkpoint.manifest import Fenced
from penstock.common import RestartStrategies
from penstock.connectors.two_phase import NotAborted
from penstock.datastream import StreamExecutionEnvironment, TwoPhaseCommitSinkFunction
from penstock.driver.epoch_settings import Settings
from penstock.state.local_storage import LocalStorage
from penstock.testing import JobHarness, SinkHarness

POINTS = [
    *(f"level1.{point}" for point in ("received", "processed", "snapshot", "reported")),
    *(f"driver.{point}" for point in ("triggered", "collected", "published", "committed")),
]


class Renamed(TwoPhaseCommitSinkFunction):
    """A transaction is a file that is renamed: `open-x`, `prepared-x`, then `x` in the target."""

    def __init__(self, directory):
        self.directory = str(directory)

    def path(self, transaction, state=""):
        return os.path.join(self.directory, state + transaction)

    def begin_transaction(self):
        transaction = uuid.uuid4().hex
        open(self.path(transaction, "open-"), "x").close()
        return transaction

    def invoke(self, transaction, value, context):
        with open(self.path(transaction, "open-"), "a") as file:
            file.write(f"{value}\n")

    def pre_commit(self, transaction):
        os.rename(self.path(transaction, "open-"), self.path(transaction, "prepared-"))

    def commit(self, transaction):
        os.rename(self.path(transaction, "prepared-"), self.path(transaction))

    def recover_and_commit(self, transaction):
        if os.path.exists(self.path(transaction, "prepared-")):
            self.commit(transaction)
        assert os.path.exists(self.path(transaction))

    def abort(self, transaction):
        for state in ("open-", "prepared-"):
            if os.path.exists(self.path(transaction, state)):
                os.remove(self.path(transaction, state))


def committed(directory):
    """Return the committed records, which readers see."""
    shown = [path.read_text().split() for path in directory.iterdir() if "-" not in path.name]
    return sorted(int(record) for records in shown for record in records)


def unfinished(directory):
    return [path.name for path in directory.iterdir() if "-" in path.name]


@pytest.fixture
def target(tmp_path):
    (tmp_path / "target").mkdir()
    return tmp_path / "target"


@pytest.fixture(params=["memory", "files"])
def storage(request, tmp_path):
    return None if request.param == "memory" else LocalStorage(tmp_path / "checkpoints")


class TestAlone:
    @pytest.fixture
    def sink(self, target, storage):
        with SinkHarness(Renamed(target), storage) as sink:
            sink.process(42).snapshot(0).process(43).snapshot(1).process(44).snapshot(2)
            yield sink

    def test_completing_the_second_snapshot_commits_the_first_two(self, sink, target):
        assert committed(target) == []
        sink.notify_complete(1)
        assert committed(target) == [42, 43]

    def test_late_completions_commit_nothing_twice(self, sink, target):
        sink.notify_complete(2)
        assert committed(target) == [42, 43, 44]
        sink.notify_complete(1)
        assert committed(target) == [42, 43, 44]
        assert unfinished(target) == []

    def test_a_restored_snapshot_is_committed(self, sink, target):
        sink.process(45).crash()
        assert committed(target) == [42, 43, 44]

    def test_stored_transactions_after_the_restored_snapshot_are_aborted(self, sink, target, storage):
        sink.process(45).notify_complete(0).crash(restore=1)
        assert committed(target) == [42, 43]
        assert len(unfinished(target)) == 2
        sink.process(46).snapshot(2).notify_complete(2)
        assert committed(target) == [42, 43, 46]
        sink.process(47).snapshot(3).notify_complete(3)
        # With checkpoints in driver memory, tasks store no handles and the transactions stay open.
        assert len(unfinished(target)) == (2 if storage is None else 0)
        assert storage is None or storage.list("transactions/") == []

    def test_a_repeated_commit_after_a_crash_has_no_effect(self, sink, target):
        sink.notify_complete(2).crash()
        assert committed(target) == [42, 43, 44]

    def test_an_epoch_without_records_has_no_transaction(self, target):
        with SinkHarness(Renamed(target)) as sink:
            sink.snapshot(0).notify_complete(0)
        assert list(target.iterdir()) == []

    def test_a_closed_task_aborts_its_transaction(self, target):
        with SinkHarness(Renamed(target)) as sink:
            sink.process(1)
            assert len(unfinished(target)) == 1
        assert list(target.iterdir()) == []


def job(function, **options):
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_collection(range(40)).uid("numbers").rebalance().add_sink(function).uid("target")
    return JobHarness(env, parallelism=2, **options)


class Stubborn(Renamed):
    """Its system rejects aborts while the file `down` exists."""

    def abort(self, transaction):
        if os.path.exists(self.path("down")):
            raise ConnectionError("the server is down")
        super().abort(transaction)


def abandoned(harness):
    """Crash the next epoch after one of its tasks has prepared its transaction and one has not."""
    harness.crash_at("level1.snapshot")
    assert harness.epoch(10) is None


class TestAJobThatEnds:
    @pytest.fixture
    def storage(self, tmp_path):
        return LocalStorage(tmp_path / "checkpoints")

    @pytest.mark.parametrize("epochs", [0, 1, 3])
    def test_cancelling_a_job_aborts_the_transactions_of_the_current_epoch(self, target, storage, epochs):
        with job(Renamed(target), storage=storage) as harness:
            for _ in range(epochs):
                harness.epoch(10)
            abandoned(harness)
            assert unfinished(target)
            harness.cancel()
            assert unfinished(target) == []
            assert storage.list("transactions/") == []
        assert committed(target) == list(range(10 * epochs))

    def test_cancelling_a_job_commits_its_last_checkpoint(self, target, storage):
        with job(Renamed(target), storage=storage) as harness:
            harness.epoch(10)
            harness._driver._committer.commit = lambda manifest, records: None
            harness.epoch(10)
            assert len(unfinished(target)) == 2
            harness.cancel()
        assert committed(target) == list(range(20))
        assert unfinished(target) == []

    def test_stopping_with_a_savepoint_aborts_transactions_of_lost_attempts(self, target, storage, tmp_path):
        with job(Renamed(target), storage=storage) as harness:
            harness.epoch(10)
            abandoned(harness)
            savepoint = harness.stop_with_savepoint(tmp_path / "savepoints")
            assert unfinished(target) == []
        with job(Renamed(target), from_savepoint=savepoint) as harness:
            harness.run()
        assert committed(target) == list(range(40))

    def test_the_end_of_input_leaves_no_transaction_open(self, target, storage):
        with job(Renamed(target), storage=storage) as harness:
            harness.epoch(10)
            abandoned(harness)
            harness.run(10)
            assert storage.list("transactions/") == []
        assert unfinished(target) == []

    def test_a_failed_driver_aborts_its_own_transactions_but_not_another_drivers(self, target, storage):
        with job(Renamed(target), storage=storage) as other:
            other.epoch(10)
            abandoned(other)
            theirs = unfinished(target)
            # Another driver of the same job, whose tasks die with it.
            with job(Renamed(target), storage=storage) as harness:
                harness.push(*range(40))
                driver = harness._driver
                harness._execution.start = lambda: None
                abandoned(harness)
                assert len(unfinished(target)) > len(theirs)
                driver.abort_uncommitted()
                assert unfinished(target) == theirs
            assert committed(target) == list(range(10))

    def test_a_fenced_driver_aborts_nothing(self, target, storage):
        with job(Renamed(target), storage=storage) as harness, job(Renamed(target), storage=storage) as other:
            driver = harness._driver
            other.epoch(10)
            harness._execution.start = lambda: None
            abandoned(harness)
            abandoned(other)
            before = unfinished(target)
            driver.abort_uncommitted()
            with pytest.raises(Fenced):
                driver.close()
            assert unfinished(target) == before
            assert committed(target) == list(range(10))
            other.cancel()
        assert unfinished(target) == []

    def test_a_transaction_that_cannot_be_aborted_is_reported_and_its_handle_kept(self, target, storage):
        with job(Stubborn(target), storage=storage) as harness:
            harness.epoch(10)
            abandoned(harness)
            handles = [name.partition("-")[2] for name in unfinished(target)]
            (target / "down").touch()
            with pytest.raises(NotAborted, match=r"'target' .* the server is down.*transactions/") as refused:
                harness.cancel()
            assert all(handle in str(refused.value) for handle in handles)
            assert len(storage.list("transactions/")) == len(handles)
            (target / "down").unlink()
            harness._driver.abort_uncommitted(everything=True)
            assert unfinished(target) == []
            assert storage.list("transactions/") == []

    def test_a_transaction_that_cannot_be_committed_keeps_its_handle(self, target, storage):
        class Closed(Renamed):
            def recover_and_commit(self, transaction):
                raise ConnectionError("the server is down")

        with job(Closed(target), storage=storage) as harness:
            harness._driver._committer.commit = lambda manifest, records: None
            harness.epoch(10)
            prepared = unfinished(target)
            with pytest.raises(ConnectionError):
                harness.cancel()
            assert unfinished(target) == prepared
            assert len(storage.list("transactions/")) == len(prepared) == 2

    def test_a_job_without_checkpoints_aborts_all_transactions(self, target, storage):
        with job(Renamed(target), storage=storage) as harness:
            harness._driver._committer.commit = lambda manifest, records: None
            harness.epoch(10)
            assert len(unfinished(target)) == 2
            harness._driver.abort_uncommitted(everything=True)
            assert list(target.iterdir()) == []

    def test_a_restart_aborts_transactions_of_the_failed_attempt_first(self, target, storage):
        """Otherwise locks of the failed attempt would block the next one."""

        class Locking(Renamed):
            def begin_transaction(self):
                open_ones = [name for name in os.listdir(self.directory) if "-" in name]
                assert open_ones == [], "transactions of the previous attempt still hold their locks"
                return super().begin_transaction()

        env = StreamExecutionEnvironment.get_execution_environment()
        env.set_restart_strategy(RestartStrategies.fixed_delay_restart(1, 0))
        env.from_collection(range(40)).uid("numbers").add_sink(Locking(target)).uid("target")
        with JobHarness(env, storage=storage) as harness:
            execute = harness._driver.execute

            def lost(parameters):
                list(execute(parameters))
                harness._driver.execute = execute
                raise ConnectionError("the engine died with the reports")

            harness._driver.execute = lost
            harness.run(10)
            assert harness.restarts == 1
        assert committed(target) == list(range(40))


class Prepared(TwoPhaseCommitSinkFunction):
    """PostgreSQL transactions that outlive their session: PREPARE TRANSACTION."""

    def __init__(self, conninfo):
        self.conninfo = conninfo
        self.connection = None

    def __getstate__(self):
        return {"conninfo": self.conninfo, "connection": None}

    def begin_transaction(self):
        if self.connection is None:
            self.connection = psycopg.connect(self.conninfo)
        return f"penstock-{uuid.uuid4().hex}"

    def invoke(self, transaction, value, context):
        self.connection.execute("INSERT INTO numbers VALUES (%s)", [value])

    def pre_commit(self, transaction):
        self.connection.execute(f"PREPARE TRANSACTION '{transaction}'")
        self.connection.commit()

    def finish(self, how, transaction):
        with psycopg.connect(self.conninfo, autocommit=True) as connection:
            if connection.execute("SELECT 1 FROM pg_prepared_xacts WHERE gid = %s", [transaction]).fetchone():
                connection.execute(f"{how} PREPARED '{transaction}'")

    def commit(self, transaction):
        self.finish("COMMIT", transaction)

    def abort(self, transaction):
        if self.connection is not None:
            self.connection.rollback()
        self.finish("ROLLBACK", transaction)

    def close(self):
        if self.connection is not None:
            self.connection.close()


PREPARED = "SELECT count(*) FROM pg_prepared_xacts WHERE database = current_database()"


@pytest.mark.parametrize("ending", ["cancel", "stop", "fail"])
def test_prepared_postgres_transactions_hold_no_lock_after_the_job(postgres, tmp_path, ending):
    database = psycopg.connect(postgres, autocommit=True)
    database.execute("CREATE TABLE numbers (n int PRIMARY KEY)")
    with job(Prepared(postgres), storage=LocalStorage(tmp_path / "checkpoints")) as harness:
        harness.epoch(10)
        driver = harness._driver
        if ending == "fail":
            harness._execution.start = lambda: None
        abandoned(harness)
        assert database.execute(PREPARED).fetchone() == (1,)
        if ending == "cancel":
            harness.cancel()
        elif ending == "stop":
            harness.stop_with_savepoint(tmp_path / "savepoints")
        else:
            driver.abort_uncommitted()
    assert database.execute(PREPARED).fetchone() == (0,)
    database.execute("SET lock_timeout = 1000")
    assert sorted(database.execute("DELETE FROM numbers RETURNING n")) == [(n,) for n in range(10)]
    database.execute("DROP TABLE numbers")
    database.close()


class TestInAJob:
    @pytest.mark.parametrize("point", POINTS)
    def test_every_record_is_committed_once_after_a_crash_at_any_point(self, point, target, storage):
        settings = Settings(asynchronous=False)
        with job(Renamed(target), storage=storage, settings=settings) as harness:
            harness.epoch(10)
            harness.crash_at(point)
            harness.epoch(10)
            harness.run(10)
        assert committed(target) == list(range(40))
        if storage is not None:
            assert unfinished(target) == []
            assert storage.list("transactions/") == []

    def test_the_driver_and_the_task_abort_a_failed_attempt(self, target, storage):
        def poisonous(value):
            if value == 5:
                raise ValueError("poison")
            return value

        env = StreamExecutionEnvironment.get_execution_environment()
        numbers = env.from_collection(range(10)).rebalance().map(poisonous).set_parallelism(2)
        numbers.add_sink(Renamed(target)).uid("target")
        with JobHarness(env, parallelism=2, storage=storage) as harness, pytest.raises(Exception, match="poison"):
            harness.epoch()
        assert list(target.iterdir()) == []

    def test_a_keyed_stream_can_end_in_a_two_phase_sink(self, target):
        env = StreamExecutionEnvironment.get_execution_environment()
        env.from_collection(range(5)).key_by(lambda n: n).add_sink(Renamed(target))
        with JobHarness(env) as harness:
            harness.run()
        assert committed(target) == list(range(5))


@dataclass
class Batch:
    name: str
    place: tuple[int, str]


class Kept(TwoPhaseCommitSinkFunction):
    def __init__(self, handle):
        self.handle = handle
        self.seen = []
        self.times = []

    def begin_transaction(self):
        return self.handle

    def invoke(self, transaction, value, context):
        assert context.timestamp() == value

    def pre_commit(self, transaction): ...

    def commit(self, transaction):
        self.seen.append(transaction)

    def abort(self, transaction): ...


class OfBatches(Kept):
    def begin_transaction(self) -> Batch:
        return self.handle


class TestHandles:
    @pytest.mark.parametrize("handle", [None, 1, "x", {"producer": 7, "epoch": [1, 2]}, b"\x00"])
    def test_handles_can_be_plain_values(self, handle):
        function = Kept(handle)
        with SinkHarness(function) as sink:
            sink.process(1, timestamp=1).snapshot(0).notify_complete(0)
        assert function.seen == [handle]

    def test_handles_can_be_dataclasses_if_annotated(self):
        function = OfBatches(Batch("a", (1, "b")))
        with SinkHarness(function) as sink:
            sink.process(1, timestamp=1).snapshot(0).notify_complete(0)
        assert function.seen == [Batch("a", (1, "b"))]

    @pytest.mark.parametrize("handle", [(1, 2), Batch("a", (1, "b")), object()])
    def test_handles_that_do_not_round_trip_are_rejected_before_the_first_record(self, handle):
        with pytest.raises(Exception, match=r"The transaction returned by begin_transaction of Kept, .* annotate"):
            SinkHarness(Kept(handle)).process(1, timestamp=1)
