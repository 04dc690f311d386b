"""The table of a run, for the console and as Markdown for docs/."""

from __future__ import annotations

from rich.table import Table

from chaos.plan import ALL_KINDS
from chaos.progress import Outcome, Progress
from chaos.rig import recovery

_HEADS = ("fault", "count", "without a target", "recovery, s (median / max)", "driver exits")


def rows(progress: Progress) -> list[tuple[str, ...]]:
    by_kind: dict[str, list[Outcome]] = {kind: [] for kind in ALL_KINDS}
    for outcome in progress.outcomes:
        by_kind[outcome.kind].append(outcome)
    return [
        (
            kind,
            str(len(outcomes)),
            str(sum(outcome.missed for outcome in outcomes)),
            recovery(outcomes),
            str(sum(bool(outcome.ended) for outcome in outcomes)),
        )
        for kind, outcomes in by_kind.items()
        if outcomes
    ]


def summary(progress: Progress) -> str:
    state = f"{len(progress.violations)} violations" if progress.violations else "no violations"
    over = "" if progress.finished or progress.violations else " so far"
    records = f", {progress.total:,} records" if progress.total is not None else ""
    return (
        f"{len(progress.outcomes)} faults, {progress.drivers} drivers, {progress.epochs:,} epochs{records}, "
        f"{progress.seconds / 60:.1f} minutes, {progress.left_behind} leftover processes: {state}{over}"
    )


def table(progress: Progress) -> Table:
    result = Table(*_HEADS, caption=summary(progress))
    for row in rows(progress):
        result.add_row(*row)
    return result


def markdown(progress: Progress, command: str) -> str:
    lines = [f"`{command}`", "", f"| {' | '.join(_HEADS)} |", "|---|---|---|---|---|"]
    lines += [f"| {' | '.join(row)} |" for row in rows(progress)]
    lines += ["", f"{summary(progress)}."]
    lines += [f"- {violation}" for violation in progress.violations]
    return "\n".join(lines) + "\n"
