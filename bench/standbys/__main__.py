"""`python -m bench.standbys`: the epochs after the loss of one of three executors, with and without a standby.

Takes about four minutes on two cores. `--scale 0.01` only checks that everything works; it measures nothing.
"""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from bench.masters import LARGER_CLUSTER
from bench.rows import Rows, run_json
from bench.state.inputs import write_changes, write_load

BACKENDS = ("filesystem", "rocksdb")
SETTLE, EPOCHS, AFTER, LOSSES = 12, 8, 5, 3


def measure(backend: str, standbys: int, work: Path, scale: float, rows: Rows) -> None:
    keys, changed = int(1_000_000 * scale), int(50_000 * scale)
    files = write_load(work / "input", keys, int(200_000 * scale))
    write_changes(work / "input", files, (SETTLE + EPOCHS + AFTER) * LOSSES + 5, keys, changed)
    job = [sys.executable, "-m", "bench.standbys.job", "--backend", backend, "--input", str(work / "input")]
    job += ["--work", str(work), "--standbys", str(standbys), "--load", str(files), "--settle", str(SETTLE)]
    job += ["--epochs", str(EPOCHS), "--after", str(AFTER), "--losses", str(LOSSES)]
    report = run_json(job, dies=True)
    ordinary = statistics.median(report["ordinary"])
    first, *_, last = zip(*report["after"], strict=True)
    title = "one standby" if standbys else "no standby"
    rows.add(
        f"{backend}, {title}: an ordinary epoch, {changed:,} of {keys:,} keys change",
        f"{ordinary:,.0f} ms ({min(report['ordinary']):,.0f} to {max(report['ordinary']):,.0f})",
    )
    for which, times, limit in (("first", first, 2.0 if standbys else None), ("fifth", last, 1.5)):
        ratio = statistics.median(times) / ordinary
        rows.add(
            f"{backend}, {title}: the {which} epoch after the loss of an executor",
            f"{ratio:.2f} times; {', '.join(f'{each:,.0f}' for each in times)} ms",
            "" if limit is None else f"≤ {limit:g} times",
            None if limit is None else ratio <= limit,
        )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.standbys", description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit with 1 if a limit is missed")
    parser.add_argument("--scale", type=float, default=1.0, help="factor for all numbers of keys and records")
    parser.add_argument("--backend", action="append", choices=BACKENDS, default=[])
    chosen = parser.parse_args()
    err = Console(stderr=True)
    rows = Rows(f"Standby replicas, {LARGER_CLUSTER}", err)
    with err.status("") as status:
        for backend in chosen.backend or BACKENDS[:1]:
            for standbys in (0, 1):
                status.update(f"{backend}, {standbys} standbys")
                with tempfile.TemporaryDirectory(prefix="penstock-bench-") as work:
                    measure(backend, standbys, Path(work), chosen.scale, rows)
    return rows.show(chosen.check)


if __name__ == "__main__":
    sys.exit(main())
