"""The progress of a run, stored in its work directory: another process of the rig can continue it."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass
class Outcome:
    """An injected fault and its outcome."""

    index: int
    kind: str
    did: str
    recovery_s: float | None
    """Time until the job completed two more epochs; None if the fault ended the driver."""
    ended: str = ""
    """The driver's last message if it exited by itself; the rig restarted it."""
    missed: bool = False
    """Whether the fault found no target, such as a worker while a driver has none yet."""
    action: str = ""
    """What a client of a service did during the fault."""
    failure: str = ""
    """Why that failed."""


@dataclass
class Progress:
    plan: str
    outcomes: list[Outcome] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    seen: dict[str, dict[str, str]] = field(default_factory=dict)
    """The observer's memory."""
    driver: list[int] = field(default_factory=list)
    """Pid and start time of the driver, for the process that continues the run to end it."""
    drivers: int = 0
    epochs: int = 0
    highest: int = 0
    """The highest epoch that any driver completed."""
    left_behind: int = 0
    """Number of processes of dead drivers that did not exit by themselves."""
    savepoint: str = ""
    """The savepoint that the job last started from."""
    parallelism: int = 2
    left: list[str] = field(default_factory=list)
    """Lineages that the job left with a savepoint."""
    total: int | None = None
    """Number of records in the input, once all faults are done."""
    seconds: float = 0
    finished: bool = False

    @property
    def done(self) -> set[int]:
        return {outcome.index for outcome in self.outcomes}

    def save(self, work: Path) -> None:
        temporary = work / ".progress.json"
        temporary.write_text(json.dumps(asdict(self)))
        os.replace(temporary, work / "progress.json")

    @staticmethod
    def load(work: Path, plan: str) -> Progress:
        """Load the stored progress if it has the same plan and is unfinished; otherwise start over."""
        file = work / "progress.json"
        if not file.exists():
            return Progress(plan)
        held = json.loads(file.read_text())
        if held["plan"] != plan or held["finished"] or held["violations"]:
            return Progress(plan)
        held["outcomes"] = [Outcome(**outcome) for outcome in held["outcomes"]]
        return Progress(**held)
