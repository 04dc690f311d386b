"""A cluster in memory, behind the REST interface: its jobs are snapshots, and it records what it is asked to do."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from penstock.cluster.gateway import (
    Agent,
    ClusterState,
    Conflict,
    Event,
    LogFile,
    RunRequest,
    StoredProgram,
    UnknownProgram,
)
from penstock.cluster.records import UnknownJob
from penstock.common.wall_clock import now_ms
from penstock.driver.control_messages import Answer, DescribeEnvironment, Operable, Request
from penstock.driver.job_snapshot import (
    CheckpointFacts,
    CheckpointSnapshot,
    CheckpointsSnapshot,
    ExceptionSnapshot,
    ExecutorSnapshot,
    JobSnapshot,
    Operation,
    OperatorFacts,
    SubtaskSnapshot,
    TaskCheckpoint,
    VertexInput,
    VertexSnapshot,
)
from penstock.driver.operations import UnknownOperation
from penstock.driver.process_facts import python_environment

SOURCE, COUNT = "a" * 32, "b" * 32
"""The vertices of every job."""
JOBS = {
    state: f"{number:032x}"
    for number, state in enumerate(("RUNNING", "FINISHED", "FAILED", "CANCELED", "RESTARTING", "INITIALIZING"), 1)
}
JOB = JOBS["RUNNING"]
CHECKPOINT = 7
EXECUTOR = "app-1-0"


def snapshot(job_id: str = JOB, state: str = "RUNNING", **changes: Any) -> JobSnapshot:
    """Return a job with two vertices. Jobs that did not start have none."""
    now = now_ms()
    ended = state in ("FINISHED", "FAILED", "CANCELED")
    facts: dict[str, Any] = {
        "id": job_id,
        "name": f"job {state.lower()}",
        "state": state,
        "attempt": 1,
        "started_ms": now - 60_000,
        "ended_ms": now - 1_000 if ended else -1,
        "state_since_ms": {"CREATED": now - 60_000, state: now - 50_000},
        "taken_ms": now,
    }
    if state != "INITIALIZING":
        facts |= _parts(now, "FINISHED" if state == "FINISHED" else "CANCELED" if ended else "RUNNING")
    return JobSnapshot(**(facts | changes))


def _parts(now: int, task_state: str) -> dict[str, Any]:
    subtasks = [SubtaskSnapshot(state=task_state, host="h", executor="0", records_in=9, watermark=5) for _ in range(2)]
    done = CheckpointSnapshot(
        id=CHECKPOINT,
        status="COMPLETED",
        triggered_ms=now - 100,
        latest_ack_ms=now - 50,
        duration_ms=50,
        subtasks=4,
        acknowledged=4,
        tasks=[TaskCheckpoint(vertex=each, subtasks=2, latest_ack_ms=now - 50) for each in (SOURCE, COUNT)],
    )
    return {
        "application": "app-1",
        "stoppable": task_state == "RUNNING",
        "parallelism": 2,
        "max_parallelism": 128,
        "tasks_since_ms": {"RUNNING": now - 50_000},
        "vertices": [
            VertexSnapshot(
                id=vertex,
                uid=uid,
                name=uid,
                level=level,
                parallelism=2,
                max_parallelism=128,
                operators=[OperatorFacts(uid=uid, name=uid, kind="map")],
                inputs=inputs,
                subtasks=subtasks,
                tasks={task_state: 2},
                state=task_state,
                metrics={f"{uid}.seen": [1, 2]},
                counters={f"{uid}.count": [3, 4]},
            )
            for level, (vertex, uid, inputs) in enumerate(
                (
                    (SOURCE, "numbers", []),
                    (COUNT, "count", [VertexInput(vertex=SOURCE, strategy="HASH")]),
                )
            )
        ],
        "checkpoints": CheckpointsSnapshot(completed=1, latest_completed=done, history=[done]),
        "checkpointing": CheckpointFacts(enabled=True, interval_ms=1000, timeout_ms=600_000, backend="rocksdb"),
        "exceptions": [ExceptionSnapshot(name="ValueError", message="bad", trace="Traceback", at_ms=now - 10)],
        "configuration": {"parallelism.default": "2"},
        "executors": [ExecutorSnapshot(id="0", address="h:1", cores=2, slots=2, seen_ms=now)],
    }


class FakeGateway:
    """Implements Gateway. A test changes `by_id`, `failure` and `hold`, and reads `asked`."""

    def __init__(self, settings: Mapping[str, str], logs: Path) -> None:
        self.settings = settings
        self._logs = logs
        self.reset()

    def reset(self) -> None:
        """Forget everything that a test changed."""
        self.by_id = {job_id: snapshot(job_id, state) for state, job_id in JOBS.items()}
        self.stored: dict[str, StoredProgram] = {}
        self.contents: dict[str, int] = {}
        self.operations: dict[tuple[str, str], Operation] = {}
        self.asked: list[tuple[Any, ...]] = []
        self.failure: Exception | None = None
        """What every call raises."""
        self.result: Operation | None = None
        """How every operation ends, at once; None: it stays in progress."""
        self.cluster = ClusterState(leading=True, ready=True)
        self.other_leader: str | None = None
        """The address of the leader, if this is a standby."""
        self.agent: Agent | None = None
        self.recorded: list[Event] = []
        self.events_end = False
        self.is_shut_down = False
        for name in ("service.log", "service.out", "job-1.log", "job-1.out"):
            (self._logs / name).write_text(f"first line of {name}\nsecond line of {name}\n")

    def state(self) -> ClusterState:
        return self.cluster

    def leader(self) -> str | None:
        return self.other_leader

    def jobs(self) -> list[JobSnapshot]:
        self._fail()
        return list(self.by_id.values())

    def job(self, job_id: str) -> JobSnapshot:
        self._fail()
        if job_id not in self.by_id:
            raise UnknownJob(f"The cluster has no job '{job_id}'.", fix="Use an id that `penstock list` shows.")
        return self.by_id[job_id]

    async def ask(self, job_id: str, request: Request) -> Answer:
        if self.job(job_id).state in ("FINISHED", "FAILED", "CANCELED"):
            raise Conflict("The job has ended.")
        assert request == DescribeEnvironment()
        return python_environment()

    async def cancel(self, job_id: str) -> None:
        self._fail()
        self.asked.append(("cancel", job_id))

    async def trigger(self, job_id: str, request: Operable, trigger_id: str = "") -> str:
        self._fail()
        job = self.job(job_id)
        trigger_id = trigger_id or hashlib.md5(repr(len(self.operations)).encode()).hexdigest()
        if (job_id, trigger_id) in self.operations:
            return trigger_id
        if job.state not in ("RUNNING", "RESTARTING"):
            raise Conflict(f"Job '{job.name}' is {job.state}.", fix="Only a running job can do this.")
        if any(each[0] == "trigger" and type(each[2]).__name__ == "Stop" for each in self.asked):
            raise Conflict("The job is being stopped.", fix="Wait until it has ended, or until the stop has failed.")
        self.asked.append(("trigger", job_id, request))
        self.operations[job_id, trigger_id] = self.result or Operation(trigger_id=trigger_id)
        return trigger_id

    async def operation(self, job_id: str, trigger_id: str) -> Operation:
        self._fail()
        if (job_id, trigger_id) not in self.operations:
            raise UnknownOperation(f"No operation has the id '{trigger_id}'.", fix="Check the id.")
        return self.operations[job_id, trigger_id]

    async def dispose_savepoint(self, path: str, trigger_id: str = "") -> str:
        self._fail()
        self.asked.append(("dispose", path))
        self.operations["", "d" * 32] = Operation(trigger_id="d" * 32, done=True)
        return "d" * 32

    async def programs(self) -> list[StoredProgram]:
        self._fail()
        return list(self.stored.values())

    async def upload(self, name: str, file: Path) -> StoredProgram:
        self._fail()
        digest = hashlib.sha256()
        with open(file, "rb") as content:
            while part := content.read(1 << 20):
                digest.update(part)
        program = StoredProgram(id=f"{digest.hexdigest()}_{name}", name=name, uploaded_ms=1)
        self.contents[program.id] = file.stat().st_size
        self.stored[program.id] = program
        return program

    async def remove_program(self, program_id: str) -> None:
        self._fail()
        self._program(program_id)
        del self.stored[program_id]

    async def run(self, request: RunRequest) -> str:
        self._fail()
        self._program(request.program)
        self.asked.append(("run", request))
        return request.job_id or "c" * 32

    async def plan(self, request: RunRequest) -> str:
        self._fail()
        self._program(request.program)
        self.asked.append(("plan", request))
        nodes = [
            {"id": "1", "uid": "numbers", "chain": 0, "contents": "numbers", "parallelism": None},
            {
                **{"id": "2", "uid": "count", "chain": 1, "contents": "count", "parallelism": 2},
                "predecessors": [{"id": "1", "ship_strategy": "HASH", "exchange": True}],
            },
        ]
        return json.dumps({"nodes": nodes, "batch": request.entry == "batch", "parallelism": 2})

    async def dry_run(self, request: RunRequest) -> str:
        self._fail()
        self._program(request.program)
        self.asked.append(("dry_run", request))
        return json.dumps({"program": "p", "would_start": True})

    async def logs(self, job_id: str) -> list[LogFile]:
        self._fail()
        prefix = "job" if job_id else "service"
        return [
            LogFile(name=path.name, size=path.stat().st_size, modified_ms=path.stat().st_mtime_ns // 10**6, path=path)
            for path in sorted(self._logs.glob(f"{prefix}*"))
        ]

    async def events(self, after: int = -1) -> AsyncIterator[Event]:
        while True:
            for event in list(self.recorded):
                if event.number > after:
                    after = event.number
                    yield event
            if self.events_end:
                return
            await asyncio.sleep(0.01)

    async def drain(self) -> None:
        self._fail()
        self.asked.append(("drain",))

    async def shut_down(self) -> None:
        self.is_shut_down = True

    def _program(self, program_id: str) -> None:
        if program_id not in self.stored:
            raise UnknownProgram(f"No stored program has the id '{program_id}'.", fix="Upload it.")

    def _fail(self) -> None:
        if self.failure is not None:
            raise self.failure
