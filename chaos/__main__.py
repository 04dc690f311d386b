"""`python -m chaos`: run a job, kill and damage it as the seed says, and see what is lost, twice or wrong."""

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
    parser.add_argument("--kills", type=int, default=20, help="how many faults (20)")
    parser.add_argument("--seed", type=int, help="what is done, and when; by chance, and printed, if left out")
    parser.add_argument("--backend", choices=BACKENDS, default="filesystem")
    parser.add_argument(
        "--ends",
        choices=ENDS,
        default="files",
        help="what the job reads from and writes to: files, a PostgreSQL server, or a Redis server and files",
    )
    parser.add_argument(
        "--master",
        help=f"run on this only; else some drivers run on {LOCAL}, some on {CLUSTER}. '{HARNESS}' is without a JVM",
    )
    parser.add_argument("--kinds", help=f"only these faults, with commas between: {', '.join(ALL_KINDS)}")
    parser.add_argument("--without", default="", help="not these faults, with commas between")
    parser.add_argument(
        "--minutes", type=float, help=f"stop then, with exit code {TO_BE_CONTINUED}; the next run goes on"
    )
    parser.add_argument("--work", type=Path, help="the directory of this run; the next run with the same one goes on")
    parser.add_argument("--summary", type=Path, metavar="FILE", help="write the table as Markdown too")
    chosen = parser.parse_args()
    if chosen.backend == "memory" and chosen.ends != "files":
        parser.error("a job on memory begins anew with every driver, and gives everything again: --ends files")
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
            parser.error(f"no fault '{kind}' for {where}; there are: {', '.join(possible)}")
    chosen.faults = [kind for kind in asked if kind not in chosen.without.split(",")]
    if chosen.seed is None:
        chosen.seed = random.SystemRandom().randrange(1_000_000)
    if chosen.work is None:
        ends = "" if chosen.ends == "files" else f"{chosen.ends}-"
        name = f"{ends}{chosen.backend}-seed-{chosen.seed}-kills-{chosen.kills}"
        chosen.work = Path(tempfile.gettempdir(), "penstock-chaos", name)
    return chosen


def command(chosen: argparse.Namespace) -> str:
    """What repeats or goes on with this run."""
    words = ["python", "-m", "chaos", "--kills", chosen.kills, "--seed", chosen.seed, "--backend", chosen.backend]
    for name in ("ends", "master", "kinds", "without"):
        if getattr(chosen, name) not in (None, "", "files"):
            words += [f"--{name}", getattr(chosen, name)]
    return shlex.join(map(str, [*words, "--work", chosen.work]))


def ends(chosen: argparse.Namespace, work: Path) -> FileEnds | ServedEnds:
    # The servers come from wheels that only those need who ask for one.
    if chosen.ends == "postgres":
        from chaos.ends.postgres import PostgresEnds

        return PostgresEnds(work)
    if chosen.ends == "redis":
        from chaos.ends.redis import RedisEnds

        # The harness counts how far it has read, not in which of several.
        return RedisEnds(work, streams=1 if chosen.master == HARNESS else 2)
    return FileEnds(work)


def main() -> int:
    chosen = arguments()
    # Whoever ends the rig politely also ends the job, and can go on later.
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
            say(f"going on after {len(rig.progress.outcomes)} of {chosen.kills} faults, in {chosen.work}")
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
        console.print(f"See {chosen.work}. To repeat it: {command(chosen)}", highlight=False, soft_wrap=True)
        return 1
    if not over:
        console.print(f"Not over yet. To go on: {command(chosen)}", highlight=False, soft_wrap=True)
        return TO_BE_CONTINUED
    console.print("Nothing was lost, nothing came twice, and state equals the oracle's.")
    rig.ends.remove()
    shutil.rmtree(chosen.work, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
