"""`python -m chaos`: run a job, inject faults chosen by a seed, and find lost, duplicate and wrong results."""

from __future__ import annotations

import argparse
import random
import shlex
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from chaos import report
from chaos.ends.files import FileEnds
from chaos.ends.served import ServedEnds
from chaos.plan import (
    ALL_KINDS,
    BACKENDS,
    CLUSTER,
    FILE_MIX,
    HARNESS,
    LOCAL,
    MEMORY_KINDS,
    NEED_SPARK,
    SERVER_MIX,
    make_plan,
)
from chaos.rig import Rig

TO_BE_CONTINUED = 3
ENDS = ("files", "postgres", "redis")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    parser.add_argument("--kills", type=int, default=20, help="number of faults (20)")
    parser.add_argument(
        "--seed", type=int, help="determines the faults and their timing; random, and printed, by default"
    )
    parser.add_argument("--backend", choices=BACKENDS, default="filesystem")
    parser.add_argument(
        "--ends",
        choices=ENDS,
        default="files",
        help="source and sink of the job: files, a PostgreSQL server, or a Redis server and files",
    )
    parser.add_argument(
        "--master",
        help=f"run on this master only; by default some drivers use {LOCAL}, some {CLUSTER}. '{HARNESS}' uses no JVM",
    )
    parser.add_argument("--kinds", help=f"comma-separated list of faults to inject: {', '.join(ALL_KINDS)}")
    parser.add_argument("--without", default="", help="comma-separated list of faults to exclude")
    parser.add_argument(
        "--minutes", type=float, help=f"stop after this time with exit code {TO_BE_CONTINUED}; the next run continues"
    )
    parser.add_argument("--work", type=Path, help="work directory; another run with the same one continues this run")
    parser.add_argument("--summary", type=Path, metavar="FILE", help="also write the table as Markdown")
    chosen = parser.parse_args()
    if chosen.backend == "memory" and chosen.ends != "files":
        parser.error(
            "with the memory backend every driver starts from scratch and writes all output again: --ends files"
        )
    chosen.mix = FILE_MIX if chosen.ends == "files" else SERVER_MIX
    possible = [*MEMORY_KINDS, "driver"] if chosen.backend == "memory" else list(chosen.mix)
    if chosen.master == HARNESS:
        possible = [kind for kind in possible if kind not in NEED_SPARK]
    elif chosen.master is not None and "cluster" not in chosen.master:
        possible = [kind for kind in possible if not ALL_KINDS[kind].cluster]
    asked = chosen.kinds.split(",") if chosen.kinds else possible
    for kind in asked:
        if kind not in possible:
            where = chosen.backend if chosen.ends == "files" else f"{chosen.backend} and {chosen.ends}"
            parser.error(f"fault '{kind}' does not apply to {where}; choose from: {', '.join(possible)}")
    chosen.faults = [kind for kind in asked if kind not in chosen.without.split(",")]
    if chosen.seed is None:
        chosen.seed = random.SystemRandom().randrange(1_000_000)
    if chosen.work is None:
        ends = "" if chosen.ends == "files" else f"{chosen.ends}-"
        name = f"{ends}{chosen.backend}-seed-{chosen.seed}-kills-{chosen.kills}"
        chosen.work = Path(tempfile.gettempdir(), "penstock-chaos", name)
    return chosen


def command(chosen: argparse.Namespace) -> str:
    """Return the command that repeats or continues this run."""
    words = ["python", "-m", "chaos", "--kills", chosen.kills, "--seed", chosen.seed, "--backend", chosen.backend]
    for name in ("ends", "master", "kinds", "without"):
        if getattr(chosen, name) not in (None, "", "files"):
            words += [f"--{name}", getattr(chosen, name)]
    return shlex.join(map(str, [*words, "--work", chosen.work]))


def ends(chosen: argparse.Namespace, work: Path) -> FileEnds | ServedEnds:
    # The servers come from wheels that are only needed here.
    if chosen.ends == "postgres":
        from chaos.ends.postgres import PostgresEnds

        return PostgresEnds(work)
    if chosen.ends == "redis":
        from chaos.ends.redis import RedisEnds

        # The harness tracks a single position, not one per stream.
        return RedisEnds(work, streams=1 if chosen.master == HARNESS else 2)
    return FileEnds(work)


def main() -> int:
    chosen = arguments()
    # On SIGTERM the rig stops the job as well, and another run can continue.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    masters = [chosen.master] if chosen.master else (LOCAL, CLUSTER)
    plan = make_plan(chosen.seed, chosen.kills, chosen.faults, masters, chosen.mix)
    console = Console() if sys.stdout.isatty() else Console(width=160)
    console.print(f"{command(chosen)}", highlight=False, soft_wrap=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task("faults", total=chosen.kills)

        def say(text: str) -> None:
            console.print(text, highlight=False, markup=False, soft_wrap=True)
            bar.update(task, completed=len(rig.progress.outcomes))

        rig = Rig(chosen.work.resolve(), chosen.backend, plan, say, chosen.minutes, lambda work: ends(chosen, work))
        if rig.progress.outcomes:
            say(f"continuing after {len(rig.progress.outcomes)} of {chosen.kills} faults, in {chosen.work}")
        try:
            over = rig.run()
        except KeyboardInterrupt:
            over = False
    console.print(report.table(rig.progress))
    if chosen.summary is not None:
        chosen.summary.write_text(report.markdown(rig.progress, command(chosen)))
    for violation in rig.progress.violations:
        console.print(f"VIOLATION: {violation}", style="bold red", highlight=False, markup=False, soft_wrap=True)
    if rig.progress.violations:
        console.print(f"See {chosen.work}. To repeat the run: {command(chosen)}", highlight=False, soft_wrap=True)
        return 1
    if not over:
        console.print(f"Not finished yet. To continue: {command(chosen)}", highlight=False, soft_wrap=True)
        return TO_BE_CONTINUED
    console.print("No record was lost or duplicated, and the state equals the oracle's.")
    rig.ends.remove()
    shutil.rmtree(chosen.work, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
