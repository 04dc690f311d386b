"""`python -m bench.savepoint`: what savepoints and rescaling cost a job with a million keys, and the bars.

About four minutes on two cores. `--scale 0.01` is a look at whether everything works, not at figures.
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
    told = run_json([*job, "--work", str(work), *lives], dies=True)
    ordinary = statistics.median(told["ordinary"])
    size = Savepoint.load(told["savepoint"]).metadata.size
    rows.add(f"{backend}: an ordinary epoch, {changed:,} of {keys:,} keys change", f"{ordinary:,.0f} ms")
    # The one that began with it, and every other until it was there.
    beside = told["saved"][: max(1, told["epochs_meanwhile"] + 1)]
    delay = (max(beside) - ordinary) / 1000
    rows.add(
        f"{backend}: the slowest epoch beside a live savepoint",
        f"{max(beside):,.0f} ms, {delay:+.2f} s; {len(beside)} epochs meanwhile",
        "≤ +1 s",
        delay <= 1,
    )
    rows.add(
        f"{backend}: a live savepoint ({size / (1 << 20):,.0f} MB)",
        f"{told['savepoint_s']:.1f} s",
        "≤ 10 s",
        told["savepoint_s"] <= 10,
    )
    # Java is still getting faster: the last epochs are what those after a rescale are to be measured by.
    last = statistics.median(told["narrow"][WIDE:])
    cost = (sum(told["wide"]) + sum(told["narrow"][:WIDE])) / last - 2 * WIDE
    first = [told["wide"][0], told["narrow"][0]]
    rows.add(
        f"{backend}: rescaled 2→4→2, {WIDE} epochs after each",
        f"{cost:+.1f} epochs of {last:,.0f} ms; the first ones took {first[0]:,.0f} and {first[1]:,.0f} ms",
        "≤ 3 epochs",
        cost <= 3,
    )
    seconds = []
    for number in range(RESTORES):
        began = time.time()
        begun = run_json([*job, "--work", str(work / f"restored-{number}"), "--restore", told["stopped"]], dies=True)
        seconds.append(begun["first"] - began)
        assert begun["state_bytes"] > size / 2, "the job began without its state: this would measure nothing"
        shutil.rmtree(work / f"restored-{number}")
    took = statistics.median(seconds)
    rows.add(
        f"{backend}: a new process begins with it at parallelism 4, until its first epoch is over",
        f"{took:.1f} s ({min(seconds):.1f} to {max(seconds):.1f})",
        "≤ 15 s",
        took <= 15,
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.savepoint", description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit with 1 when a bar does not hold")
    parser.add_argument("--scale", type=float, default=1.0, help="of every number of keys and records")
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
