"""Statistics of a job's checkpoints."""

import pytest

from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.functions import KeyedProcessFunction
from penstock.datastream.state import ValueStateDescriptor
from penstock.driver.epoch_errors import EpochFailed
from penstock.driver.epoch_settings import Settings
from penstock.testing import JobHarness


class Remember(KeyedProcessFunction):
    def open(self, runtime_context):
        self.last = runtime_context.get_state(ValueStateDescriptor("last", str))

    def process_element(self, value, ctx):
        if value == "fail":
            raise ValueError("no")
        self.last.update(value)
        yield value


@pytest.fixture
def job():
    env = StreamExecutionEnvironment.get_execution_environment()
    stream = env.from_collection([]).key_by(lambda value: value).process(Remember()).name("remember").uid("r")
    with JobHarness(stream, parallelism=2, backend="filesystem", settings=Settings(retries=0)) as harness:
        yield harness


def test_a_completed_checkpoint_has_sizes_and_acknowledgements(job):
    job.set_clock(1000)
    job.push(*"abcdefgh").epoch()
    latest = job.checkpoints.latest_completed
    operator = next(each for each in latest.operators if each.uid == "r")
    assert (latest.id, latest.status, latest.triggered_at) == (1, "COMPLETED", 1000)
    assert (operator.uid, operator.name) == ("r", "remember")
    assert [each.subtask for each in operator.subtasks] == [0, 1]
    assert sum(each.delta_entries for each in operator.subtasks) == 8
    assert latest.delta_bytes == operator.delta_bytes == sum(each.delta_bytes for each in operator.subtasks) > 0
    assert latest.state_bytes == operator.state_bytes >= operator.delta_bytes
    assert all(each.acknowledged_ms is not None for each in operator.subtasks)


def test_checkpoints_before_the_last_ten_are_remembered_without_subtasks(job):
    for number in range(12):
        job.push(str(number)).epoch()
    listed = [[len(operator.subtasks) for operator in each.operators if operator.uid == "r"] for each in
              job.checkpoints.recent]  # fmt: skip
    assert listed == [[0]] * 2 + [[2]] * 10
    assert all(operator.state_bytes for each in job.checkpoints.recent for operator in each.operators
               if operator.uid == "r")  # fmt: skip


def test_a_failed_checkpoint_is_counted_with_its_reason(job):
    job.push("a").epoch()
    job.push("fail")
    with pytest.raises(EpochFailed):
        job.epoch()
    history = job.checkpoints
    assert (history.completed, history.failed) == (1, 1)
    assert history.latest_failed.id == 2
    assert "ValueError: no" in history.latest_failed.failure
    assert [each.status for each in history.recent] == ["COMPLETED", "DECLINED"]


def test_the_restored_checkpoint_is_recorded_after_a_recovery(job):
    job.push("a").epoch()
    job.push("b").epoch()
    job.crash()
    assert job.checkpoints.restored == 2
    job.push("c").epoch()
    assert job.checkpoints.latest_completed.id == 3


def test_details_of_the_last_hundred_checkpoints_are_kept(job):
    for number in range(110):
        job.push(str(number)).epoch()
    assert job.checkpoints.completed == 110
    assert [each.id for each in job.checkpoints.recent] == list(range(11, 111))
