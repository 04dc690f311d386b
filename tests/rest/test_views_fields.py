"""Every field of the answers about a job, its checkpoints and its failures. Each field has another number."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from msgspec.structs import replace
from numbered_answers import TASK_STATES, answer, io, of_all
from numbered_job import COUNT, JOB, NOW, SOURCE, STATES, numbered_job, numbers_in

pytestmark = pytest.mark.usefixtures("stopped_clock")

SINCE = {state: NOW - 80_000 + 1000 * number for number, state in enumerate(STATES)}


def stats(base: int) -> dict[str, float]:
    found: dict[str, float] = {"min": base + 1, "max": base + 2, "avg": base + 3}
    return found | {"p50": base + 4.5, "p90": base + 5.5, "p95": base + 6.5, "p99": base + 7.5, "p999": base + 8.5}


NONE = dict.fromkeys(("min", "max", "avg", "p50", "p90", "p95", "p99", "p999"), 0)


def test_every_number_of_the_job_is_different() -> None:
    found = Counter(number for number in numbers_in(numbered_job()) if number not in (0, -1))
    assert [number for number, times in found.items() if times > 1] == []
    assert len(found) > 300


def test_a_job() -> None:
    nodes = [
        {
            "id": id,
            "operator": "",
            "parallelism": parallelism,
            "operator_strategy": "",
            "description": name,
            "optimizer_properties": {},
            "inputs": inputs,
        }
        for id, name, parallelism, inputs in (
            (SOURCE, "read", 1001, []),
            (
                *(COUNT, "count", 2001),
                [
                    {
                        "id": SOURCE,
                        "num": 0,
                        "exchange": "blocking",
                        "ship_strategy": "HASH",
                        "local_strategy": "",
                        "caching": "",
                    }
                ],
            ),
        )
    ]
    plan = {"jid": JOB, "name": "numbered", "type": "STREAMING", "nodes": nodes}
    assert answer("/jobs/:jobid/plan", numbered_job()) == {"plan": plan}
    assert answer("/jobs/:jobid", numbered_job()) == {
        "jid": JOB,
        "application-id": JOB,
        "name": "numbered",
        "isStoppable": True,
        "state": "RUNNING",
        "job-type": "STREAMING",
        "schedulerType": "Adaptive",
        "start-time": NOW - 90_000,
        "end-time": -1,
        "duration": 90_000,
        "maxParallelism": 24,
        "now": NOW,
        "timestamps": SINCE,
        "vertices": [
            {
                "id": id,
                "slotSharingGroupId": "0" * 32,
                "name": name,
                "maxParallelism": base + 2,
                "parallelism": base + 1,
                "status": state,
                "start-time": NOW - 860,
                "end-time": -1,
                "duration": 860,
                "tasks": TASK_STATES | tasks,
                "metrics": io(base + 60),
            }
            for id, name, base, state, tasks in (
                (SOURCE, "read", 1000, "RUNNING", {"RUNNING": 13, "INITIALIZING": 14}),
                (COUNT, "count", 2000, "INITIALIZING", {"RUNNING": 15, "DEPLOYING": 16}),
            )
        ],
        "status-counts": TASK_STATES | {"RUNNING": 28, "INITIALIZING": 14, "DEPLOYING": 16},
        "plan": plan,
        "stream-graph": {"nodes": [{"id": 25}]},
        "pending-operators": 0,
    }
    assert answer("/jobs/:jobid/status", numbered_job()) == {"status": "RUNNING"}


def test_the_overview_of_jobs() -> None:
    ended = replace(numbered_job(), id="e" * 32, state="FINISHED", ended_ms=NOW - 7)
    counts = {state.lower(): 0 for state in TASK_STATES}
    line = {
        "jid": JOB,
        "name": "numbered",
        "jobType": "STREAMING",
        "schedulerType": "Adaptive",
        "start-time": NOW - 90_000,
        "end-time": -1,
        "duration": 90_000,
        "state": "RUNNING",
        "last-modification": max(SINCE.values()),
        "tasks": counts | {"running": 28, "initializing": 14, "deploying": 16, "total": 58},
        "pending-operators": 0,
    }
    over = line | {"jid": "e" * 32, "state": "FINISHED", "end-time": NOW - 7, "duration": 89_993}
    assert of_all("/jobs/overview", [numbered_job(), ended]) == {"jobs": [line, over]}
    assert of_all("/jobs", [numbered_job(), ended]) == {
        "jobs": [{"id": JOB, "status": "RUNNING"}, {"id": "e" * 32, "status": "FINISHED"}]
    }


def test_the_configuration_of_a_job() -> None:
    job = numbered_job()
    assert answer("/jobs/:jobid/config", job) == {
        "jid": JOB,
        "name": "numbered",
        "execution-config": {
            "execution-mode": "PIPELINED",
            "restart-strategy": "fixed delay, 64 attempts",
            "job-parallelism": 23,
            "object-reuse-mode": False,
            "user-config": {"threshold": "63"},
        },
    }
    batch = answer("/jobs/:jobid/config", replace(job, batch=True))
    assert batch["execution-config"]["execution-mode"] == "BATCH"
    assert answer("/jobs/:jobid/jobmanager/config", job) == [
        {"key": "a.key", "value": "62"},
        {"key": "b.key", "value": "61"},
    ]
    assert answer("/jobs/:jobid/resource-requirements", job) == {
        "jobVertexResourceRequirements": {
            id: {"parallelism": {"lowerBound": 1, "upperBound": bound}} for id, bound in ((SOURCE, 1001), (COUNT, 2001))
        }
    }


def test_the_configuration_of_checkpoints() -> None:
    job = numbered_job()
    expected = {
        "mode": "exactly_once",
        "interval": 51,
        "timeout": 52,
        "min_pause": 53,
        "max_concurrent": 1,
        "externalization": {"enabled": False, "delete_on_cancellation": True},
        "state_backend": "rocksdb",
        "checkpoint_storage": "FileSystemCheckpointStorage",
        "unaligned_checkpoints": False,
        "tolerable_failed_checkpoints": 54,
        "aligned_checkpoint_timeout": 0,
        "checkpoints_after_tasks_finish": True,
        "state_changelog_enabled": False,
        "changelog_periodic_materialization_interval": 0,
        "changelog_storage": "",
    }
    path = "/jobs/:jobid/checkpoints/config"
    assert answer(path, job) == expected
    others = replace(job.checkpointing, enabled=False, exactly_once=False, retained=True, storage="")
    assert answer(path, replace(job, checkpointing=others)) == expected | {
        "mode": "at_least_once",
        "interval": 2**63 - 1,
        "externalization": {"enabled": True, "delete_on_cancellation": False},
        "checkpoint_storage": "JobManagerCheckpointStorage",
    }


def checkpoint(base: int, status: str, kind: str, **more: Any) -> dict[str, Any]:
    return {
        "id": base + 1,
        "status": status,
        "is_savepoint": kind != "CHECKPOINT",
        "savepointFormat": "CANONICAL" if kind != "CHECKPOINT" else "",
        "trigger_timestamp": base + 2,
        "latest_ack_timestamp": base + 3,
        "checkpointed_size": base + 5,
        "state_size": base + 6,
        "end_to_end_duration": base + 4,
        "alignment_buffered": 0,
        "processed_data": 0,
        "persisted_data": 0,
        "num_subtasks": base + 7,
        "num_acknowledged_subtasks": base + 8,
        "checkpoint_type": kind,
        "tasks": {},
    } | more


def test_checkpoints() -> None:
    assert answer("/jobs/:jobid/checkpoints", numbered_job()) == {
        "counts": {"restored": 41, "total": 48_720, "in_progress": 44_000, "completed": 420, "failed": 4_300},
        "summary": {
            "checkpointed_size": stats(4600),
            "state_size": stats(4700),
            "end_to_end_duration": stats(4800),
            "alignment_buffered": NONE,
            "processed_data": NONE,
            "persisted_data": NONE,
        },
        "latest": {
            "completed": checkpoint(5000, "COMPLETED", "CHECKPOINT", external_path="/checkpoint/5000", discarded=False),
            "savepoint": checkpoint(6000, "COMPLETED", "SAVEPOINT", external_path="/checkpoint/6000", discarded=False),
            "failed": checkpoint(7000, "FAILED", "CHECKPOINT", failure_timestamp=7009, failure_message="failure 7000"),
            "restored": {"id": 45, "restore_timestamp": 46, "is_savepoint": True, "external_path": "/restored"},
        },
        "history": [
            checkpoint(8000, "COMPLETED", "SYNC_SAVEPOINT"),
            checkpoint(5000, "COMPLETED", "CHECKPOINT"),
        ],
    }


@pytest.mark.parametrize(
    ("state", "retained", "discarded"),
    [
        ("RUNNING", False, False),
        ("FAILED", False, False),
        ("SUSPENDED", False, False),
        ("FINISHED", False, True),
        ("CANCELED", False, True),
        ("CANCELED", True, False),
    ],
)
def test_checkpoints_of_an_ended_job_are_discarded_unless_they_are_retained(
    state: str, retained: bool, discarded: bool
) -> None:
    job = numbered_job()
    job = replace(job, state=state, ended_ms=NOW, checkpointing=replace(job.checkpointing, retained=retained))
    latest = answer("/jobs/:jobid/checkpoints", job)["latest"]
    assert (latest["completed"]["discarded"], latest["savepoint"]["discarded"]) == (discarded, False)


def test_the_details_of_a_checkpoint() -> None:
    def of_task(base: int, subtasks: int, acknowledged: int) -> dict[str, Any]:
        return {
            "id": 5001,
            "status": "COMPLETED",
            "latest_ack_timestamp": base + 1,
            "checkpointed_size": base + 2,
            "state_size": base + 3,
            "end_to_end_duration": base + 4,
            "alignment_buffered": 0,
            "processed_data": 0,
            "persisted_data": 0,
            "num_subtasks": subtasks,
            "num_acknowledged_subtasks": acknowledged,
        }

    path = "/jobs/:jobid/checkpoints/details/:checkpointid"
    tasks = {SOURCE: of_task(5100, 3, 3), COUNT: of_task(5300, 4, 2)}
    assert answer(path, numbered_job(), checkpointid="5001") == checkpoint(5000, "COMPLETED", "CHECKPOINT", tasks=tasks)
    assert answer(f"{path}/subtasks/:vertexid", numbered_job(), checkpointid="5001", vertexid=COUNT) == {
        **of_task(5300, 4, 2),
        "summary": {
            "checkpointed_size": stats(5310),
            "state_size": stats(5320),
            "end_to_end_duration": stats(5330),
            "checkpoint_duration": {"sync": stats(5340), "async": NONE},
            "alignment": {"buffered": NONE, "processed": NONE, "persisted": NONE, "duration": NONE},
            "start_delay": stats(5350),
        },
        "subtasks": [
            {"index": number, "status": "completed" if number in (0, 2) else "pending_or_failed"} for number in range(4)
        ],
    }


def test_exceptions_and_results() -> None:
    def entry(base: int) -> dict[str, Any]:
        return {
            "exceptionName": f"Error{base}",
            "stacktrace": f"trace {base}",
            "timestamp": base + 1,
            "failureLabels": {"attempt": str(base + 2), "restart": str(base + 3)},
            "taskName": f"task {base}",
            "endpoint": "address-1:701",
            "taskManagerId": "app-1",
        }

    entries = [
        {**entry(3100), "concurrentExceptions": [entry(3200)]},
        {**entry(3000), "concurrentExceptions": []},
    ]
    assert answer("/jobs/:jobid/exceptions", numbered_job()) == {
        "exceptionHistory": {"entries": entries, "truncated": False}
    }
    failed = replace(numbered_job(), state="FAILED", ended_ms=NOW - 3)
    assert answer("/jobs/:jobid/execution-result", failed) == {
        "status": {"id": "COMPLETED"},
        "job-execution-result": {
            "id": JOB,
            "application-status": "FAILED",
            "accumulator-results": {},
            "net-runtime": 89_997,
            "failure-cause": {"class": "Error3100", "stack-trace": "trace 3100", "serialized-throwable": ""},
        },
    }
    counters = {"count-uid.late": 4607, "read-uid.bad": 1307, "read-uid.seen": 2611}
    assert answer("/jobs/:jobid/accumulators", numbered_job()) == {
        "job-accumulators": [],
        "user-task-accumulators": [
            {"name": name, "type": "LongCounter", "value": str(value)} for name, value in counters.items()
        ],
        "serialized-user-task-accumulators": {},
    }
