"""How far a run has come, kept in its work directory: another process of the rig goes on from there."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass
class Outcome:
    """One fault that was injected, and what came of it."""

    index: int
    kind: str
    did: str
    recovery_s: float | None
    """Until the job had completed two more epochs; None where the fault ended the driver's life."""
    ended: str = ""
    """What the driver said when it ended by itself; the rig started it again."""
    missed: bool = False
    """Whether there was nothing to do it to, as while a driver has no worker yet."""


@dataclass
class Progress:
    plan: str
    outcomes: list[Outcome] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    seen: dict[str, dict[str, str]] = field(default_factory=dict)
    """What the observer remembers."""
    driver: list[int] = field(default_factory=list)
    """Process number and start time of the driver, to be ended by whoever goes on."""
    drivers: int = 0
    epochs: int = 0
    highest: int = 0
    """The number of the last epoch that any driver completed."""
    left_behind: int = 0
    """Processes that a dead driver left and that did not end by themselves."""
    savepoint: str = ""
    """What the job last began with."""
    parallelism: int = 2
    left: list[str] = field(default_factory=list)
    """Lineages that the job has left with a savepoint."""
    total: int | None = None
    """Records of the whole input, once the plan is through."""
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
        """What is there, if it is of the same plan and not over; else a new beginning."""
        file = work / "progress.json"
        if not file.exists():
            return Progress(plan)
        held = json.loads(file.read_text())
        if held["plan"] != plan or held["finished"] or held["violations"]:
            return Progress(plan)
        held["outcomes"] = [Outcome(**outcome) for outcome in held["outcomes"]]
        return Progress(**held)
