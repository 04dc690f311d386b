"""The table of a run, for the console and as Markdown for docs/."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from rich.table import Table

from chaos.progress import Outcome, Progress

_HEADS = ("fault", "count", "without a target", "recovery, s (median / max)")


@dataclass(frozen=True)
class Report:
    """A run of one job, whose drivers it counts, or of a service."""

    progress: Progress
    kinds: Iterable[str]
    """The faults, in the order of their rows."""
    left_out: Sequence[str] = ()
    """Faults that belong to the run, but are not possible on this host."""

    @property
    def heads(self) -> tuple[str, ...]:
        return (*_HEADS, "driver exits") if self.progress.drivers else _HEADS

    def rows(self) -> list[tuple[str, ...]]:
        found = []
        for kind in self.kinds:
            outcomes = [outcome for outcome in self.progress.outcomes if outcome.kind == kind]
            missed, exits = sum(each.missed for each in outcomes), sum(bool(each.ended) for each in outcomes)
            if outcomes:
                cells = (kind, str(len(outcomes)), str(missed), _recovery(outcomes), str(exits))
                found.append(cells[: len(self.heads)])
        return found

    def summary(self) -> str:
        progress = self.progress
        state = f"{len(progress.violations)} violations" if progress.violations else "no violations"
        over = "" if progress.finished or progress.violations else " so far"
        lacks = f"; incomplete, without {' and '.join(self.left_out)}" if self.left_out else ""
        facts = [f"{len(progress.outcomes)} faults"]
        if progress.drivers:
            facts += [f"{progress.drivers} drivers", f"{progress.epochs:,} epochs"]
        if progress.total is not None:
            facts.append(f"{progress.total:,} records")
        facts.append(f"{progress.seconds / 60:.1f} minutes")
        if progress.drivers:
            facts.append(f"{progress.left_behind} leftover processes")
        return f"{', '.join(facts)}: {state}{over}{lacks}"

    def table(self) -> Table:
        result = Table(*self.heads, caption=self.summary())
        for row in self.rows():
            result.add_row(*row)
        return result

    def markdown(self, command: str) -> str:
        lines = [f"`{command}`", "", f"| {' | '.join(self.heads)} |", "|---" * len(self.heads) + "|"]
        lines += [f"| {' | '.join(row)} |" for row in self.rows()]
        lines += ["", f"{self.summary()}."]
        lines += [f"- {violation}" for violation in self.progress.violations]
        return "\n".join(lines) + "\n"


def _recovery(outcomes: list[Outcome]) -> str:
    """Return the median and maximum time to the second epoch after a fault."""
    times = [outcome.recovery_s for outcome in outcomes if outcome.recovery_s is not None]
    return f"{median(times):.1f} / {max(times):.1f}" if times else "–"
