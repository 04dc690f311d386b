"""`python -m chaos.query`: read the state of a job at random while its processes are killed, and find wrong answers."""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
from pathlib import Path

from chaos.command_line import begin, complete, conclude
from chaos.plan import CLUSTER, HARNESS
from chaos.query.plan import KINDS, make_plan
from chaos.query.rig import Rig
from chaos.report import Report


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m chaos.query", description=__doc__)
    parser.add_argument("--kills", type=int, default=20, help="number of processes to kill (20)")
    parser.add_argument("--rescales", type=int, default=3, help="number of rescales of the running job (3)")
    parser.add_argument("--stops", type=int, default=1, help="number of stops with a savepoint and restores (1)")
    parser.add_argument("--reads", type=int, default=100_000, help="number of answered reads (100,000)")
    parser.add_argument("--clients", type=int, default=3, help="number of clients that read at the same time (3)")
    parser.add_argument("--seed", type=int, help="determines the faults and the reads; random by default")
    parser.add_argument(
        "--master", default=CLUSTER, help=f"master of the job ({CLUSTER}); '{HARNESS}' uses no JVM and no executors"
    )
    parser.add_argument("--work", type=Path, help="work directory; must not exist")
    parser.add_argument("--summary", type=Path, metavar="FILE", help="also write the table as Markdown")
    chosen = parser.parse_args()
    complete(chosen, "query")
    if chosen.work.exists():
        parser.error(f"{chosen.work} exists: remove it, or choose another directory with --work")
    return chosen


def command(chosen: argparse.Namespace) -> str:
    """Return the command that repeats this run."""
    words = ["python", "-m", "chaos.query"]
    for name in ("kills", "rescales", "stops", "reads", "clients", "seed", "master", "work"):
        words += [f"--{name}", getattr(chosen, name)]
    return shlex.join(map(str, words))


def main() -> int:
    chosen = arguments()
    plan = make_plan(chosen.seed, chosen.kills, chosen.rescales, chosen.stops)
    if chosen.master == HARNESS:
        plan = [kind if kind != "executor" else "driver" for kind in plan]
    console, say = begin(command(chosen))
    rig = Rig(chosen.work, chosen.master, plan, chosen.reads, chosen.seed, say, chosen.clients)
    try:
        rig.run()
    except KeyboardInterrupt:
        say("Interrupted.")
        return 130
    say(rig.summary())
    code = conclude(
        Report(rig.progress, KINDS),
        chosen,
        console,
        over=True,
        command=command(chosen),
        success="Every answer equals the state of the checkpoint that it names, and no client went back.",
    )
    if code == 0:
        shutil.rmtree(chosen.work, ignore_errors=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
