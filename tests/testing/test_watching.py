"""The harness detects a watermark that moves backwards."""

import pytest

from penstock.common import WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.driver.event_time import moved_backwards, times_after
from penstock.driver.report_totals import totals_of
from penstock.graph.builder import build
from penstock.runtime.assigning import TimestampsOperator
from penstock.runtime.event_time import ChannelTime, OperatorTime
from penstock.runtime.map_operators import MapOperator
from penstock.runtime.report import Report
from penstock.testing import JobHarness, WatermarkMovedBackwards

OWN = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda value, timestamp: value)


def stream():
    env = StreamExecutionEnvironment.get_execution_environment()
    task = env.from_collection([]).rebalance().map(lambda value: value).set_parallelism(1).uid("task")
    return task.assign_timestamps_and_watermarks(OWN).uid("stamped").map(lambda value: value).uid("map")


def test_a_backward_watermark_in_a_task_report_is_detected(monkeypatch):
    monkeypatch.setattr(TimestampsOperator, "stand", lambda *given: None)
    with JobHarness(stream()) as job:
        job.push(100).epoch()
        job.push(50)
        with pytest.raises(WatermarkMovedBackwards, match="subtask 0 of 'stamped' went from 99 back to 49"):
            job.epoch()


def test_a_backward_watermark_within_an_epoch_is_detected(monkeypatch):
    def advance(operator, watermark, channel=""):
        operator.watermark = watermark
        operator.mark(watermark, channel)

    monkeypatch.setattr(MapOperator, "advance", advance)
    monkeypatch.setattr(TimestampsOperator, "stand", lambda *given: None)
    monkeypatch.setattr(
        TimestampsOperator, "_reach", lambda operator, channel, watermark: operator.mark(-watermark, channel)
    )
    with JobHarness(stream()) as job:
        job.push(100, 200)
        with pytest.raises(WatermarkMovedBackwards, match="'map' went from -99 back to -199"):
            job.epoch()


def test_a_backward_watermark_between_checkpoints_is_detected():
    before = {
        "a": OperatorTime(subtasks=[5, 7]),
        "b": OperatorTime(subtasks=[5, 7]),
        "c": OperatorTime(
            channels={"x": ChannelTime(watermark=5, active_at=0), "gone": ChannelTime(watermark=9, active_at=0)}
        ),
        "d": OperatorTime(subtasks=[5], reached=5),
        "gone": OperatorTime(subtasks=[9]),
    }
    after = {
        "a": OperatorTime(subtasks=[6, 6]),
        "b": OperatorTime(subtasks=[4]),
        "c": OperatorTime(channels={"x": ChannelTime(watermark=4, active_at=0)}),
        "d": OperatorTime(subtasks=[5], reached=4),
    }
    assert sorted(moved_backwards(before, after)) == [
        "'a' went from 7 back to 6",
        "'b' went from 5 back to 4",
        "'c' went from 5 back to 4",
        "'d' went from 5 back to 4",
    ]
    assert list(moved_backwards(before, before)) == []


def test_the_driver_never_writes_a_smaller_watermark():
    env = stream().get_execution_environment()
    graph = build(env._graph, 1)
    chain = next(chain for chain in graph.chains if chain.source_uid is None)
    uids = [operator.uid for operator in chain.operators]
    before = {uid: OperatorTime(subtasks=[100], idle_subtasks=[False]) for uid in uids}
    report = Report(
        chain=chain.id,
        subtask=0,
        epoch=1,
        records_in=0,
        sent=[],
        received=[],
        operators=[],
        watermarks={uid: {"": 50} for uid in uids},
    )
    after = times_after(before, graph, totals_of([report]), 1)
    assert [after[uid].subtasks for uid in uids] == [[100]] * len(uids)
    assert list(moved_backwards(before, after)) == []
