"""`python -m bench.state`: one table of the cost of growing state, with limits.

Takes about ten minutes on two cores. `--scale 0.01` only checks that everything works; it measures nothing.
"""

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from bench.rows import Rows, run_json
from bench.state.inputs import write_backlog, write_changes, write_load

BACKENDS = ("filesystem", "rocksdb")
MEASURED, WARM_UP = 20, 5
RESTARTS = 5
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
class Run:
    """The rows of the table, and the work directory."""

    directory: Path
    sizes: Sizes
    status: Any
    rows: Rows

    def add(self, what: str, measured: str, bar: str = "", holds: bool | None = None) -> None:
        self.rows.add(what, measured, bar, holds)

    # -- growth ------------------------------------------------------------------------------------------------------

    def growth(self, backend: str) -> None:
        """Compare epochs that change the same number of keys of a small and of a large state."""
        report = {}
        for name, keys in (("small", self.sizes.small), ("large", self.sizes.large)):
            self.status.update(f"{backend}, {keys:,} keys")
            report[name] = self._epochs(backend, keys)
        seconds = {name: _median(each["epochs"], "cycle_ms") for name, each in report.items()}
        ratio = seconds["large"] / seconds["small"]
        large = report["large"]["epochs"]
        loaded = sum(epoch["entry_bytes"] for epoch in report["large"]["load"])
        self.add(
            f"{backend}: {self.sizes.changed:,} of {self.sizes.large:,} keys ({loaded / MB:,.0f} MB) change",
            f"{seconds['large']:,.0f} ms, of {self.sizes.small:,} keys {seconds['small']:,.0f} ms: {ratio:.2f}×",
            "≤ 1.5×",
            ratio <= 1.5,
        )
        uploaded = statistics.median(epoch["delta_bytes"] / epoch["entry_bytes"] for epoch in large)
        bases = sum(epoch["base_bytes"] for epoch in large) / len(large)
        self.add(
            f"{backend}: bytes uploaded per epoch, relative to bytes changed",
            f"{uploaded:.2f}× of {_median(large, 'entry_bytes') / MB:.1f} MB; bases {bases / MB:.1f} MB per epoch",
            "≤ 1.5×",
            uploaded <= 1.5,
        )
        anonymous = report["large"]["anonymous"]
        limit = 512 * MB
        self.add(
            f"{backend}: peak anonymous memory of a worker",
            f"{anonymous / MB:,.0f} MiB",
            "≤ 512 MiB" if backend == "rocksdb" else "",
            anonymous <= limit if backend == "rocksdb" else None,
        )

    def _epochs(self, backend: str, keys: int) -> dict[str, Any]:
        work = self.work()
        files = write_load(work / "input", keys, self.sizes.of(1_000_000))
        write_changes(work / "input", files, WARM_UP + MEASURED, keys, self.sizes.changed)
        report: dict[str, Any] = self.job(backend, work, "--settle-after", str(files))
        shutil.rmtree(work)
        return report | {"load": report["epochs"][:files], "epochs": report["epochs"][files + WARM_UP :]}

    # -- recovery ----------------------------------------------------------------------------------------------------

    def recovery(self) -> None:
        """Restart drivers that die after an epoch: a bare query, and ours with and without replicas. They take turns,
        because a machine can be slow for a minute."""
        crashing = [_Crashing(self, backend) for backend in BACKENDS]
        bare_work = self.work()
        write_changes(bare_work / "input", 0, RESTARTS + 1, self.sizes.medium, self.sizes.changed)
        _bare(bare_work, 0)
        restarts: dict[str, list[float]] = {}
        for number in range(RESTARTS):
            self.status.update(f"restart {number + 1} of {RESTARTS}")
            restarts.setdefault("bare", []).append(_bare(bare_work, number + 1))
            for each in crashing:
                restarts.setdefault(f"{each.backend} warm", []).append(each.restart())
            for each in crashing:
                shutil.rmtree(each.work / "replicas")
                restarts.setdefault(f"{each.backend} cold", []).append(each.restart())
        bare = statistics.median(restarts["bare"])
        self.add("restart of a bare Spark query", f"{_spread(restarts['bare'])} to its first batch")
        for backend in BACKENDS:
            warm, cold = (statistics.median(restarts[f"{backend} {kind}"]) for kind in ("warm", "cold"))
            self.add(
                f"{backend}: recovery of {self.sizes.medium:,} keys, with replicas",
                f"{_spread(restarts[f'{backend} warm'])} to the first epoch, {warm - bare:+.1f} s",
                "≤ +2 s",
                warm - bare <= 2,
            )
            self.add(
                f"{backend}: recovery of {self.sizes.medium:,} keys, without replicas",
                f"{_spread(restarts[f'{backend} cold'])} to the first epoch, {cold - bare:+.1f} s",
                "≤ +10 s",
                cold - bare <= 10,
            )

    # -- one large epoch ---------------------------------------------------------------------------------------------

    def backlog(self, backend: str) -> None:
        self.status.update(f"{backend}: one epoch over {self.sizes.backlog:,} records")
        work = self.work()
        files = write_backlog(work / "input", self.sizes.medium, self.sizes.backlog, self.sizes.of(500_000))
        report = self.job(backend, work, "--files-per-epoch", str(files))
        epochs = report["epochs"]
        self.add(
            f"{backend}: one epoch over {epochs[0]['records']:,} records of {self.sizes.medium:,} keys",
            f"{report['peak'] / MB:,.0f} MiB peak resident, {epochs[0]['duration_ms'] / 1000:.0f} s",
            "≤ 1024 MiB",
            report["peak"] <= 1024 * MB and len(epochs) == 1,
        )
        shutil.rmtree(work)

    def job(self, backend: str, work: Path, *options: str, dies: bool = False) -> Any:
        command = [sys.executable, "-m", "bench.state.job", "--backend", backend, "--input", str(work / "input")]
        return run_json([*command, "--work", str(work), *options], dies)

    def work(self) -> Path:
        return Path(tempfile.mkdtemp(dir=self.directory))


