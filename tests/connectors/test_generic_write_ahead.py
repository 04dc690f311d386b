"""Flink's GenericWriteAheadSink: records wait until their checkpoint is complete, and until they are acknowledged."""

import pytest
from dying import Died, Dying

from penstock.common.restart_strategy import RestartStrategies
from penstock.common.typeinfo import Types
from penstock.connectors.generic_write_ahead import NotAcknowledged
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors import CheckpointCommitter, GenericWriteAheadSink
from penstock.driver.epoch_settings import Settings
from penstock.state.local_storage import LocalStorage
from penstock.testing import JobHarness, SinkHarness

FILES = Settings(inline_bytes=0, asynchronous=False)
POINTS = [
    *(f"level1.{point}" for point in ("received", "processed", "snapshot", "reported")),
    *(f"driver.{point}" for point in ("triggered", "collected", "published", "committed")),
]


class LastOnly(CheckpointCommitter):
    """Knows the last epoch of each subtask: whatever is sent out of order would be lost with it."""

    def __init__(self):
        self.last = {}
        self.calls = []

    def create_resource(self):
        self.calls.append("create_resource")

    def open(self):
        self.calls.append("open")
        assert self.job_id
        assert self.operator_id

    def close(self):
        self.calls.append("close")

    def commit_checkpoint(self, subtask_idx, checkpoint_id):
        self.last[subtask_idx] = checkpoint_id

    def is_checkpoint_committed(self, subtask_idx, checkpoint_id):
        return self.last.get(subtask_idx, -1) >= checkpoint_id


class ToAList(GenericWriteAheadSink):
    """`refuse`: how many times it does not acknowledge, by epoch."""

    def __init__(self, refuse=None, type_info=None):
        super().__init__(LastOnly(), type_info)
        self.refuse = refuse or {}
        self.sent = []
        self.times = []

    def send_values(self, values, checkpoint_id, timestamp):
        values = list(values)
        if self.refuse.get(checkpoint_id):
            self.refuse[checkpoint_id] -= 1
            return False
        self.sent += values
        self.times.append(timestamp)
        return True


@pytest.fixture(params=["memory", "files"])
def storage(request, tmp_path):
    return None if request.param == "memory" else LocalStorage(tmp_path / "checkpoints")


class TestAlone:
    def test_a_missed_completion_loses_nothing(self, storage):
        sink = ToAList()
        with SinkHarness(sink, storage) as harness:
            harness.process(*range(1, 21)).snapshot(0).notify_complete(0)
            harness.process(*range(21, 41)).snapshot(1)
            harness.process(*range(41, 61)).snapshot(2)
            assert sink.sent == list(range(1, 21))
            harness.notify_complete(2)
        assert sink.sent == list(range(1, 61))

    def test_what_a_crash_took_before_its_snapshot_is_not_sent(self, storage):
        sink = ToAList()
        with SinkHarness(sink, storage) as harness:
            harness.process(*range(1, 21)).snapshot(0).notify_complete(0)
            harness.process(*range(21, 41)).crash()
            harness.process(*range(41, 61)).snapshot(1).notify_complete(1)
        assert sink.sent == [*range(1, 21), *range(41, 61)]

    def test_what_is_not_acknowledged_is_sent_before_the_next(self, storage):
        sink = ToAList({0: 2})
        with SinkHarness(sink, storage) as harness:
            harness.clock = 7
            harness.process(1, 2).snapshot(0).notify_complete(0)
            harness.clock = 8
            harness.process(3).snapshot(1).notify_complete(1)
            assert sink.sent == []
            # Without records it is told too that an epoch is complete.
            harness.snapshot(2).notify_complete(2)
            assert sink.sent == [1, 2, 3]
            assert sink.times == [7, 8, 8]
            assert harness.storage.list("pending/") == []

    def test_what_is_not_acknowledged_survives_crashes(self, storage):
        sink = ToAList({0: 3})
        with SinkHarness(sink, storage) as harness:
            harness.process(1, 2).snapshot(0).notify_complete(0)
            harness.process(3).snapshot(1).notify_complete(1).crash()
            assert sink.sent == []
            harness.process(4).snapshot(2).notify_complete(2)
        assert sink.sent == [1, 2, 3, 4]

    def test_what_is_owed_at_the_end_is_an_error(self, storage):
        sink = ToAList({0: 2, 1: 2})
        with SinkHarness(sink, storage) as harness:
            harness.process(1).snapshot(0).notify_complete(0)
            harness.process(2).snapshot(1, end_of_input=True)
            with pytest.raises(NotAcknowledged, match=r"sink 'sink' has not acknowledged the records of epochs \[0, 1"):
                harness.notify_complete(1)
            # As the restart strategy would have it: the last checkpoint is committed again.
            with pytest.raises(NotAcknowledged, match=r"\[1\]"):
                harness.crash()
            harness.crash()
        assert sink.sent == [1, 2]

    def test_the_committer_is_opened_once_and_closed(self):
        sink = ToAList()
        with SinkHarness(sink) as harness:
            harness.process(1).snapshot(0).notify_complete(0).process(2).snapshot(1).notify_complete(1)
        assert sink.committer.calls == ["create_resource", "open", "close"]
        assert sink.committer.operator_id == "sink"

    def test_records_come_back_as_they_are_declared(self):
        sink = ToAList(type_info=Types.TUPLE([Types.INT(), Types.STRING()]))
        with SinkHarness(sink) as harness:
            harness.process((1, "a"), (2, "b")).snapshot(0).notify_complete(0)
        assert sink.sent == [(1, "a"), (2, "b")]

    def test_records_declared_as_any_object_come_back_as_they_were(self):
        sink = ToAList(type_info=Types.PICKLED_BYTE_ARRAY())
        records = [{"a": (1, None)}, None, b"bytes", [2], 1j, LastOnly]
        with SinkHarness(sink) as harness:
            harness.process(*records).snapshot(0).notify_complete(0)
        assert sink.sent == records

    def test_a_record_that_would_come_back_as_another_is_refused_in_the_task(self):
        with pytest.raises(Exception, match=r"The record \(1, 'a'\) cannot wait .* Declare the type"):
            SinkHarness(ToAList()).process((1, "a"))

    def test_another_answer_than_yes_or_no_is_refused(self):
        sink = ToAList()
        sink.send_values = lambda values, checkpoint_id, timestamp: None
        with pytest.raises(Exception, match="send_values of sink 'sink' gave None"):
            SinkHarness(sink).process(1).snapshot(0).notify_complete(0)


