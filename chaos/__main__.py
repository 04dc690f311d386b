"""`python -m chaos`: run a job, inject faults chosen by a seed, and find lost, duplicate and wrong results."""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from chaos.command_line import add_options, begin, carry_out, complete, conclude
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
from chaos.report import Report
from chaos.rig import Rig

ENDS = ("files", "postgres", "redis")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    add_options(parser)
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
    parser.add_argument("--standbys", type=int, default=0, help="standby replicas of the state of each subtask (0)")
    parser.add_argument("--kinds", help=f"comma-separated list of faults to inject: {', '.join(ALL_KINDS)}")
    parser.add_argument("--without", default="", help="comma-separated list of faults to exclude")
    chosen = parser.parse_args()
    if chosen.backend == "memory" and chosen.ends != "files":
        parser.error(
            "with the memory backend every driver starts from scratch and writes all output again: --ends files"
        )
    chosen.mix = FILE_MIX if chosen.ends == "files" else SERVER_MIX
    if chosen.backend == "memory" and chosen.standbys:
        parser.error("the memory backend has no replicas that another executor could follow: leave --standbys out")
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
    ends = "" if chosen.ends == "files" else f"{chosen.ends}-"
    complete(chosen, f"{ends}{chosen.backend}")
    return chosen


def command(chosen: argparse.Namespace) -> str:
    """Return the command that repeats or continues this run."""
    words = ["python", "-m", "chaos", "--kills", chosen.kills, "--seed", chosen.seed, "--backend", chosen.backend]
    for name in ("ends", "master", "standbys", "kinds", "without"):
        if getattr(chosen, name) not in (None, "", "files", 0):
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
    masters = [chosen.master] if chosen.master else (LOCAL, CLUSTER)
    plan = make_plan(chosen.seed, chosen.kills, chosen.faults, masters, chosen.mix)
    console, say = begin(command(chosen))
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task("faults", total=chosen.kills)

        def say_and_count(text: str) -> None:
            say(text)
            bar.update(task, completed=len(rig.progress.outcomes))

        rig = Rig(
            chosen.work.resolve(),
            chosen.backend,
            plan,
            say_and_count,
            chosen.minutes,
            lambda work: ends(chosen, work),
            chosen.standbys,
        )
        over = carry_out(rig, chosen, say_and_count)
    code = conclude(
        Report(rig.progress, ALL_KINDS),
        chosen,
        console,
        over=over,
        command=command(chosen),
        success="No record was lost or duplicated, and the state equals the oracle's.",
    )
    if code == 0:
        rig.ends.remove()
        shutil.rmtree(chosen.work, ignore_errors=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
