"""A healthy job whose snapshots a test changes, and the watch that has seen them."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.driver.job_snapshot import (
    CheckpointFacts,
    CheckpointSnapshot,
    CheckpointsSnapshot,
    EpochSnapshot,
    JobSnapshot,
    OperatorFacts,
    SubtaskSnapshot,
    VertexInput,
    VertexSnapshot,
)
from penstock.web.hints import hints
from penstock.web.observation import Watch

START = 1_760_000_000_000
SOURCE, COUNT = "a" * 32, "b" * 32


def subtask(records: int, rate: float = 100.0, **changes: Any) -> SubtaskSnapshot:
    return SubtaskSnapshot(**{"state": "RUNNING", "records_in": records, "records_in_rate": rate} | changes)


def vertex(vertex_id: str, name: str, subtasks: list[SubtaskSnapshot], **changes: Any) -> VertexSnapshot:
    facts: dict[str, Any] = {
        "id": vertex_id,
        "uid": name,
        "name": name,
        "parallelism": len(subtasks),
        "max_parallelism": 128,
        "operators": [OperatorFacts(uid=name, name=name, kind="map")],
        "subtasks": subtasks,
        "totals": SubtaskSnapshot(records_in=sum(each.records_in for each in subtasks)),
    }
    return VertexSnapshot(**facts | changes)


def epochs(count: int, **changes: Any) -> list[EpochSnapshot]:
    facts = {
        "records": 100,
        "duration_ms": 100.0,
        "cycle_ms": 1000.0,
        "state_bytes": 1 << 20,
        "stages_ms": [50, 40, 10],
    }
    return [
        EpochSnapshot(**{"number": number, "ended_ms": START + 1000 * number} | facts | changes)
        for number in range(1, count + 1)
    ]


def job(at_s: float = 0, **changes: Any) -> JobSnapshot:
    """Return the job some seconds after its start: healthy, with 200 records per second."""
    now = START + int(1000 * at_s)
    records = 10_000 + int(100 * at_s)
    done = CheckpointSnapshot(id=int(at_s), status="COMPLETED", triggered_ms=now - 100, duration_ms=80)
    facts: dict[str, Any] = {
        "id": "1" * 32,
        "name": "words",
        "state": "RUNNING",
        "state_since_ms": {"RUNNING": START - 1000},
        "started_ms": START - 2000,
        "taken_ms": now,
        "epochs": int(at_s),
        "recent_epochs": epochs(12),
        "vertices": [
            vertex(SOURCE, "lines", [subtask(records, watermark=now), subtask(records, watermark=now)]),
            vertex(
                COUNT,
                "count",
                [subtask(records, watermark=now), subtask(records, watermark=now)],
                level=1,
                inputs=[VertexInput(vertex=SOURCE, strategy="HASH")],
            ),
        ],
        "checkpoints": CheckpointsSnapshot(completed=int(at_s), latest_completed=done, history=[done]),
        "checkpointing": CheckpointFacts(enabled=True, interval_ms=1000),
    }
    return JobSnapshot(**facts | changes)


def with_vertex(snapshot: JobSnapshot, place: int, **changes: Any) -> JobSnapshot:
    """Return the job with one vertex changed."""
    vertices = list(snapshot.vertices)
    vertices[place] = msgspec.structs.replace(vertices[place], **changes)
    return msgspec.structs.replace(snapshot, vertices=vertices)


def kinds_after(*snapshots: JobSnapshot) -> list[str]:
    """Return the kinds of hints after these snapshots."""
    return [hint.kind for hint in found_after(*snapshots)]


def found_after(*snapshots: JobSnapshot) -> list[Any]:
    watch = Watch()
    for each in snapshots:
        watch.observe(each)
    return hints(snapshots[-1], watch)
