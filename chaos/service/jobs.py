"""A job of the service as the rig sees it: what its clients wanted, its checkpoints, its processes and its output."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from chaos import oracle
from chaos.committed import committed_states
from chaos.damage import lineages
from chaos.ends.files import FileEnds
from chaos.observer import Observer
from chaos.program import SOURCE
from chaos.verdict import check_savepoints
from penstock.cluster.processes import remains
from penstock.cluster.records import Claim, JobView, new_job_id
from penstock.driver.assignment import Verdict
from penstock.errors import PenstockError
from penstock.state.local_storage import LocalStorage
from penstock.testing.snapshots import last_manifest

PER_EPOCH = 40
PACE_MS = 30
_MARGIN = 12
"""Epochs between the decision to end the input and its end: the job goes on meanwhile."""
_FAR = 40
"""Epochs beyond the last one, up to which output of a cancelled job can be visible."""

RUN, FINISH, CANCEL = "RUNNING", "FINISHED", "CANCELED"


@dataclass
class Victim:
    """One submitted job."""

    folder: Path
    id: str = field(default_factory=new_job_id)
    wanted: str = RUN
    """The state that the job has to reach."""
    acknowledged: bool = False
    total: int = 0
    """Number of records in the input, once it ends."""
    cancelled_at: float | None = None
    """When the service acknowledged a request to cancel."""
    frozen: int | None = None
    """Number of records in the newest checkpoint 10 s after that."""

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)
        self.ends = FileEnds(self.folder)
        self.observer = Observer(self.folder)

    def arguments(self) -> list[str]:
        return [json.dumps(self.ends.where()), str(PER_EPOCH), str(PACE_MS)]

    def settings(self) -> dict[str, str]:
        return {
            # Its own directory, so that the files of one job can be looked at.
            "state.checkpoints.dir": str(self.folder / "checkpoints"),
            "state.savepoints.dir": str(self.folder / "savepoints"),
            "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
            "execution.checkpointing.interval": "300 ms",
            "penstock.epoch.max-records": str(PER_EPOCH),
            "state.backend.local-dir": str(self.folder / "replicas"),
            # The service must not give up on a job because of the rig.
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": str(2**31 - 1),
            "restart-strategy.fixed-delay.delay": "500 ms",
        }

    # -- checkpoints -----------------------------------------------------------------------------------------------

    @property
    def lineage(self) -> Path | None:
        found = lineages(self.folder / "checkpoints")
        return found[-1] if found else None

    def checkpoint(self) -> int:
        """Return the number of the newest checkpoint; 0 before the first one."""
        if self.lineage is None:
            return 0
        with suppress(OSError):
            numbers = [int(path.name) for path in (self.lineage / "manifests").iterdir() if path.name.isdecimal()]
            return max(numbers, default=0)
        return 0

    def end_input(self) -> None:
        """Let the job finish soon."""
        if self.total:
            return
        self.total = (self.checkpoint() + _MARGIN) * PER_EPOCH
        self.ends.end_input(self.total)

    def records_read(self) -> int:
        if self.lineage is None:
            return 0
        with suppress(PenstockError):
            return int(last_manifest(LocalStorage(self.lineage)).records.get(SOURCE, 0))
        return self.checkpoint() * PER_EPOCH

    # -- the end ---------------------------------------------------------------------------------------------------

    def check(self, view: JobView) -> list[str]:
        """Compare the ended job with the oracle and the records. Return the violations."""
        problems = [*self.observer.violations, *self._check_records(view)]
        if self.wanted == FINISH:
            wanted = oracle.expected(range(self.total))
            runs = self.ends.output()
            problems += oracle.check_output(runs, wanted)
            if self.lineage is not None and len(runs) == 1:
                states, timers = committed_states(self.lineage, self.ends.where())
                problems += oracle.check_states(states, wanted, next(iter(runs.values())))
                problems += [f"a timer is still set: {timer}" for timer in timers[:3]]
        else:
            problems += self._check_cancelled()
        problems += check_savepoints(self.folder, self.ends)
        return [f"job {self.id}: {problem}" for problem in problems]

    def _check_records(self, view: JobView) -> list[str]:
        verdicts = Counter(each.ended.verdict for each in view.attempts if each.ended is not None)
        decided = {FINISH: Verdict.FINISHED, CANCEL: Verdict.CANCELED}[self.wanted]
        problems = []
        if verdicts[decided] != 1:
            problems.append(f"{decided.value} {verdicts[decided]} times: {verdicts}")
        if set(verdicts) - {decided, Verdict.LOST}:
            problems.append(f"it has other verdicts: {verdicts}")
        last = view.last
        if last is None or last.ended is None or last.ended.verdict is not decided:
            problems.append("an attempt follows the one that ended the job")
        problems += [f"attempt {each.number} has a process" for each in view.attempts if _lives(each.claim)]
        return problems

    def _check_cancelled(self) -> list[str]:
        problems = []
        # The attempt that ends a cancelled job commits the last checkpoint and publishes a closing one without records.
        # If its predecessor died, that takes as long as Spark needs to start.
        if self.frozen is not None and self.records_read() > self.frozen:
            problems.append(f"checkpoint {self.checkpoint()} has records from more than 10 s after the cancellation")
        wanted = oracle.expected(range(self.records_read() + _FAR * PER_EPOCH))
        for output in self.ends.output().values():
            extra = output.lines - wanted.lines
            problems += [f"duplicate or unexpected: {line}" for line in list(extra)[:3]]
            problems += output.bad[:3]
        return problems


def _lives(claim: Claim | None) -> bool:
    return claim is not None and remains(claim)
