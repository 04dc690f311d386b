"""GenericWriteAheadSink: records wait until their checkpoint is complete, and until they are acknowledged."""

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
    """Remembers only the last epoch of each subtask, so an epoch sent out of order would be lost."""

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
    """`refuse`: how many times to return False, by epoch."""

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
    def test_a_missed_completion_loses_no_records(self, storage):
        sink = ToAList()
        with SinkHarness(sink, storage) as harness:
            harness.process(*range(1, 21)).snapshot(0).notify_complete(0)
            harness.process(*range(21, 41)).snapshot(1)
            harness.process(*range(41, 61)).snapshot(2)
            assert sink.sent == list(range(1, 21))
            harness.notify_complete(2)
        assert sink.sent == list(range(1, 61))

    def test_records_without_a_snapshot_are_not_sent_after_a_crash(self, storage):
        sink = ToAList()
        with SinkHarness(sink, storage) as harness:
            harness.process(*range(1, 21)).snapshot(0).notify_complete(0)
            harness.process(*range(21, 41)).crash()
            harness.process(*range(41, 61)).snapshot(1).notify_complete(1)
        assert sink.sent == [*range(1, 21), *range(41, 61)]

    def test_unacknowledged_records_are_sent_before_the_next_epoch(self, storage):
        sink = ToAList({0: 2})
        with SinkHarness(sink, storage) as harness:
            harness.clock = 7
            harness.process(1, 2).snapshot(0).notify_complete(0)
            harness.clock = 8
            harness.process(3).snapshot(1).notify_complete(1)
            assert sink.sent == []
            # The sink is also notified of an epoch without records.
            harness.snapshot(2).notify_complete(2)
            assert sink.sent == [1, 2, 3]
            assert sink.times == [7, 8, 8]
            assert harness.storage.list("pending/") == []

    def test_unacknowledged_records_survive_crashes(self, storage):
        sink = ToAList({0: 3})
        with SinkHarness(sink, storage) as harness:
            harness.process(1, 2).snapshot(0).notify_complete(0)
            harness.process(3).snapshot(1).notify_complete(1).crash()
            assert sink.sent == []
            harness.process(4).snapshot(2).notify_complete(2)
        assert sink.sent == [1, 2, 3, 4]

    def test_unacknowledged_records_at_the_end_are_an_error(self, storage):
        sink = ToAList({0: 2, 1: 2})
        with SinkHarness(sink, storage) as harness:
            harness.process(1).snapshot(0).notify_complete(0)
            harness.process(2).snapshot(1, end_of_input=True)
            with pytest.raises(NotAcknowledged, match=r"sink 'sink' has not acknowledged the records of epochs \[0, 1"):
                harness.notify_complete(1)
            # A restart commits the last checkpoint again.
            with pytest.raises(NotAcknowledged, match=r"\[1\]"):
                harness.crash()
            harness.crash()
        assert sink.sent == [1, 2]

    def test_the_committer_is_opened_and_closed_once(self):
        sink = ToAList()
        with SinkHarness(sink) as harness:
            harness.process(1).snapshot(0).notify_complete(0).process(2).snapshot(1).notify_complete(1)
        assert sink.committer.calls == ["create_resource", "open", "close"]
        assert sink.committer.operator_id == "sink"

    def test_records_have_their_declared_type(self):
        sink = ToAList(type_info=Types.TUPLE([Types.INT(), Types.STRING()]))
        with SinkHarness(sink) as harness:
            harness.process((1, "a"), (2, "b")).snapshot(0).notify_complete(0)
        assert sink.sent == [(1, "a"), (2, "b")]

    def test_pickled_records_are_sent_unchanged(self):
        sink = ToAList(type_info=Types.PICKLED_BYTE_ARRAY())
        records = [{"a": (1, None)}, None, b"bytes", [2], 1j, LastOnly]
        with SinkHarness(sink) as harness:
            harness.process(*records).snapshot(0).notify_complete(0)
        assert sink.sent == records

    def test_a_record_that_does_not_round_trip_is_rejected_in_the_task(self):
        with pytest.raises(Exception, match=r"The record \(1, 'a'\) cannot be written .* Declare the record type"):
            SinkHarness(ToAList()).process((1, "a"))

    def test_send_values_must_return_a_bool(self):
        sink = ToAList()
        sink.send_values = lambda values, checkpoint_id, timestamp: None
        with pytest.raises(Exception, match="send_values of sink 'sink' returned None"):
            SinkHarness(sink).process(1).snapshot(0).notify_complete(0)


def job(sink, **options):
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_collection(range(40), Types.INT()).uid("numbers").rebalance().add_sink(sink).uid("list")
    return JobHarness(env, parallelism=2, **options)


class TestInAJob:
    @pytest.mark.parametrize("point", POINTS)
    def test_every_record_is_sent_once_after_a_crash_at_any_point(self, point, storage):
        sink = ToAList({2: 3})
        with job(sink, storage=storage, settings=FILES) as harness:
            harness.epoch(10)
            harness.crash_at(point)
            harness.epoch(10)
            harness.run(10)
            assert harness.storage.list("pending/") == []
        assert sorted(sink.sent) == list(range(40))

    def test_a_driver_can_die_at_any_write(self, tmp_path):
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

    def test_a_job_restarts_at_its_end_until_all_records_are_acknowledged(self, storage):
        sink = ToAList({3: 2, 4: 6})
        env = StreamExecutionEnvironment.get_execution_environment()
        env.set_restart_strategy(RestartStrategies.fixed_delay_restart(9, 1))
        env.from_collection(range(40), Types.INT()).uid("numbers").rebalance().add_sink(sink).uid("list")
        with JobHarness(env, parallelism=2, storage=storage, settings=FILES) as harness:
            harness.run(10)
            assert harness.restarts == 2
            assert isinstance(harness.last_failure, NotAcknowledged)
        assert sorted(sink.sent) == list(range(40))

    def test_a_stopped_job_reports_unacknowledged_records(self, storage):
        with job(ToAList({1: 9}), storage=storage, settings=FILES) as harness:
            harness.epoch(10)
            with pytest.raises(NotAcknowledged, match=r"sink 'list' has not acknowledged the records of epochs \[1\]"):
                harness._driver.close()