def job(sink, **options):
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_collection(range(40), Types.INT()).uid("numbers").rebalance().add_sink(sink).uid("list")
    return JobHarness(env, parallelism=2, **options)


class TestInAJob:
    @pytest.mark.parametrize("point", POINTS)
    def test_every_record_is_sent_once_wherever_it_crashes(self, point, storage):
        sink = ToAList({2: 3})
        with job(sink, storage=storage, settings=FILES) as harness:
            harness.epoch(10)
            harness.crash_at(point)
            harness.epoch(10)
            harness.run(10)
            assert harness.storage.list("pending/") == []
        assert sorted(sink.sent) == list(range(40))

    def test_a_driver_may_die_at_any_write(self, tmp_path):
        left, died = 0, True
        while died:
            sink = ToAList({1: 1, 2: 3, 3: 2})
            storage = Dying(tmp_path / str(left))
            with job(sink, storage=storage, settings=FILES) as harness:
                harness.epoch(10)
                storage.left = left
                try:
                    harness.epochs(10)
                    died = False
                except Died:
                    storage.left = None
                    harness.crash()
                storage.left = None
                harness.run(10)
                assert storage.list("pending/") == []
            assert sorted(sink.sent) == list(range(40))
            left += 1
        assert left > 20

    def test_a_job_that_cannot_end_is_restarted_until_all_is_taken(self, storage):
        sink = ToAList({3: 2, 4: 6})
        env = StreamExecutionEnvironment.get_execution_environment()
        env.set_restart_strategy(RestartStrategies.fixed_delay_restart(9, 1))
        env.from_collection(range(40), Types.INT()).uid("numbers").rebalance().add_sink(sink).uid("list")
        with JobHarness(env, parallelism=2, storage=storage, settings=FILES) as harness:
            harness.run(10)
            assert harness.restarts == 2
            assert isinstance(harness.last_failure, NotAcknowledged)
        assert sorted(sink.sent) == list(range(40))

    def test_a_job_that_is_stopped_says_what_nobody_took(self, storage):
        with job(ToAList({1: 9}), storage=storage, settings=FILES) as harness:
            harness.epoch(10)
            with pytest.raises(NotAcknowledged, match=r"sink 'list' has not acknowledged the records of epochs \[1\]"):
                harness._driver.close()
