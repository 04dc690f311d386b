"""`python -m bench.state`: one table of what state costs as it grows, from one run, and the bars it must hold.

About ten minutes on two cores. `--scale 0.01` is a look at whether everything works, not at figures.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.state.inputs import write_backlog, write_changes, write_load

BACKENDS = ("filesystem", "rocksdb")
MEASURED, WARM_UP = 20, 5
MB = 1 << 20


@dataclass
class Sizes:
    scale: float

    def of(self, count: int) -> int:
        return max(100, int(count * self.scale))

    def __post_init__(self) -> None:
        self.small, self.medium, self.large = self.of(100_000), self.of(1_000_000), self.of(10_000_000)
        self.changed = self.of(50_000)
        self.backlog = self.of(20_000_000)


@dataclass
class Row:
    what: str
    measured: str
    bar: str = ""
    holds: bool | None = None


@dataclass
class Run:
    """The rows of the table, and the directory everything is in."""

    directory: Path
    sizes: Sizes
    status: Any
    rows: list[Row] = field(default_factory=list)

    def add(self, what: str, measured: str, bar: str = "", holds: bool | None = None) -> None:
        self.rows.append(Row(what, measured, bar, holds))
        self.status.console.log(f"{what}: {measured}")

    # -- growth ------------------------------------------------------------------------------------------------------

    def growth(self, backend: str) -> None:
        """Epochs that change as many keys, of a small and of a large state."""
        told = {}
        for name, keys in (("small", self.sizes.small), ("large", self.sizes.large)):
            self.status.update(f"{backend}, {keys:,} keys")
            told[name] = self._epochs(backend, keys)
        seconds = {name: _median(each["epochs"], "cycle_ms") for name, each in told.items()}
        ratio = seconds["large"] / seconds["small"]
        large = told["large"]["epochs"]
        loaded = sum(epoch["entry_bytes"] for epoch in told["large"]["load"])
        self.add(
            f"{backend}: {self.sizes.changed:,} of {self.sizes.large:,} keys ({loaded / MB:,.0f} MB) change",
            f"{seconds['large']:,.0f} ms, of {self.sizes.small:,} keys {seconds['small']:,.0f} ms: {ratio:.2f}×",
            "≤ 1.5×",
            ratio <= 1.5,
        )
        uploaded = statistics.median(epoch["delta_bytes"] / epoch["entry_bytes"] for epoch in large)
        bases = sum(epoch["base_bytes"] for epoch in large) / len(large)
        self.add(
            f"{backend}: bytes uploaded an epoch, of the bytes changed",
            f"{uploaded:.2f}× of {_median(large, 'entry_bytes') / MB:.1f} MB; bases {bases / MB:.1f} MB an epoch",
            "≤ 1.5×",
            uploaded <= 1.5,
        )
        anonymous = told["large"]["anonymous"]
        limit = 512 * MB
        self.add(
            f"{backend}: anonymous memory of a worker, most of the whole run",
            f"{anonymous / MB:,.0f} MiB",
            "≤ 512 MiB" if backend == "rocksdb" else "",
            anonymous <= limit if backend == "rocksdb" else None,
        )

    def _epochs(self, backend: str, keys: int) -> dict[str, Any]:
        work = self._work()
        files = write_load(work / "input", keys, self.sizes.of(1_000_000))
        write_changes(work / "input", files, WARM_UP + MEASURED, keys, self.sizes.changed)
        told = self._job(backend, work)
        shutil.rmtree(work)
        return told | {"load": told["epochs"][:files], "epochs": told["epochs"][files + WARM_UP :]}

    # -- recovery ----------------------------------------------------------------------------------------------------

    def recovery(self) -> None:
        self.status.update("a bare query's restart")
        bare = self._bare()
        self.add("a bare Spark query starts again", f"{bare:.1f} s to its first batch")
        for backend in BACKENDS:
            self.status.update(f"{backend}: recovery of {self.sizes.medium:,} keys")
            work = self._work()
            files = write_load(work / "input", self.sizes.medium, self.sizes.of(200_000))
            write_changes(work / "input", files, 6, self.sizes.medium, self.sizes.changed)
            self._job(backend, work, "--die-after", str(files + 3), dies=True)
            kept = work.with_suffix(".kept")
            shutil.copytree(work / "checkpoints", kept)
            warm = self._restart(backend, work)
            # The same crash again, with the replicas gone.
            shutil.rmtree(work / "checkpoints")
            shutil.rmtree(work / "replicas")
            shutil.move(kept, work / "checkpoints")
            cold = self._restart(backend, work)
            self.add(
                f"{backend}: recovery of {self.sizes.medium:,} keys, replicas there",
                f"{warm:.1f} s to the first epoch, {warm - bare:+.1f} s",
                "≤ +2 s",
                warm - bare <= 2,
            )
            self.add(
                f"{backend}: recovery of {self.sizes.medium:,} keys, no replicas",
                f"{cold:.1f} s to the first epoch, {cold - bare:+.1f} s",
                "≤ +10 s",
                cold - bare <= 10,
            )
            shutil.rmtree(work)

    def _restart(self, backend: str, work: Path) -> float:
        started = time.time()
        return float(self._job(backend, work)["first"]) - started

    def _bare(self) -> float:
        work = self._work()
        write_changes(work / "input", 0, 10, self.sizes.medium, self.sizes.changed)
        command = [sys.executable, "-m", "bench.state.bare", str(work / "input"), str(work)]
        _run([*command, "5"], dies=True)
        started = time.time()
        first = float(_run([*command, "-1"])["first"])
        shutil.rmtree(work)
        return first - started

    # -- one large epoch ---------------------------------------------------------------------------------------------

    def backlog(self, backend: str) -> None:
        self.status.update(f"{backend}: one epoch over {self.sizes.backlog:,} records")
        work = self._work()
        files = write_backlog(work / "input", self.sizes.medium, self.sizes.backlog, self.sizes.of(500_000))
        told = self._job(backend, work, "--files-per-epoch", str(files))
        epochs = told["epochs"]
        self.add(
            f"{backend}: one epoch over {epochs[0]['records']:,} records of {self.sizes.medium:,} keys",
            f"{told['peak'] / MB:,.0f} MiB resident at most, {epochs[0]['duration_ms'] / 1000:.0f} s",
            "≤ 1024 MiB",
            told["peak"] <= 1024 * MB and len(epochs) == 1,
        )
        shutil.rmtree(work)

    def _job(self, backend: str, work: Path, *options: str, dies: bool = False) -> Any:
        command = [sys.executable, "-m", "bench.state.job", "--backend", backend, "--input", str(work / "input")]
        return _run([*command, "--work", str(work), *options], dies)

    def _work(self) -> Path:
        return Path(tempfile.mkdtemp(dir=self.directory))


def _run(command: list[str], dies: bool = False) -> Any:
    done = subprocess.run(command, capture_output=True, text=True, timeout=3600)
    lines = done.stdout.strip().splitlines()
    if dies != (done.returncode == -9) or (not dies and not lines):
        raise SystemExit(f"{' '.join(command)}: exit status {done.returncode}\n{done.stderr[-3000:]}")
    return None if dies else json.loads(lines[-1])


def _median(epochs: list[dict[str, Any]], name: str) -> float:
    return statistics.median(epoch[name] for epoch in epochs)


def render(rows: list[Row], load: float) -> Table:
    table = Table(title="State, local[2]", caption=f"{os.cpu_count()} cores, load {load:.1f} before")
    for heading in ("what", "measured", "bar"):
        table.add_column(heading)
    for row in rows:
        mark = {True: "✓ ", False: "✗ ", None: ""}[row.holds]
        table.add_row(row.what, row.measured, mark + row.bar)
    return table


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.state", description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit with 1 when a bar does not hold")
    parser.add_argument("--scale", type=float, default=1.0, help="of every number of keys and records")
    parser.add_argument("--only", action="append", choices=["growth", "recovery", "backlog"], default=[])
    parser.add_argument("--backend", action="append", choices=BACKENDS, default=[])
    chosen = parser.parse_args()
    load = os.getloadavg()[0]
    err = Console(stderr=True)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory, err.status("") as status:
        run = Run(Path(directory), Sizes(chosen.scale), status)
        for backend in chosen.backend or BACKENDS:
            if not chosen.only or "growth" in chosen.only:
                run.growth(backend)
        if not chosen.only or "recovery" in chosen.only:
            run.recovery()
        for backend in chosen.backend or BACKENDS:
            if not chosen.only or "backlog" in chosen.only:
                run.backlog(backend)
    out = Console() if sys.stdout.isatty() else Console(width=150)
    out.print(render(run.rows, load))
    missed = [row for row in run.rows if row.holds is False]
    for row in missed if chosen.check else []:
        print(f"bar missed: {row.what}: {row.measured}, {row.bar}", file=sys.stderr)
    return 1 if chosen.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
