"""A job of the service as the rig sees it: what its clients wanted, its checkpoints, its processes and its output."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from chaos import oracle
from chaos.committed import Left, committed_states, finish_output
from chaos.damage import lineages
from chaos.ends.files import FileEnds
from chaos.faults import Violation
from chaos.observer import Observer
from chaos.program import SOURCE, record
from chaos.verdict import check_savepoints
from penstock.checkpoint.manifest import Manifest
from penstock.cluster.processes import remains
from penstock.cluster.records import Claim, JobView, new_job_id
from penstock.driver.assignment import Verdict
from penstock.errors import PenstockError
from penstock.savepoint.format import list_savepoints, savepoint_storage
from penstock.state.local_storage import LocalStorage
from penstock.testing.snapshots import last_manifest

PER_EPOCH = 40
PACE_MS = 30
_MARGIN = 12
"""Epochs between the decision to end the input and its end: the job goes on meanwhile."""
_READS = 20
"""How often the rig tries to read the newest manifest, whose predecessor can be removed at the same time."""

RUN, FINISH, CANCEL, STOP = "RUNNING", "FINISHED", "CANCELED", "STOPPED"
SHOWN = {RUN: RUN, FINISH: FINISH, CANCEL: CANCEL, STOP: FINISH}
"""The state that the service shows for a job that did what its clients wanted."""
_VERDICTS = {FINISH: Verdict.FINISHED, CANCEL: Verdict.CANCELED, STOP: Verdict.STOPPED}


@dataclass
class Victim:
    """One submitted job."""

    folder: Path
    id: str = field(default_factory=new_job_id)
    wanted: str = RUN
    """What its clients want: that it runs, or how it has to end."""
    acknowledged: bool = False
    total: int = 0
    """Number of records in the input, once it ends."""
    cancelled_at: float | None = None
    """When the service acknowledged a request to cancel."""
    frozen: int | None = None
    """Number of records in the newest checkpoint 10 s after that."""
    watched: bool = False
    """Whether the processes of the cancelled job were checked when its time was over."""
    width: int | None = 1
    """The parallelism that clients know it has; None after a rescale whose result is not known."""
    saved: list[str] = field(default_factory=list)
    """Savepoints that the service reported as complete."""

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
            "state.savepoints.dir": str(self.savepoints),
            "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
            "execution.checkpointing.interval": "300 ms",
            "penstock.epoch.max-records": str(PER_EPOCH),
            "state.backend.local-dir": str(self.folder / "replicas"),
            # The service must not give up on a job because of the rig.
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": str(2**31 - 1),
            "restart-strategy.fixed-delay.delay": "500 ms",
        }

    @property
    def savepoints(self) -> Path:
        return self.folder / "savepoints"

    # -- checkpoints -----------------------------------------------------------------------------------------------

    @property
    def lineage(self) -> Path | None:
        found = lineages(self.folder / "checkpoints")
        return found[-1] if found else None

    def checkpoint(self) -> int:
        """Return the number of the newest checkpoint; 0 before the first one."""
        if self.lineage is None:
            return 0
        numbers = [int(path.name) for path in (self.lineage / "manifests").iterdir() if path.name.isdecimal()]
        return max(numbers, default=0)

    def end_input(self) -> None:
        """Let the job finish soon."""
        if self.total:
            return
        self.total = (self.checkpoint() + _MARGIN) * PER_EPOCH
        self.ends.end_input(self.total)

    def manifest(self) -> Manifest | None:
        """Return the newest manifest, or None before the first one. Raises Violation if it cannot be read."""
        problem = ""
        for _ in range(_READS):
            if not self.checkpoint():
                return None
            assert self.lineage is not None
            try:
                return last_manifest(LocalStorage(self.lineage))
            except PenstockError as error:
                problem = str(error)
                time.sleep(0.05)
        raise Violation(f"the newest checkpoint of job {self.id} cannot be read: {problem}")

    def records_read(self) -> int:
        manifest = self.manifest()
        return 0 if manifest is None else manifest.records.get(SOURCE, 0)

    # -- the end ---------------------------------------------------------------------------------------------------

    def check(self, view: JobView) -> list[str]:
        """Compare the ended job with the oracle and the records. Return the violations."""
        problems = [*self.observer.violations, *self._check_records(view)]
        # The attempt that ends a cancelled job commits the last checkpoint and publishes a closing one without records.
        # If its predecessor died, that takes as long as Spark needs to start.
        if self.frozen is not None and self.records_read() > self.frozen:
            problems.append(f"checkpoint {self.checkpoint()} has records from more than 10 s after the cancellation")
        problems += self._check_width()
        problems += self._check_finished() if self.wanted == FINISH else self._check_ended_early()
        problems += self._check_saved()
        return [f"job {self.id}: {problem}" for problem in problems]

    def _check_records(self, view: JobView) -> list[str]:
        verdicts = Counter(each.ended.verdict for each in view.attempts if each.ended is not None)
        decided = _VERDICTS[self.wanted]
        problems = []
        if verdicts[decided] != 1:
            problems.append(f"{decided.value} {verdicts[decided]} times: {verdicts}")
        if set(verdicts) - {decided, Verdict.LOST}:
            problems.append(f"it has other verdicts: {verdicts}")
        last = view.last
        if last is None or last.ended is None or last.ended.verdict is not decided:
            problems.append("an attempt follows the one that ended the job")
        elif self.wanted == STOP and last.ended.savepoint != self.saved[-1]:
            problems.append(f"it was stopped with savepoint {last.ended.savepoint}, not {self.saved[-1]}")
        problems += [f"attempt {each.number} has a process" for each in view.attempts if _lives(each.claim)]
        return problems

    def _check_width(self) -> list[str]:
        manifest = self.manifest()
        if self.width is None or manifest is None or not manifest.operators:
            return []
        widths = {current for _, current in manifest.rescaled.values()} or {1}
        return [] if widths == {self.width} else [f"it was rescaled to {self.width}, but ended with {sorted(widths)}"]

    def _check_finished(self) -> list[str]:
        wanted = oracle.expected(range(self.total))
        runs = self.ends.output()
        problems = oracle.check_output(runs, wanted)
        if self.lineage is None:
            return [*problems, "it kept no checkpoints"]
        if len(runs) == 1:
            states, timers = committed_states(self.lineage, self.ends.where())
            problems += oracle.check_states(states, wanted, next(iter(runs.values())))
            problems += [f"a timer is still set: {timer}" for timer in timers[:3]]
            if self.ends.output() != runs:
                problems.append("reading the state of the finished job changed its output")
        return problems

    def _check_ended_early(self) -> list[str]:
        """Compare a job that was cancelled or stopped with its last checkpoint, which determines its whole output."""
        read, left = self.records_read(), None
        if read:
            assert self.lineage is not None
            left = finish_output(self.lineage, self.ends.where())
        runs = self.ends.output()
        if left is None:
            return [f"it committed no record, but has output: {sorted(runs)}"] if runs else []
        return [*_check_time(left, read), *_check_left(runs, read, left)]

    def _check_saved(self) -> list[str]:
        problems = check_savepoints(self.folder, self.ends)
        if self.saved:
            found = list_savepoints(savepoint_storage(str(self.savepoints)))
            complete = {each.where for each in found if each.metadata is not None}
            problems += [f"{path} was reported as complete, but is not" for path in self.saved if path not in complete]
        return problems


def _check_left(runs: dict[str, oracle.Output], read: int, left: Left) -> list[str]:
    wanted = oracle.expected(range(read), timers_to=left.timers_to, windows_to=left.windows_to)
    problems = oracle.check_output(runs, wanted)
    if len(runs) == 1:
        problems += oracle.check_states(left.states, wanted, next(iter(runs.values())))
    return problems


def _check_time(left: Left, read: int) -> list[str]:
    """Check that event time has followed the records: otherwise a lost timer or window would not be missed."""
    due = record(max(read - 3 * PER_EPOCH, 0)).timestamp
    late = [mark for mark in (left.timers_to, left.windows_to) if mark < due - 1]
    return [f"after {read} records, a watermark is only {mark}" for mark in late]


def _lives(claim: Claim | None) -> bool:
    return claim is not None and remains(claim)
