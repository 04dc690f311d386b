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
from chaos.plan import BACKENDS, CLUSTER, HARNESS, HARNESS_KINDS, KINDS, LOCAL, MEMORY_KINDS, make_plan
from chaos.rig import Rig

TO_BE_CONTINUED = 3


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    parser.add_argument("--kills", type=int, default=20, help="how many faults (20)")
    parser.add_argument("--seed", type=int, help="what is done, and when; by chance, and printed, if left out")
    parser.add_argument("--backend", choices=BACKENDS, default="filesystem")
    parser.add_argument(
        "--master",
        help=f"run on this only; else some drivers run on {LOCAL}, some on {CLUSTER}. '{HARNESS}' is without a JVM",
    )
    parser.add_argument("--kinds", help=f"only these faults, with commas between: {', '.join(KINDS)}")
    parser.add_argument("--without", default="", help="not these faults, with commas between")
    parser.add_argument(
        "--minutes", type=float, help=f"stop then, with exit code {TO_BE_CONTINUED}; the next run goes on"
    )
    parser.add_argument("--work", type=Path, help="the directory of this run; the next run with the same one goes on")
    parser.add_argument("--summary", type=Path, metavar="FILE", help="write the table as Markdown too")
    chosen = parser.parse_args()
    possible = [*MEMORY_KINDS, "driver"] if chosen.backend == "memory" else list(KINDS)
    if chosen.master == HARNESS:
        possible = [kind for kind in possible if kind in HARNESS_KINDS]
    elif chosen.master is not None and "cluster" not in chosen.master:
        possible = [kind for kind in possible if not KINDS[kind].cluster]
    asked = chosen.kinds.split(",") if chosen.kinds else possible
    for kind in asked:
        if kind not in possible:
            parser.error(f"no fault '{kind}' for {chosen.backend}; there are: {', '.join(possible)}")
    chosen.faults = [kind for kind in asked if kind not in chosen.without.split(",")]
    if chosen.seed is None:
        chosen.seed = random.SystemRandom().randrange(1_000_000)
    if chosen.work is None:
        name = f"{chosen.backend}-seed-{chosen.seed}-kills-{chosen.kills}"
        chosen.work = Path(tempfile.gettempdir(), "penstock-chaos", name)
    return chosen


def command(chosen: argparse.Namespace) -> str:
    """What repeats or goes on with this run."""
    words = ["python", "-m", "chaos", "--kills", chosen.kills, "--seed", chosen.seed, "--backend", chosen.backend]
    for name in ("master", "kinds", "without"):
        if getattr(chosen, name):
            words += [f"--{name}", getattr(chosen, name)]
    return shlex.join(map(str, [*words, "--work", chosen.work]))


def main() -> int:
    chosen = arguments()
    # Whoever ends the rig politely also ends the job, and can go on later.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    plan = make_plan(chosen.seed, chosen.kills, chosen.faults, [chosen.master] if chosen.master else (LOCAL, CLUSTER))
    console = Console() if sys.stdout.isatty() else Console(width=160)
    console.print(f"{command(chosen)}", highlight=False, soft_wrap=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task("faults", total=chosen.kills)

        def say(text: str) -> None:
            console.print(text, highlight=False, markup=False, soft_wrap=True)
            bar.update(task, completed=len(rig.progress.outcomes))

        rig = Rig(chosen.work.resolve(), chosen.backend, plan, say, chosen.minutes)
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
    shutil.rmtree(chosen.work, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
