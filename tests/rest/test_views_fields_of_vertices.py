"""Every field of the answers about vertices and subtasks. Each field has another number."""

from __future__ import annotations

from typing import Any

import pytest
from numbered_answers import ATTEMPT, TASK_STATES, answer, io
from numbered_job import COUNT, NOW, SOURCE, numbered_job

pytestmark = pytest.mark.usefixtures("stopped_clock")

DURATIONS = {"CREATED": 20, "SCHEDULED": 30, "DEPLOYING": 40, "INITIALIZING": 50, "RUNNING": 860}


def of_two(one: int, two: int) -> dict[str, int]:
    """Statistics of two values, the first of which is less."""
    middle = (one + two) // 2
    return {
        "min": one,
        "max": two,
        "avg": middle,
        "sum": one + two,
        "median": one,
        "p25": one,
        "p75": two,
        "p95": two,
    }


def attempt(number: int, base: int, state: str, endpoint: str, manager: str) -> dict[str, Any]:
    return {
        "subtask": number,
        "status": state,
        "attempt": ATTEMPT,
        "endpoint": endpoint,
        "start-time": NOW - 860,
        "end-time": -1,
        "duration": 860,
        "metrics": io(base),
        "taskmanager-id": manager,
        "status-duration": DURATIONS,
        "other-concurrent-attempts": [],
        "start_time": NOW - 860,
    }


def aggregated(one: int, two: int) -> dict[str, Any]:
    places = {
        "read-bytes": 3,
        "read-records": 1,
        "write-bytes": 4,
        "write-records": 2,
        "accumulated-backpressured-time": 7,
        "accumulated-idle-time": 6,
        "accumulated-busy-time": 5,
    }
    return {
        "metrics": {name: of_two(one + place, two + place) for name, place in places.items()},
        "status-duration": {state: of_two(spent, spent) for state, spent in DURATIONS.items()},
    }


SUBTASKS = [
    attempt(0, 2100, "RUNNING", "address-0:700", "app-0"),
    # The executor is gone, so that only the host is known.
    attempt(1, 2200, "DEPLOYING", "host-2200", "app-gone"),
]


def test_a_vertex_and_its_subtasks() -> None:
    job, path = numbered_job(), "/jobs/:jobid/vertices/:vertexid"
    assert answer(path, job, vertexid=COUNT) == {
        "id": COUNT,
        "name": "count",
        "parallelism": 2001,
        "maxParallelism": 2002,
        "now": NOW,
        "subtasks": SUBTASKS,
        "aggregated": aggregated(2100, 2200),
    }
    assert answer(f"{path}/subtasks/:subtaskindex", job, vertexid=COUNT, subtaskindex="1") == SUBTASKS[1]
    of_attempt = {"vertexid": COUNT, "subtaskindex": "1", "attempt": str(ATTEMPT)}
    assert answer(f"{path}/subtasks/:subtaskindex/attempts/:attempt", job, **of_attempt) == SUBTASKS[1]
    times = dict.fromkeys(TASK_STATES, 0) | job.tasks_since_ms
    assert answer(f"{path}/subtasktimes", job, vertexid=COUNT) == {
        "id": COUNT,
        "name": "count",
        "now": NOW,
        "subtasks": [
            {"subtask": number, "endpoint": each["endpoint"], "duration": 860, "timestamps": times}
            for number, each in enumerate(SUBTASKS)
        ],
    }


def test_the_task_managers_of_a_vertex() -> None:
    found = answer("/jobs/:jobid/vertices/:vertexid/taskmanagers", numbered_job(), vertexid=COUNT)
    alone = [(2100, "RUNNING", "address-0:700", "app-0"), (2200, "DEPLOYING", "host-2200", "app-gone")]
    assert found == {
        "id": COUNT,
        "name": "count",
        "now": NOW,
        "taskmanagers": [
            {
                "endpoint": endpoint,
                "status": "INITIALIZING",
                "start-time": NOW - 860,
                "end-time": -1,
                "duration": 860,
                "metrics": io(base),
                "status-counts": TASK_STATES | {state: 1},
                "taskmanager-id": manager,
                "aggregated": {
                    "metrics": {
                        name: of_two(each["min"], each["min"]) | {"sum": each["min"]}
                        for name, each in aggregated(base, base)["metrics"].items()
                    },
                    "status-duration": {
                        name: of_two(spent, spent) | {"sum": spent} for name, spent in DURATIONS.items()
                    },
                },
            }
            for base, state, endpoint, manager in alone
        ],
    }


def test_the_back_pressure_of_a_vertex() -> None:
    def level(name: str) -> dict[str, str]:
        return {"backpressureLevel": name, "backpressure-level": name}

    def of_subtask(number: int, name: str, ratio: float, busy: float, idle: float) -> dict[str, Any]:
        return {
            "subtask": number,
            "attempt-number": ATTEMPT,
            **level(name),
            "ratio": ratio,
            "idleRatio": pytest.approx(idle),
            "busyRatio": busy,
            "other-concurrent-attempts": [],
        }

    path = "/jobs/:jobid/vertices/:vertexid/backpressure"
    assert answer(path, numbered_job(), vertexid=COUNT) == {
        "status": "ok",
        **level("high"),
        "end-timestamp": 36,
        "subtasks": [of_subtask(0, "high", 0.6, 0.1, 0.3), of_subtask(1, "low", 0.35, 0.15, 0.5)],
    }
    of_source = answer(path, numbered_job(), vertexid=SOURCE)
    assert [each["backpressureLevel"] for each in (of_source, *of_source["subtasks"])] == ["low", "ok", "low"]


def test_watermarks_and_accumulators_of_a_vertex() -> None:
    job, path = numbered_job(), "/jobs/:jobid/vertices/:vertexid"
    assert answer(f"{path}/watermarks", job, vertexid=COUNT) == [
        {"id": "0.currentInputWatermark", "value": "2112"},
        {"id": "1.currentInputWatermark", "value": "2212"},
    ]

    def counters(**found: int) -> list[dict[str, str]]:
        return [{"name": f"read-uid.{name}", "type": "LongCounter", "value": str(n)} for name, n in found.items()]

    of_all_subtasks = {"id": SOURCE, "user-accumulators": counters(bad=1307, seen=2611)}
    assert answer(f"{path}/accumulators", job, vertexid=SOURCE) == of_all_subtasks
    second = {"subtask": 1, "attempt": ATTEMPT, "user-accumulators": counters(seen=1306)}
    assert answer(f"{path}/subtasks/accumulators", job, vertexid=SOURCE) == {
        "id": SOURCE,
        "parallelism": 1001,
        "subtasks": [
            {
                "subtask": 0,
                "attempt": ATTEMPT,
                "endpoint": "address-0:700",
                "user-accumulators": counters(bad=1307, seen=1305),
            },
            second | {"endpoint": "address-1:701"},
        ],
    }
    of_attempt = {"vertexid": SOURCE, "subtaskindex": "1", "attempt": str(ATTEMPT)}
    found = answer(f"{path}/subtasks/:subtaskindex/attempts/:attempt/accumulators", job, **of_attempt)
    assert found == second | {"id": f"{SOURCE}_1_{ATTEMPT}"}
