"""A job with a different number in every field, so that an answer which takes the wrong one is found."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from penstock.driver.job_snapshot import (
    CheckpointFacts,
    CheckpointSnapshot,
    CheckpointsSnapshot,
    CheckpointSummary,
    EpochSnapshot,
    ExceptionSnapshot,
    ExecutorSnapshot,
    JobSnapshot,
    OperatorFacts,
    RestoredCheckpoint,
    SlotsSnapshot,
    SubtaskSnapshot,
    TaskCheckpoint,
    VertexInput,
    VertexSnapshot,
)

NOW = 1_800_000_000_000
"""What the clock shows while answers are made."""
JOB, SOURCE, COUNT = "a" * 32, "b" * 32, "c" * 32
STATES = (
    *("INITIALIZING", "CREATED", "RUNNING", "FAILING", "FAILED", "CANCELLING", "CANCELED", "FINISHED", "RESTARTING"),
    *("SUSPENDED", "RECONCILING"),
)


def subtask(base: int, busy: float, backpressured: float, executor: str, state: str) -> SubtaskSnapshot:
    return SubtaskSnapshot(
        state=state,
        host=f"host-{base}",
        executor=executor,
        records_in=base + 1,
        records_out=base + 2,
        bytes_in=base + 3,
        bytes_out=base + 4,
        busy_ms=base + 5.25,
        idle_ms=base + 6.0,
        backpressured_ms=base + 7.0,
        busy=busy,
        backpressured=backpressured,
        records_in_rate=base + 8.5,
        records_out_rate=base + 9.5,
        bytes_in_rate=base + 10.5,
        bytes_out_rate=base + 11.5,
        watermark=base + 12,
    )


def summary(base: int) -> CheckpointSummary:
    return CheckpointSummary(
        min=base + 1,
        max=base + 2,
        avg=base + 3,
        p50=base + 4.5,
        p90=base + 5.5,
        p95=base + 6.5,
        p99=base + 7.5,
        p999=base + 8.5,
    )


def task(vertex: str, base: int, subtasks: int, missing: list[int]) -> TaskCheckpoint:
    return TaskCheckpoint(
        vertex=vertex,
        subtasks=subtasks,
        missing=missing,
        latest_ack_ms=base + 1,
        checkpointed_bytes=base + 2,
        state_bytes=base + 3,
        duration_ms=base + 4,
        checkpointed=summary(base + 10),
        state=summary(base + 20),
        duration=summary(base + 30),
        sync_duration=summary(base + 40),
        start_delay=summary(base + 50),
    )


def checkpoint(base: int, status: str, **changes: Any) -> CheckpointSnapshot:
    facts = {
        "id": base + 1,
        "triggered_ms": base + 2,
        "latest_ack_ms": base + 3,
        "duration_ms": base + 4,
        "checkpointed_bytes": base + 5,
        "state_bytes": base + 6,
        "subtasks": base + 7,
        "acknowledged": base + 8,
        "path": f"/checkpoint/{base}",
        "failed_ms": base + 9,
        "failure": f"failure {base}",
    }
    return CheckpointSnapshot(status=status, **(facts | changes))


def executor(number: int, base: int, cores: int, slots: int, active: int, excluded: bool) -> ExecutorSnapshot:
    return ExecutorSnapshot(
        id=str(number),
        address=f"address-{number}:70{number}",
        cores=cores,
        slots=slots,
        active_tasks=active,
        excluded=excluded,
        heap_max=slots * (base + 1),
        heap_used=base + 2,
        heap_committed=base + 3,
        storage_memory_max=base + 4,
        storage_memory_used=base + 5,
        off_heap_used=base + 6,
        physical_memory=base + 7,
        seen_ms=base + 8,
        python_memory=base + 13,
        python_workers=base + 14,
        disk_total=base + 15,
        disk_free=base + 16,
        blocks=base + 17,
        block_bytes=base + 18,
        standby_blocks=base + 19,
        standby_bytes=base + 20,
        collectors={"Young": (base + 9, base + 10), "Old": (base + 11, base + 12)},
    )


def vertex(id: str, name: str, base: int, level: int, **parts: Any) -> VertexSnapshot:
    return VertexSnapshot(
        id=id,
        uid=f"{name}-uid",
        name=name,
        level=level,
        parallelism=base + 1,
        max_parallelism=base + 2,
        operators=[OperatorFacts(uid=f"{name}-uid", name=name, kind="Map")],
        totals=subtask(base + 60, base / 30_000, base / 70_000, "", "RUNNING"),
        **parts,
    )


def numbered_job() -> JobSnapshot:
    source = vertex(
        *(SOURCE, "read", 1000, 0),
        subtasks=[subtask(1100, 0.25, 0.05, "0", "RUNNING"), subtask(1200, 0.3, 0.2, "1", "INITIALIZING")],
        tasks={"RUNNING": 13, "INITIALIZING": 14},
        state="RUNNING",
        metrics={"read-uid.lag": [1301, 1302]},
        driver_metrics={"credits": 1303, "pending": 1304},
        counters={"read-uid.seen": [1305, 1306], "read-uid.bad": [1307, None]},
    )
    count = vertex(
        *(COUNT, "count", 2000, 1),
        inputs=[VertexInput(vertex=SOURCE, strategy="HASH")],
        subtasks=[subtask(2100, 0.1, 0.6, "0", "RUNNING"), subtask(2200, 0.15, 0.35, "gone", "DEPLOYING")],
        tasks={"RUNNING": 15, "DEPLOYING": 16},
        state="INITIALIZING",
        metrics={"count-uid.keys": [2301, 2302]},
        counters={"count-uid.late": [2303, 2304]},
    )
    done = checkpoint(5000, "COMPLETED", tasks=[task(SOURCE, 5100, 3, []), task(COUNT, 5300, 4, [1, 3])])
    return JobSnapshot(
        id=JOB,
        name="numbered",
        state="RUNNING",
        attempt=21,
        started_ms=NOW - 90_000,
        state_since_ms={state: NOW - 80_000 + 1000 * number for number, state in enumerate(STATES)},
        restarts=22,
        taken_ms=NOW - 500,
        stoppable=True,
        application="app",
        parallelism=23,
        max_parallelism=24,
        tasks_since_ms={
            "CREATED": NOW - 1000,
            "SCHEDULED": NOW - 980,
            "DEPLOYING": NOW - 950,
            "INITIALIZING": NOW - 910,
            "RUNNING": NOW - 860,
        },
        vertices=[source, count],
        plan='{"nodes": [{"id": 25}]}',
        epochs=26,
        recent_epochs=[
            EpochSnapshot(number=71, records=72, duration_ms=73.0, cycle_ms=74.0, state_bytes=75, ended_ms=76),
            EpochSnapshot(number=31, records=32, duration_ms=33.0, cycle_ms=34.0, state_bytes=35, ended_ms=36),
        ],
        checkpoints=CheckpointsSnapshot(
            restored=41,
            completed=420,
            failed=4300,
            in_progress=44000,
            latest_completed=done,
            latest_savepoint=checkpoint(6000, "COMPLETED", savepoint=True),
            latest_failed=checkpoint(7000, "FAILED"),
            latest_restored=RestoredCheckpoint(id=45, restored_ms=46, savepoint=True, path="/restored"),
            history=[checkpoint(8000, "COMPLETED", savepoint=True, ends_job=True), done],
            checkpointed=summary(4600),
            state=summary(4700),
            duration=summary(4800),
        ),
        checkpointing=CheckpointFacts(
            enabled=True,
            interval_ms=51,
            timeout_ms=52,
            min_pause_ms=53,
            tolerable_failures=54,
            backend="rocksdb",
            storage="/storage",
        ),
        exceptions=[failure(3000), failure(3100, concurrent=[failure(3200)])],
        configuration={"b.key": "61", "a.key": "62"},
        parameters={"threshold": "63"},
        restart_strategy="fixed delay, 64 attempts",
        slots=SlotsSnapshot(needed=65, available=66),
        executors=[executor(0, 9000, 12, 6, 2, False), executor(1, 9100, 27, 11, 5, True)],
    )


def failure(base: int, **parts: Any) -> ExceptionSnapshot:
    return ExceptionSnapshot(
        name=f"Error{base}",
        message=f"message {base}",
        trace=f"trace {base}",
        at_ms=base + 1,
        attempt=base + 2,
        restart=base + 3,
        task=f"task {base}",
        host=f"host {base}",
        executor="1",
        **parts,
    )


def numbers_in(value: Any) -> Iterator[float]:
    """Yield all numbers of a snapshot, except those of a checkpoint that occurs twice and indexes."""
    if isinstance(value, msgspec.Struct):
        for field in msgspec.structs.fields(value):
            if field.name not in ("latest_completed", "missing"):
                yield from numbers_in(getattr(value, field.name))
    elif isinstance(value, dict):
        for each in value.values():
            yield from numbers_in(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from numbers_in(each)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield value
