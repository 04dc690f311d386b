"""`python -m bench.savepoint`: the cost of savepoints and rescaling for a job with a million keys, with limits.

Takes about four minutes on two cores. `--scale 0.01` only checks that everything works; it measures nothing.
"""

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console

from bench.rows import Rows, run_json
from bench.state.inputs import write_changes, write_load
from penstock.tables.savepoint import Savepoint

BACKENDS = ("filesystem", "rocksdb")
EPOCHS, WIDE, WARM_UP, RESTORES = 12, 5, 10, 3


def measure(backend: str, work: Path, scale: float, rows: Rows) -> None:
    keys, changed = int(1_000_000 * scale), int(50_000 * scale)
    files = write_load(work / "input", keys, int(200_000 * scale))
    write_changes(work / "input", files, WARM_UP + 3 * EPOCHS + WIDE + 20, keys, changed)
    job = [sys.executable, "-m", "bench.savepoint.job", "--backend", backend, "--input", str(work / "input")]
    lives = ["--savepoints", str(work / "savepoints"), "--load", str(files + WARM_UP), "--epochs", str(EPOCHS)]
    lives += ["--wide", str(WIDE)]
    report = run_json([*job, "--work", str(work), *lives], dies=True)
    ordinary = statistics.median(report["ordinary"])
    size = Savepoint.load(report["savepoint"]).metadata.size
    rows.add(f"{backend}: an ordinary epoch, {changed:,} of {keys:,} keys change", f"{ordinary:,.0f} ms")
    # The epoch in which the savepoint started, and all others until it was complete.
    during = report["saved"][: max(1, report["epochs_meanwhile"] + 1)]
    delay = (max(during) - ordinary) / 1000
    rows.add(
        f"{backend}: the slowest epoch during a live savepoint",
        f"{max(during):,.0f} ms, {delay:+.2f} s; {len(during)} epochs meanwhile",
        "≤ +1 s",
        delay <= 1,
    )
    rows.add(
        f"{backend}: a live savepoint ({size / (1 << 20):,.0f} MB)",
        f"{report['savepoint_s']:.1f} s",
        "≤ 10 s",
        report["savepoint_s"] <= 10,
    )
    # The JVM still gets faster, so the epochs after a rescale are compared with the last ones.
    last = statistics.median(report["narrow"][WIDE:])
    cost = (sum(report["wide"]) + sum(report["narrow"][:WIDE])) / last - 2 * WIDE
    first = [report["wide"][0], report["narrow"][0]]
    rows.add(
        f"{backend}: rescaled 2→4→2, {WIDE} epochs after each",
        f"{cost:+.1f} epochs of {last:,.0f} ms; the first ones took {first[0]:,.0f} and {first[1]:,.0f} ms",
        "≤ 3 epochs",
        cost <= 3,
    )
    seconds = []
    for number in range(RESTORES):
        began = time.time()
        begun = run_json([*job, "--work", str(work / f"restored-{number}"), "--restore", report["stopped"]], dies=True)
        seconds.append(begun["first"] - began)
        assert begun["state_bytes"] > size / 2, "the job started without its state, so this measures nothing"
        shutil.rmtree(work / f"restored-{number}")
    took = statistics.median(seconds)
    rows.add(
        f"{backend}: a new process starts from it at parallelism 4, to the end of its first epoch",
        f"{took:.1f} s ({min(seconds):.1f} to {max(seconds):.1f})",
        "≤ 15 s",
        took <= 15,
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.savepoint", description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit with 1 if a limit is missed")
    parser.add_argument("--scale", type=float, default=1.0, help="factor for all numbers of keys and records")
    parser.add_argument("--backend", action="append", choices=BACKENDS, default=[])
    chosen = parser.parse_args()
    err = Console(stderr=True)
    rows = Rows("Savepoints and rescaling, local[2]", err)
    with err.status("") as status:
        for backend in chosen.backend or BACKENDS:
            status.update(backend)
            with tempfile.TemporaryDirectory(prefix="penstock-bench-") as work:
                measure(backend, Path(work), chosen.scale, rows)
    return rows.show(chosen.check)


if __name__ == "__main__":
    sys.exit(main())
