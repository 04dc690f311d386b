"""A job in the harness, as the page sees it: through its snapshots."""

from __future__ import annotations

import msgspec

from penstock.common import Configuration
from penstock.datastream import StreamExecutionEnvironment
from penstock.driver.job_snapshot import JobSnapshot
from penstock.testing import JobHarness
from penstock.web.hints import Hint, hints
from penstock.web.observation import Watch


def environment(**settings: str) -> StreamExecutionEnvironment:
    """Return an environment. In the names of settings, `__` stands for a dot and `_` for a hyphen."""
    given = {key.replace("__", ".").replace("_", "-"): value for key, value in settings.items()}
    return StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(given))


class Watched:
    """A job as the page sees it: each look is some seconds after the last one."""

    def __init__(self, job: JobHarness) -> None:
        self.job, self.watch, self.at_ms = job, Watch(), 0

    def look(self, after_s: float = 5) -> JobSnapshot:
        """Observe the job. With `after_s=0`, only the clock of the job counts."""
        snapshot = self.job.snapshot()
        self.at_ms = max(self.at_ms, snapshot.taken_ms) + int(1000 * after_s)
        snapshot = msgspec.structs.replace(snapshot, taken_ms=self.at_ms)
        self.watch.observe(snapshot)
        return snapshot

    def found(self, after_s: float = 5) -> list[Hint]:
        """Observe the job and return its hints."""
        return hints(self.look(after_s), self.watch)

    def kinds(self, after_s: float = 5) -> list[str]:
        """Observe the job and return the kinds of its hints."""
        return [each.kind for each in self.found(after_s)]

    def hint(self, kind: str, after_s: float = 5) -> Hint | None:
        """Observe the job and return its hint of this kind, if there is one."""
        return next((each for each in self.found(after_s) if each.kind == kind), None)
