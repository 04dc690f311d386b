"""Jobs with many chains, epochs and checkpoints, and clusters with many jobs, for screenshots and measurements."""

from __future__ import annotations

import math

import msgspec
from watched_jobs import subtask, vertex

from penstock.common.wall_clock import now_ms
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
    SlotsSnapshot,
    TaskCheckpoint,
    VertexInput,
    VertexSnapshot,
)

_NAMES = ("clicks", "orders", "parse", "enrich", "join orders", "sessions", "totals per shop", "alerts", "store")


def wide_job(job_id: str, chains: int = 9, subtasks: int = 4, now: int | None = None) -> JobSnapshot:
    """Return a running job that reads two sources."""
    now = now_ms() if now is None else now
    vertices = [_chain(number, subtasks, now) for number in range(chains)]
    history = [_checkpoint(number, vertices, now) for number in range(40, 20, -1)]
    epochs = [
        EpochSnapshot(
            number=number,
            records=4000 + round(1500 * math.sin(number / 6)),
            duration_ms=420 + 12 * (number % 7),
            cycle_ms=1000.0,
            state_bytes=(180 << 20) + (number % 9 << 20),
            ended_ms=now - 1000 * (40 - number),
            stages_ms=[90, 160.0 + number % 5 * 10, 80, 60],
        )
        for number in range(1, 41)
    ]
    trace = (
        'Traceback (most recent call last):\n  File "job.py", line 31, in parse\n    return float(text)\nValueError: x'
    )
    return JobSnapshot(
        id=job_id,
        name="orders by shop",
        state="RUNNING",
        started_ms=now - 7_500_000,
        taken_ms=now,
        state_since_ms={"RUNNING": now - 7_000_000},
        restarts=1,
        parallelism=subtasks,
        max_parallelism=128,
        stoppable=True,
        epochs=40,
        recent_epochs=epochs,
        vertices=vertices,
        checkpoints=CheckpointsSnapshot(completed=40, latest_completed=history[0], history=history),
        checkpointing=CheckpointFacts(enabled=True, interval_ms=1000, timeout_ms=600_000, backend="rocksdb"),
        exceptions=[
            ExceptionSnapshot(name="ValueError", message="x", trace=trace, at_ms=now - 3_600_000, task="parse (2/4)")
        ],
        configuration={"parallelism.default": str(subtasks), "state.backend": "rocksdb"},
        executors=[
            ExecutorSnapshot(
                id=str(number),
                address=f"worker-{number}:7077",
                cores=4,
                slots=4,
                active_tasks=2 + number,
                heap_max=1 << 30,
                heap_used=(400 + 90 * number) << 20,
                off_heap_used=(120 + 7 * number) << 20,
                physical_memory=16 << 30,
                python_memory=(510 + 40 * number) << 20,
                python_workers=4,
                disk_total=250 << 30,
                disk_free=(181 - 20 * number) << 30,
                blocks=32,
                block_bytes=(310 + 17 * number) << 20,
                standby_blocks=32,
                standby_bytes=(327 - 17 * number) << 20,
                logs={each: f"http://worker-{number}:8081/logPage/?logType={each}" for each in ("stderr", "stdout")},
            )
            for number in range(2)
        ],
        slots=SlotsSnapshot(needed=subtasks, available=subtasks),
    )


def many_jobs(count: int) -> list[JobSnapshot]:
    """Return jobs of which every tenth has ended."""
    found = []
    now = now_ms()
    job = wide_job("0" * 32, now=now)
    for number in range(count):
        state = "FINISHED" if number % 10 == 9 else "RUNNING"
        ended = now - 1000 if state == "FINISHED" else -1
        changes = {"id": f"{number + 1:032x}", "name": f"orders of shop {number}", "state": state, "ended_ms": ended}
        found.append(msgspec.structs.replace(job, **changes))
    return found


def _chain(number: int, subtasks: int, now: int) -> VertexSnapshot:
    name = _NAMES[number % len(_NAMES)] + (f" {number // len(_NAMES)}" if number >= len(_NAMES) else "")
    if number < 2:
        before = []
    elif number == 4:
        before = [0, 3]
    else:
        before = [number - 2] if number % 3 else [number - 1]
    inputs = [VertexInput(vertex=f"{each:032x}", strategy="HASH") for each in before]
    busy = (0.1, 0.15, 0.35, 0.6, 0.9, 0.3, 0.55, 0.05, 0.2)[number % 9]
    measured = [
        subtask(
            250_000 + 1000 * place,
            1000.0 + 20 * place,
            records_out=240_000,
            records_out_rate=980.0,
            bytes_out_rate=48_000.0,
            busy=busy,
            backpressured=busy if number < 2 else 0.0,
            host="host",
            watermark=now - 4000 - 300 * number,
        )
        for place in range(subtasks)
    ]
    operators = [
        OperatorFacts(uid=f"{name}-{place}", name=f"{name} {place}", kind="map") for place in range(1 + number % 3)
    ]
    return vertex(
        f"{number:032x}",
        name,
        measured,
        level=0 if number < 2 else number // 2,
        inputs=inputs,
        operators=operators,
        driver_metrics={} if before else {"backlog": 1200},
        metrics={f"{name}-0.numRecordsIn": [each.records_in for each in measured]},
    )


def _checkpoint(number: int, vertices: list[VertexSnapshot], now: int) -> CheckpointSnapshot:
    tasks = [
        TaskCheckpoint(
            vertex=each.id,
            subtasks=len(each.subtasks),
            duration_ms=60 * place + 80,
            state_bytes=20 << 20,
            start_delay=CheckpointSummary(max=60 * place),
            sync_duration=CheckpointSummary(max=28),
            align_ms=9,
            upload_ms=17,
        )
        for place, each in enumerate(vertices)
    ]
    triggered = now - 1000 * (41 - number)
    return CheckpointSnapshot(
        id=number,
        status="COMPLETED",
        savepoint=number == 30,
        path="/data/savepoints/savepoint-5e1f-a0" if number == 30 else "",
        triggered_ms=triggered,
        latest_ack_ms=triggered + 600,
        duration_ms=60 * len(vertices) + 140 + number % 5 * 30,
        checkpointed_bytes=3 << 20,
        state_bytes=180 << 20,
        subtasks=sum(len(each.subtasks) for each in vertices),
        acknowledged=sum(len(each.subtasks) for each in vertices),
        tasks=tasks,
        publish_ms=34,
        commit_ms=70 + number % 4 * 20,
    )
