"""`python -m bench.tables`: read a savepoint with a million keys into pandas and as Arrow batches, with limits.

Takes about two minutes. `--scale 0.01` only checks that everything works; it measures nothing.
"""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console

from bench.rows import Rows, run_json
from bench.tables.work import STATES

RUNS = 3
MB = 1 << 20


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.tables", description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit with 1 if a limit is missed")
    parser.add_argument("--scale", type=float, default=1.0, help="factor for the number of keys")
    chosen = parser.parse_args()
    keys = int(1_000_000 * chosen.scale)
    err = Console(stderr=True)
    rows = Rows(f"State as tables, {keys:,} keys", err)
    with (
        err.status("writing a savepoint") as status,
        tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory,
    ):
        path = str(Path(directory) / "savepoint")
        made = _work("write", path, str(keys))
        size = sum(file.stat().st_size for file in Path(path).rglob("*") if file.is_file())
        rows.add(f"written from a DataFrame, all three states ({size / MB:,.0f} MB)", f"{made['seconds']:.0f} s")
        for state in STATES:
            status.update(state)
            pandas = [_work("pandas", path, state) for _ in range(RUNS)]
            streamed = [_work("stream", path, state) for _ in range(RUNS)]
            assert {run["rows"] for run in pandas + streamed} == {keys}, "some rows were not read"
            took = statistics.median(run["seconds"] for run in pandas)
            rows.add(f"'{state}' to pandas", f"{took:.1f} s", "≤ 10 s", took <= 10)
            took = statistics.median(run["seconds"] for run in streamed)
            memory = max(run["memory"] for run in streamed)
            report = f"{took:.1f} s, {memory / MB:,.0f} MiB above the initial memory"
            rows.add(f"'{state}' as Arrow batches", report, "≤ 128 MiB", memory <= 128 * MB)
    return rows.show(chosen.check)


def _work(*arguments: str) -> Any:
    return run_json([sys.executable, "-m", "bench.tables.work", *arguments])


if __name__ == "__main__":
    sys.exit(main())
