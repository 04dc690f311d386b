"""`python -m chaos.service`: inject faults chosen by a seed into a cluster that clients use, and check its promises.

1. An acknowledged job runs or has ended. 2. After a fault, every job that should run does so. 3. A cancelled job
commits nothing after 10 s, and its processes end. 4. No two attempts commit an epoch. 5. The service answers again.
6. Outputs equal the oracle's. 7. A job finishes exactly once.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys

from chaos.command_line import add_options, begin, carry_out, complete, conclude
from chaos.report import Report
from chaos.service.plan import KINDS, left_out, make_plan, possible
from chaos.service.records_mount import can_mount, enter_namespace
from chaos.service.rig import ServiceRig, Shape


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m chaos.service", description=__doc__)
    add_options(parser)
    parser.add_argument("--zookeeper", type=int, choices=(0, 1, 3), default=3, help="number of ZooKeeper servers (3)")
    parser.add_argument("--jobs", type=int, default=3, help="maximum number of jobs at once (3)")
    parser.add_argument("--kinds", help=f"comma-separated list of faults to inject: {', '.join(KINDS)}")
    chosen = parser.parse_args()
    known = possible(chosen.zookeeper, can_mount())
    chosen.faults = chosen.kinds.split(",") if chosen.kinds else known
    chosen.left_out = [] if chosen.kinds else left_out(chosen.zookeeper, can_mount())
    for kind in chosen.faults:
        if kind not in known:
            parser.error(f"fault '{kind}' is not possible here; choose from: {', '.join(known)}")
    complete(chosen, "service")
    return chosen


def command(chosen: argparse.Namespace) -> str:
    """Return the command that repeats or continues this run."""
    words = ["python", "-m", "chaos.service"]
    for name in ("kills", "seed", "zookeeper", "jobs", "kinds", "work"):
        if getattr(chosen, name) is not None:
            words += [f"--{name}", getattr(chosen, name)]
    return shlex.join(map(str, words))


def main() -> int:
    enter_namespace(["-m", "chaos.service", *sys.argv[1:]])
    chosen = arguments()
    console, say = begin(command(chosen))
    shape = Shape(
        dispatchers=2 if chosen.zookeeper else 1,
        zookeeper=chosen.zookeeper,
        mounted=can_mount(),
        most_jobs=chosen.jobs,
    )
    plan = make_plan(chosen.seed, chosen.kills, chosen.faults)
    rig = ServiceRig(chosen.work.resolve(), plan, shape, say, chosen.minutes)
    over = carry_out(rig, chosen, say)
    code = conclude(
        Report(rig.progress, KINDS, chosen.left_out),
        chosen,
        console,
        over=over,
        command=command(chosen),
        success="Every acknowledged job ended as its clients wanted, exactly once, and outputs equal the oracle's.",
    )
    if code == 0:
        shutil.rmtree(chosen.work, ignore_errors=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
