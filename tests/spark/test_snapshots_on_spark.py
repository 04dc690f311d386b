"""Snapshots of jobs on Spark: what they say about executors, slots, records and states equals what Spark reports."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from programs import Count, words

from penstock.common.machine import physical_memory
from penstock.driver.job_snapshot import JobSnapshot
from penstock.driver.process_facts import thread_dump
from penstock.errors import PenstockError
from penstock.rest.views import VIEWS
from penstock.rest.views.processes import environment_info, thread_dump_info
from penstock.spark.executors import slot_counter

pytestmark = pytest.mark.spark

WORDS = words(60, 5)


def counted(env: Any) -> Any:
    stream = env.from_collection(WORDS).uid("words").key_by(lambda word: word).process(Count()).uid("count")
    stream.print().uid("out")
    return env


def until(condition: Any) -> Any:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError("the condition was never met")


def test_a_finished_job_reports_the_records_and_executors_that_spark_has(make_env: Any, session: Any) -> None:
    env = counted(make_env(parallelism=2, records=7, checkpoints=True))
    client = env.execute_async("snapshots")
    result = client.get_job_execution_result().result()
    job = client._job
    snapshot = job.snapshot()
    assert msgspec.json.decode(msgspec.json.encode(snapshot), type=JobSnapshot) == snapshot
    assert (snapshot.id, snapshot.name, snapshot.state) == (job.id, "snapshots", "FINISHED")
    assert snapshot.started_ms <= snapshot.state_since_ms["RUNNING"] <= snapshot.ended_ms

    source, count = snapshot.vertices[:2]
    metrics = result.metrics
    assert source.totals.records_in == source.totals.records_out == count.totals.records_in == len(WORDS)
    assert source.totals.bytes_out == count.totals.bytes_in == metrics["words.numBytesOut"] > 0
    by_subtask = {number: each.records_in for number, each in enumerate(count.subtasks)}
    assert by_subtask == metrics.subtasks("count.numRecordsIn")
    assert snapshot.epochs == metrics.epoch == len(result.epochs)
    assert [epoch.records for epoch in snapshot.recent_epochs] == [epoch.records for epoch in result.epochs]
    assert snapshot.checkpoints.completed == job.driver.checkpoints.completed == len(result.epochs)

    context = session.sparkContext
    assert snapshot.application == context.applicationId
    assert {each.executor for each in count.subtasks} == {"driver"}
    tracked = context._jsc.sc().statusTracker().getExecutorInfos()
    assert [each.address for each in snapshot.executors] == [f"{each.host()}:{each.port()}" for each in tracked]
    assert sum(each.slots for each in snapshot.executors) == slot_counter(session)() == 2
    assert snapshot.executors[0].heap_max == context._jvm.java.lang.Runtime.getRuntime().maxMemory()
    assert 0 < snapshot.executors[0].heap_used <= snapshot.executors[0].heap_max
    assert snapshot.executors[0].physical_memory == physical_memory()
    assert snapshot.executors[0].python_workers >= 1
    assert snapshot.executors[0].python_memory > 10 << 20
    assert 0 < snapshot.executors[0].disk_free <= snapshot.executors[0].disk_total
    held = snapshot.executors[0]
    assert (held.host, held.directory) == (socket.gethostname(), "")
    assert (held.blocks, held.block_bytes, held.logs) == (16, snapshot.recent_epochs[-1].state_bytes, {})
    assert (snapshot.slots.needed, snapshot.slots.available) == (2, 2)


def test_a_job_that_waits_for_slots_says_so_in_its_snapshot(make_env: Any) -> None:
    env = counted(make_env(parallelism=5, **{"penstock__slots__wait": "true"}))
    client = env.execute_async("waiting")
    try:
        waiting = until(lambda: (found := client._job.snapshot()).slots.waits and found)
        assert (waiting.slots.needed, waiting.slots.available, waiting.slots.takes_turns) == (5, 2, False)
        assert waiting.reason == "The job needs 5 slots, but Spark has 2. It waits for them."
        assert waiting.vertices[1].tasks == {"SCHEDULED": 5}
        listed = until(lambda: VIEWS["/taskmanagers"]([client._job.snapshot()], {}, {}).taskmanagers)
        assert [each.slots_number for each in listed] == [2]
        overview = VIEWS["/overview"]([client._job.snapshot()], {}, {})
        assert (overview.jobs_running, overview.slots_total, overview.taskmanagers) == (1, 2, 1)
    finally:
        client.cancel().result()
    cancelled = client._job.snapshot()
    assert cancelled.state == "CANCELED"
    assert not cancelled.exceptions
    assert cancelled.ended_ms >= cancelled.state_since_ms["CANCELLING"]


def test_a_failed_job_names_the_task_and_the_error(make_env: Any) -> None:
    env = make_env(parallelism=2)
    env.from_collection(["a", "b"]).uid("in").key_by(lambda word: word).map(lambda word: 1 / 0).name("divide").uid(
        "divide"
    ).print()
    client = env.execute_async("failing")
    with pytest.raises(PenstockError):
        client.get_job_execution_result().result()
    snapshot = client._job.snapshot()
    assert snapshot.state == "FAILED"
    (failure,) = snapshot.exceptions
    assert failure.name == "ZeroDivisionError"
    assert "1 / 0" in failure.trace
    assert (failure.host, failure.executor) == (socket.gethostname(), "driver")
    failed = [
        f"{vertex.name} ({number + 1}/2)"
        for vertex in snapshot.vertices
        for number, each in enumerate(vertex.subtasks)
        if each.state == "FAILED"
    ]
    assert failed == [failure.task]
    answer = VIEWS["/jobs/:jobid/execution-result"](snapshot, {}, {}).job_execution_result
    assert answer["application-status"] == "FAILED"
    assert answer["failure-cause"]["class"] == "ZeroDivisionError"


def test_the_environment_and_threads_of_a_driver_come_from_its_process(make_env: Any, session: Any) -> None:
    env = counted(make_env())
    client = env.execute_async("environment")
    client.get_job_execution_result().result()
    answer = environment_info(client._job.environment())
    properties = session.sparkContext._jvm.java.lang.System
    assert properties.getProperty("java.version") in answer.jvm.version
    assert set(properties.getProperty("java.class.path").split(":")) <= set(answer.classpath)
    names = {each.thread_name for each in thread_dump_info(thread_dump()).thread_infos}
    assert "MainThread" in names


@pytest.mark.slow
def test_subtasks_name_the_executors_that_sparks_rest_interface_lists(tmp_path: Path) -> None:
    script = Path(__file__).with_name("snapshot_job.py")
    path = os.pathsep.join(filter(None, [str(script.parents[2]), os.environ.get("PYTHONPATH", "")]))
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": path},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads((tmp_path / "said.json").read_text())
    snapshot = msgspec.convert(said["snapshot"], type=JobSnapshot)
    expected = {each["id"]: each for each in said["executors"]}
    assert snapshot.application == said["application"]
    assert {each.id: (each.address, each.cores, each.slots) for each in snapshot.executors} == {
        key: (each["hostPort"], each["totalCores"], each["maxTasks"]) for key, each in expected.items()
    }
    assert {each.heap_max for each in snapshot.executors} == {1024 * 1024 * 1024}
    assert {each.physical_memory for each in snapshot.executors} == {physical_memory()}
    assert min(each.python_memory for each in snapshot.executors) > 10 << 20
    assert min(each.python_workers for each in snapshot.executors) >= 1
    assert {each.id: each.logs for each in snapshot.executors} == {
        key: each["executorLogs"] for key, each in expected.items()
    }
    assert all(each.logs["stderr"].startswith("http://") for each in snapshot.executors)
    for key in expected:
        assert f"--executor-id {key}" in " ".join(said["logs"][f"executor {key}: stderr"].replace('"', "").split())
    assert sum(each.blocks for each in snapshot.executors) == 16
    assert sum(each.block_bytes for each in snapshot.executors) == snapshot.recent_epochs[-1].state_bytes > 0
    ran = {each.executor for vertex in snapshot.vertices if vertex.level for each in vertex.subtasks}
    assert ran
    assert ran <= set(expected)
    assert sum(each.records_in for each in snapshot.vertices[1].subtasks) == 80
