"""The driver's metric totals: rates on its clock, attempts that must not count, and concurrent reads."""

import pytest

from penstock.datastream import StreamExecutionEnvironment
from penstock.driver.metrics import MetricTotals
from penstock.graph.builder import build
from penstock.runtime.metrics import NOWHERE, EdgeMetrics, OperatorMetrics, TaskMetrics


class Clock:
    """A manual clock, in seconds."""

    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def totals(clock):
    env = StreamExecutionEnvironment.get_execution_environment()
    counted = env.from_collection([]).uid("numbers").key_by(lambda n: n).process(lambda n, ctx: [n])
    counted.uid("count").print().uid("out")
    return MetricTotals(build(env._graph, parallelism=2, max_parallelism=16), clock)


def task(epoch, subtask=0, events=0, gauge=None, span=60):
    gauges = {} if gauge is None else {"g": gauge}
    measured = OperatorMetrics(
        uid="count", counters={"n": events}, gauges=gauges, meters={"m": (events, span)}, distributions={}
    )
    return TaskMetrics(chain=1, subtask=subtask, epoch=epoch, records_in=events, sent=[], operators=[measured])


BOTH = {1: {0, 1}}
"""The reported tasks, by chain."""


def add(totals, epoch, tasks, reported):
    metrics = totals.epoch(epoch)
    for each in tasks:
        metrics.add(each)
    totals.add(metrics, reported)


def test_a_rate_covers_the_time_span_and_decays_without_events(totals, clock):
    for epoch in range(1, 121):
        clock.now += 1
        add(totals, epoch, [task(epoch, 0, 3), task(epoch, 1, 1)], BOTH)
    assert totals.read()["count.m"].count == 480
    assert totals.read()["count.m"].rate == 4
    assert [meter.rate for meter in totals.read().subtasks("count.m").values()] == [3, 1]
    clock.now += 30
    assert totals.read()["count.m"].rate == 2
    clock.now += 30
    assert totals.read()["count.m"].rate == 0
    assert totals.read()["count.m"].count == 480


def test_subtasks_can_register_a_meter_with_different_time_spans(totals, clock):
    for epoch in range(1, 11):
        clock.now += 1
        add(totals, epoch, [task(epoch, 0, 6, span=2), task(epoch, 1, 6, span=60)], BOTH)
    assert [meter.rate for meter in totals.read().subtasks("count.m").values()] == [6, 1]
    clock.now += 2
    assert [meter.rate for meter in totals.read().subtasks("count.m").values()] == [0, 1]


def test_a_meter_keeps_a_bounded_number_of_steps(totals, clock):
    for epoch in range(1, 10_001):
        clock.now += 0.1
        add(totals, epoch, [task(epoch, 0, 1, span=100)], BOTH)
    (windows,) = totals._windows.values()
    (window,) = windows.values()
    assert len(window._steps) <= 61
    assert totals.read()["count.m"].rate == pytest.approx(10, rel=0.02)


def test_the_last_report_of_a_repeated_task_counts(totals):
    add(totals, 1, [task(1, 0, 5), task(1, 1, 7), task(1, 0, 6)], BOTH)
    assert totals.read().subtasks("count.n") == {0: 6, 1: 7}


def test_metrics_of_other_epochs_and_unreported_tasks_do_not_count(totals):
    add(totals, 1, [task(1, 0, 5)], BOTH)
    add(totals, 2, [task(2, 0, 1), task(1, 0, 5), task(2, 3, 100)], BOTH)
    assert totals.read().subtasks("count.n") == {0: 6}


def test_a_gauge_has_values_of_the_last_epoch_only(totals):
    add(totals, 1, [task(1, 0, gauge=5), task(1, 1, gauge=7)], BOTH)
    assert totals.read()["count.g"] == {0: 5, 1: 7}
    add(totals, 2, [task(2, 0, gauge=6), task(2, 1)], BOTH)
    assert totals.read()["count.g"] == {0: 6}
    assert "count.g" not in totals.read().counters()


def sending(subtask, records):
    edge = EdgeMetrics(edge=0, records=records, buffers=1, bytes=8 * records)
    return TaskMetrics(chain=0, subtask=subtask, epoch=1, records_in=records, sent=[edge], operators=[], place=NOWHERE)


def test_edges_count_for_their_sender_and_not_for_tasks_that_ran_again_or_are_unreported(totals):
    add(totals, 1, [sending(0, 5), sending(1, 70), sending(0, 6), sending(2, 800)], {0: {0, 1}})
    metrics = totals.read()
    assert metrics["numbers.numRecordsIn"] == metrics["numbers.numRecordsOut"] == 76
    assert metrics.subtasks("numbers.to.count.numBytesOut") == {0: 48, 1: 560}
    assert metrics["numbers.to.count.numBuffersOut"] == 2
