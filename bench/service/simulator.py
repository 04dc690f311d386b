"""`python -m bench.service.simulator`: JobManagers without jobs, behind the protocol that real ones speak.

One process claims all jobs, opens a control point for each, and sends snapshots of a job with 5 vertices of 4 subtasks
that has run for 70 epochs. A fourth argument is the number of vertices after the source. Every snapshot differs from
the one before: an epoch per second. It runs until the end of its standard input.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import msgspec

from penstock.cluster.order import socket_name
from penstock.cluster.processes import this_process
from penstock.cluster.records import Claim, Planned, Records, Submission, new_job_id
from penstock.common import Configuration
from penstock.control.server import ControlPoint
from penstock.datastream import StreamExecutionEnvironment
from penstock.driver.control_messages import Answer, Done, Follow, Request
from penstock.driver.job_snapshot import JobSnapshot
from penstock.state.local_storage import LocalStorage
from penstock.testing import JobHarness

STAGES, SUBTASKS, EPOCHS = 4, 4, 70


def typical_snapshot(stages: int = STAGES) -> JobSnapshot:
    """Return the snapshot of a running job with a source, that many further vertices, and full histories."""
    env = StreamExecutionEnvironment.get_execution_environment(Configuration())
    stream = env.from_collection([]).name("numbers").uid("numbers")
    for stage in range(stages):
        stream = stream.key_by(lambda n: n).reduce(lambda a, b: a + b).name(f"sum {stage}").uid(f"sum-{stage}")
    with JobHarness(stream, parallelism=SUBTASKS, backend="memory") as job:
        for _ in range(EPOCHS):
            job.push(*range(8)).epoch()
        return job.snapshot()


class SimulatedJob:
    """A job whose source has read as many records as seconds have passed since 1970, so clients see its age."""

    def __init__(self, records: Records, control: Path, typical: JobSnapshot, number: int) -> None:
        self.id = new_job_id()
        self._typical = msgspec.structs.replace(typical, id=self.id, name=f"simulated-{number}", attempt=1)
        self._began = int(time.time())
        now, me = self._began * 1000, this_process()
        submission = Submission(
            id=self.id,
            name=self._typical.name,
            program="0" * 64,
            file="job.py",
            submitted_ms=now,
            python="3",
            penstock="1",
        )
        records.submit(submission)
        records.plan(self.id, 1, Planned(leader="simulator", at_ms=now))
        claim = Claim(
            token="simulated",
            host=me.host,
            boot=me.boot,
            pid=me.pid,
            started=me.started,
            at_ms=now,
            control=str(control),
        )
        records.claim(self.id, 1, claim)
        records.bind_lineage(self.id, f"file:///nowhere/{self.id}")
        self._point = ControlPoint(str(control), socket_name(self.id, 1), self._answer)

    def _answer(self, request: Request) -> Answer:
        if not isinstance(request, Follow):
            return Done()
        now = int(time.time())
        source, *others = self._typical.vertices
        totals = msgspec.structs.replace(source.totals, records_out=now, records_in=now)
        vertices = [msgspec.structs.replace(source, totals=totals), *others]
        epochs = self._typical.epochs + now - self._began
        return msgspec.structs.replace(self._typical, taken_ms=now * 1000, epochs=epochs, vertices=vertices)


def main() -> None:
    root, control, count = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    records = Records(LocalStorage(root))
    control.mkdir(mode=0o700, parents=True, exist_ok=True)
    typical = typical_snapshot(int(sys.argv[4]) if len(sys.argv) > 4 else STAGES)
    jobs = [SimulatedJob(records, control, typical, number) for number in range(count)]
    print(msgspec.json.encode([job.id for job in jobs]).decode(), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
