"""Flink's TwoPhaseCommitSinkFunction: transactions of a system that prepares them and commits them later."""

import os
import uuid
from dataclasses import dataclass

import pytest

from penstock.checkpoint.epochs import Settings
from penstock.datastream import StreamExecutionEnvironment, TwoPhaseCommitSinkFunction
from penstock.state.storage import LocalStorage
from penstock.testing import JobHarness, SinkHarness

POINTS = [
    *(f"level1.{point}" for point in ("received", "processed", "snapshot", "reported")),
    *(f"driver.{point}" for point in ("triggered", "collected", "published", "committed")),
]


class Renamed(TwoPhaseCommitSinkFunction):
    """A transaction is a file that gets another name: `open-x`, `prepared-x`, then `x` in the target."""

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
    """The records that a reader sees, of each transaction in their order."""
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

    def test_completions_that_come_late_commit_nothing_twice(self, sink, target):
        sink.notify_complete(2)
        assert committed(target) == [42, 43, 44]
        sink.notify_complete(1)
        assert committed(target) == [42, 43, 44]
        assert unfinished(target) == []

    def test_a_snapshot_that_is_restored_is_committed(self, sink, target):
        sink.process(45).crash()
        assert committed(target) == [42, 43, 44]

    def test_what_was_after_the_restored_snapshot_is_aborted_where_it_was_written_down(self, sink, target, storage):
        sink.process(45).notify_complete(0).crash(restore=1)
        assert committed(target) == [42, 43]
        assert len(unfinished(target)) == 2
        sink.process(46).snapshot(2).notify_complete(2)
        assert committed(target) == [42, 43, 46]
        sink.process(47).snapshot(3).notify_complete(3)
        # In the driver's memory nothing is written down by tasks, and nobody knows the transactions any more.
        assert len(unfinished(target)) == (2 if storage is None else 0)
        assert storage is None or storage.list("transactions/") == []

    def test_a_commit_that_was_done_before_the_crash_is_done_again_without_effect(self, sink, target):
        sink.notify_complete(2).crash()
        assert committed(target) == [42, 43, 44]

    def test_an_epoch_without_records_has_no_transaction(self, target):
        with SinkHarness(Renamed(target)) as sink:
            sink.snapshot(0).notify_complete(0)
        assert list(target.iterdir()) == []

    def test_a_task_that_is_closed_aborts_its_transaction(self, target):
        with SinkHarness(Renamed(target)) as sink:
            sink.process(1)
            assert len(unfinished(target)) == 1
        assert list(target.iterdir()) == []


def job(function, **options):
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_collection(range(40)).uid("numbers").rebalance().add_sink(function).uid("target")
    return JobHarness(env, parallelism=2, **options)


class TestInAJob:
    @pytest.mark.parametrize("point", POINTS)
    def test_every_record_is_committed_once_wherever_it_crashes(self, point, target, storage):
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

    def test_an_attempt_that_fails_is_aborted_by_the_driver_and_by_the_task(self, target, storage):
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

    def test_a_keyed_stream_ends_in_it_too(self, target):
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
    def test_are_plain_values(self, handle):
        function = Kept(handle)
        with SinkHarness(function) as sink:
            sink.process(1, timestamp=1).snapshot(0).notify_complete(0)
        assert function.seen == [handle]

    def test_are_dataclasses_where_the_method_says_so(self):
        function = OfBatches(Batch("a", (1, "b")))
        with SinkHarness(function) as sink:
            sink.process(1, timestamp=1).snapshot(0).notify_complete(0)
        assert function.seen == [Batch("a", (1, "b"))]

    @pytest.mark.parametrize("handle", [(1, 2), Batch("a", (1, "b")), object()])
    def test_that_would_come_back_as_another_are_refused_before_the_first_record(self, handle):
        with pytest.raises(Exception, match=r"The transaction that begin_transaction of Kept gave, .* annotate"):
            SinkHarness(Kept(handle)).process(1, timestamp=1)
