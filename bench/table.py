"""The table of a run, and its verdict on the limits."""

import importlib.metadata
import os
import platform

from rich.table import Table

from bench.plan import PEER_EPOCH_RECORDS, Bar, Line, Way
from bench.result import Result

Results = dict[tuple[str, Way], Result]

_MARK = {True: "✓", False: "✗", None: "?"}


def ratio(line: Line, peer: Way, results: Results, way: Way = "penstock") -> float | None:
    """Return the ratio of one of our implementations to `peer`: of throughputs, or of epoch times if the unit is ms."""
    ours, theirs = results.get((line.name, way)), results.get((line.name, peer))
    if ours is None or theirs is None:
        return None
    if line.unit == "ms":
        return ours.median_seconds / theirs.median_seconds
    return ours.records_per_second / theirs.records_per_second


def holds(line: Line, bar: Bar, results: Results) -> bool | None:
    """Return whether the limit is met; None if it was not measured."""
    value = ratio(line, bar.peer, results, bar.ours)
    if value is None:
        return None
    return value <= bar.limit if line.unit == "ms" else value >= bar.limit


def describe(line: Line, bar: Bar) -> str:
    return f"{'≤' if line.unit == 'ms' else '≥'} {bar.limit:.3g}× {bar.peer}"


def failures(lines: list[Line], results: Results) -> list[str]:
    """Return descriptions of the missed limits. A limit that was not measured is missed."""
    missed = []
    for line in lines:
        for bar in line.bars:
            if not holds(line, bar, results):
                value = ratio(line, bar.peer, results, bar.ours)
                seen = "not measured" if value is None else f"is {value:.3g}"
                missed.append(f"{line.title}: {describe(line, bar)} {seen}")
    return missed


def render(lines: list[Line], results: Results, same_epochs: bool, load: float) -> Table:
    peer_epochs = "the same" if same_epochs else f"{PEER_EPOCH_RECORDS:,}"
    table = Table(
        title="Running count per key, local[2], median of warm epochs",
        caption=(
            f"epochs of 500,000 records, for transformWithState {peer_epochs} · "
            f"Spark {importlib.metadata.version('pyspark')}, Python {platform.python_version()}, "
            f"{os.cpu_count()} cores, load {load:.1f} before"
        ),
    )
    table.add_column("workload")
    for heading in ("penstock", "transformWithState", "dict loop", "ours/tWS", "ours/dict"):
        table.add_column(heading, justify="right")
    table.add_column("limits")
    for line in lines:
        table.add_row(
            line.title,
            *(_cell(line, results.get((line.name, way))) for way in ("penstock", "transform-with-state", "dict-loop")),
            *(_ratio_cell(ratio(line, peer, results)) for peer in ("transform-with-state", "dict-loop")),
            ", ".join(f"{_MARK[holds(line, bar, results)]} {describe(line, bar)}" for bar in line.bars),
        )
    return table


def render_event_time(lines: list[Line], results: Results) -> Table:
    table = Table(title="Event time, local[2], median of warm epochs")
    for heading in ("implementation", "workload", "measured", "peer", "measured", "ratio", "limit"):
        table.add_column(heading, justify="right" if heading in ("measured", "ratio") else "left")
    for line in lines:
        for bar in line.bars:
            table.add_row(
                bar.ours,
                line.title,
                _cell(line, results.get((line.name, bar.ours))),
                bar.peer,
                _cell(line, results.get((line.name, bar.peer))),
                _ratio_cell(ratio(line, bar.peer, results, bar.ours)),
                f"{_MARK[holds(line, bar, results)]} {describe(line, bar)}",
            )
    return table


def _cell(line: Line, result: Result | None) -> str:
    if result is None:
        return "–"
    if line.unit == "ms":
        return f"{result.median_seconds * 1000:,.0f} ms"
    return f"{result.records_per_second:,.0f}/s"


def _ratio_cell(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}×"
