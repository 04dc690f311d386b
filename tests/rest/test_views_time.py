"""Busy, idle and back-pressured time, on a clock that only the test advances."""

from __future__ import annotations

from typing import Any

import pytest
from snapshot_jobs import vertex_id, view

from penstock.common import Configuration
from penstock.connectors.generated import DataGeneratorSource
from penstock.datastream import StreamExecutionEnvironment
from penstock.testing import JobHarness


def five_stages() -> JobHarness:
    stream: Any = StreamExecutionEnvironment.get_execution_environment().from_collection([]).uid("in")
    for number in range(5):
        stream = stream.key_by(lambda value: value).map(lambda value: value).uid(f"stage{number}")
    return JobHarness(stream, parallelism=1)


def test_five_stages_that_share_a_cycle_are_saturated():
    with five_stages() as job:
        for number in range(5):
            job.set_pace(0.01, f"stage{number}")
        job.push(*range(20)).epoch()
        job.push(*range(20)).epoch()
        snapshot = job.snapshot()
    stages = [vertex for vertex in snapshot.vertices if vertex.level]
    assert [vertex.subtasks[0].busy for vertex in stages] == [pytest.approx(1.0)] * 5
    assert snapshot.recent_epochs[-1].stages_ms == [0.0, *[pytest.approx(200.0)] * 5, 0.0]
    assert [vertex.driver_metrics["stageTimeMsPerSecond"] for vertex in stages] == [pytest.approx(200)] * 5
    found = view("/vertices/:vertexid/backpressure", snapshot, vertexid=stages[0].id)["subtasks"][0]
    assert (found["busyRatio"], found["idleRatio"], found["ratio"]) == (pytest.approx(1), pytest.approx(0), 0)
    assert stages[0].totals.busy_ms == pytest.approx(2000)


def test_a_job_that_waits_for_input_is_idle():
    with five_stages() as job:
        job.set_pace(0.01, "stage0")
        job.push(*range(10)).epoch()
        job.set_clock(job.clock.now() + 900)
        job.push(*range(10)).epoch()
        snapshot = job.snapshot()
    stage = next(vertex for vertex in snapshot.vertices if vertex.uid == "stage0")
    assert stage.subtasks[0].busy == pytest.approx(0.1)
    values = view(
        "/vertices/:vertexid/subtasks/:subtaskindex/metrics",
        snapshot,
        {"get": "busyTimeMsPerSecond,idleTimeMsPerSecond,backPressuredTimeMsPerSecond,numRecordsInPerSecond"},
        vertexid=stage.id,
        subtaskindex="0",
    )
    found = {each["id"]: float(each["value"]) for each in values}
    assert found["busyTimeMsPerSecond"] == pytest.approx(100)
    assert found["idleTimeMsPerSecond"] == pytest.approx(900)
    assert found["backPressuredTimeMsPerSecond"] == 0
    assert found["numRecordsInPerSecond"] == pytest.approx(10)


def test_a_source_held_back_by_its_credits_is_back_pressured_and_no_other_vertex_is():
    settings = Configuration.from_dict({"penstock.flow.target-epoch-time": "1 s"})
    env = StreamExecutionEnvironment.get_execution_environment(settings)
    stream = env.from_source(DataGeneratorSource(lambda n: n, 10**9)).uid("numbers")
    with JobHarness(stream.key_by(lambda n: n % 7).map(lambda n: 1).uid("work"), parallelism=2) as job:
        job.set_pace(0.001, "work")
        for _ in range(5):
            job.epoch()
        pressure, credits = job.metrics()["numbers.backPressure"], job.metrics()["numbers.credits"]
        snapshot = job.snapshot()
    source, work = vertex_id(snapshot, "numbers"), vertex_id(snapshot, "work")
    held = view("/vertices/:vertexid/backpressure", snapshot, vertexid=source)
    assert (held["backpressure-level"], held["backpressureLevel"], held["status"]) == ("high", "high", "ok")
    assert {each["ratio"] for each in held["subtasks"]} == {pressure}
    assert all(each["ratio"] + each["busyRatio"] + each["idleRatio"] <= 1.0001 for each in held["subtasks"])
    free = view("/vertices/:vertexid/backpressure", snapshot, vertexid=work)
    assert (free["backpressure-level"], {each["ratio"] for each in free["subtasks"]}) == ("ok", {0.0})
    gauges = view("/vertices/:vertexid/jm-operator-metrics", snapshot, {"get": "credits"}, vertexid=source)
    assert gauges == [{"id": "credits", "value": str(credits)}]


def test_a_subtask_with_less_work_is_less_busy():
    stream = StreamExecutionEnvironment.get_execution_environment().from_collection([]).uid("in")
    with JobHarness(stream.key_by(lambda value: value).map(lambda value: value).uid("work"), parallelism=2) as job:
        job.set_pace(0.01, "work")
        job.push(*range(40)).epoch()
        records = job.metrics().subtasks("work.numRecordsIn")
        work = next(vertex for vertex in job.snapshot().vertices if vertex.uid == "work")
    most = max(records.values())
    assert min(records.values()) < most
    assert [each.busy for each in work.subtasks] == [pytest.approx(records[number] / most) for number in (0, 1)]
