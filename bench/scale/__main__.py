"""`python -m bench.scale`: how the driver's costs grow with subtasks, key groups and changed keys, with limits.

Takes about twelve minutes on one core, and no Spark. The driver's real code runs over simulated tasks, on a job of four
keyed operators with 500 subtasks each, 32,768 key groups and 10 million changed keys per epoch. Each of the three is
varied on its own, in a process per size. `--plot FILE` draws the figures.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from bench.rows import Rows, run_json
from bench.scale.growth import FITTED, Growth
from bench.scale.job import Figures
from bench.scale.plot import Curve, Panel, charts
from bench.scale.size import OPERATORS, Size

LIMIT = 1.1
"""Largest exponent of any growth."""
MANIFEST_LIMIT = 5e6
AXES = {
    "subtasks": (31, 62, 125, 250, 500, 1000),
    "key_groups": (2048, 4096, 8192, 16_384, 32_768),
    "changed_keys": (10_000, 100_000, 625_000, 1_250_000, 2_500_000, 5_000_000, 10_000_000),
}
ROUNDS = {"subtasks": 5}
"""How often the sizes of an axis are measured, in turns. On a shared machine, the same size takes up to 1.7 times as
long a minute later."""
QUANTITIES: dict[str, Callable[[Figures], float]] = {
    "driver, CPU ms per epoch": lambda figures: figures.cpu_ms,
    "manifest, KB": lambda figures: figures.manifest_bytes / 1e3,
    "reports, KB per epoch": lambda figures: figures.collected_bytes / 1e3,
    "driver memory, MB": lambda figures: figures.memory_bytes / 1e6,
    "files created per epoch": lambda figures: figures.files,
    "names listed per epoch": lambda figures: figures.listed,
    "restarted executor, MB read": lambda figures: figures.restart_bytes / 1e6,
    "of these, manifests, MB": lambda figures: figures.restart_manifests_bytes / 1e6,
    "restarted executor, CPU ms": lambda figures: figures.restart_cpu_ms,
    "snapshot, CPU ms": lambda figures: figures.snapshot_ms,
}
LIMITED = tuple(name for name in QUANTITIES if not name.startswith("snapshot"))
"""Not a snapshot: it does not belong to an epoch, and takes too short to be measured well."""
DRAWN = tuple(name for name in QUANTITIES if name.startswith(("driver", "manifest", "files", "restarted executor, MB")))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit with 1 if a limit is missed")
    parser.add_argument("--plot", type=Path, help="write the charts to this SVG file")
    parser.add_argument("--only", choices=list(AXES), help="vary only this")
    chosen = parser.parse_args()
    if chosen.check and chosen.only:
        parser.error("--check needs all measurements, but --only leaves some out")
    err = Console(stderr=True)
    rows = Rows(f"{OPERATORS} operators of {Size().subtasks} subtasks, {Size().key_groups:,} key groups", err)
    measured: dict[Size, Figures] = {}
    panels = [_of_axis(axis, sizes, measured, rows, err) for axis, sizes in AXES.items() if chosen.only in (None, axis)]
    full = measured[Size()]
    rows.add(
        f"manifest with {Size().changed_keys:,} changed keys",
        f"{full.manifest_bytes / 1e6:.2f} MB",
        f"≤ {MANIFEST_LIMIT / 1e6:.0f} MB",
        full.manifest_bytes <= MANIFEST_LIMIT,
    )
    largest = max(each.manifest_bytes for each in measured.values())
    rows.add(
        "largest manifest of all sizes",
        f"{largest / 1e6:.2f} MB",
        f"≤ {MANIFEST_LIMIT / 1e6:.0f} MB",
        largest <= MANIFEST_LIMIT,
    )
    rows.add("snapshot for the service", f"{full.snapshot_ms:.0f} ms of CPU, {full.snapshot_bytes / 1e3:.0f} KB")
    if chosen.plot:
        chosen.plot.write_text(charts(panels))
    return rows.show(chosen.check)


def _of_axis(axis: str, sizes: tuple[int, ...], measured: dict[Size, Figures], rows: Rows, err: Console) -> list[Panel]:
    """Measure a job of each size along one axis, print the figures, and check how they grow."""
    name = axis.replace("_", " ")
    for turn in range(ROUNDS.get(axis, 1)):
        for number in sizes:
            size = _size(axis, number)
            before = measured.get(size)
            if turn or before is None:
                err.log(f"measuring {number:,} {name}")
                found = _measured(size)
                measured[size] = found if before is None else fastest(before, found)
    figures = [measured[_size(axis, number)] for number in sizes]
    table = Table(title=f"By {name}", caption=f"exponent: of the {FITTED} largest sizes")
    for heading in (name, *(f"{number:,}" for number in sizes), "exponent"):
        table.add_column(heading, justify="right")
    panels = []
    for quantity, of in QUANTITIES.items():
        values = [of(each) for each in figures]
        growth = Growth(sizes, values)
        table.add_row(quantity, *(f"{value:,.3g}" if value < 100 else f"{value:,.0f}" for value in values),
                      f"{growth.exponent:.2f}")  # fmt: skip
        if quantity in LIMITED:
            rows.add(
                f"{quantity}: growth with {name}", f"{growth.exponent:.2f}", f"≤ {LIMIT}", growth.exponent <= LIMIT
            )
        if quantity in DRAWN:
            panels.append(Panel(quantity, name, Curve(sizes, values, growth)))
    Console(width=160).print(table)
    return panels


def fastest(one: Figures, other: Figures) -> Figures:
    """Return the figures of a size of which two runs exist. They do the same work: the lower CPU time of each epoch."""
    return msgspec.structs.replace(
        one,
        epochs_ms=[*map(min, one.epochs_ms, other.epochs_ms)],
        restarts_ms=[*map(min, one.restarts_ms, other.restarts_ms)],
        snapshot_ms=min(one.snapshot_ms, other.snapshot_ms),
    )


def _size(axis: str, number: int) -> Size:
    return Size(**{axis: number})


def _measured(size: Size) -> Figures:
    command = [sys.executable, "-m", "bench.scale.job", msgspec.json.encode(size).decode()]
    return msgspec.convert(run_json(command), Figures)


if __name__ == "__main__":
    sys.exit(main())