class _Crashing:
    """A job with `medium` keys that is killed after the first epoch of every start."""

    def __init__(self, run: Run, backend: str) -> None:
        self.backend = backend
        self.work = run.work()
        self._run = run
        sizes = run.sizes
        run.status.update(f"{backend}: {sizes.medium:,} keys for the restarts")
        files = write_load(self.work / "input", sizes.medium, sizes.of(200_000))
        write_changes(self.work / "input", files, 4 + 2 * RESTARTS, sizes.medium, sizes.changed)
        self._epoch = files + 3
        run.job(backend, self.work, "--die-after", str(self._epoch), dies=True)

    def restart(self) -> float:
        """Return the seconds from the start of the process to the end of its first epoch."""
        self._epoch += 1
        started = time.time()
        report = self._run.job(self.backend, self.work, "--die-after", str(self._epoch), dies=True)
        return float(report["first"]) - started


def _bare(work: Path, batch: int) -> float:
    """Do the same with a bare query that is killed after this batch."""
    started = time.time()
    report = run_json([sys.executable, "-m", "bench.state.bare", str(work / "input"), str(work), str(batch)], dies=True)
    return float(report["first"]) - started


def _spread(seconds: list[float]) -> str:
    return f"{statistics.median(seconds):.1f} s ({min(seconds):.1f} to {max(seconds):.1f})"


def _median(epochs: list[dict[str, Any]], name: str) -> float:
    return float(statistics.median(epoch[name] for epoch in epochs))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.state", description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit with 1 if a limit is missed")
    parser.add_argument("--scale", type=float, default=1.0, help="factor for all numbers of keys and records")
    parser.add_argument("--only", action="append", choices=["growth", "recovery", "backlog"], default=[])
    parser.add_argument("--backend", action="append", choices=BACKENDS, default=[])
    chosen = parser.parse_args()
    err = Console(stderr=True)
    rows = Rows("State, local[2]", err)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory, err.status("") as status:
        run = Run(Path(directory), Sizes(chosen.scale), status, rows)
        for backend in chosen.backend or BACKENDS:
            if not chosen.only or "growth" in chosen.only:
                run.growth(backend)
        if not chosen.only or "recovery" in chosen.only:
            run.recovery()
        for backend in chosen.backend or BACKENDS:
            if not chosen.only or "backlog" in chosen.only:
                run.backlog(backend)
    return rows.show(chosen.check)


if __name__ == "__main__":
    sys.exit(main())
