"""`python -m bench`: run every implementation on every workload, one after the other, and print one table."""

import argparse
import os
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from bench import plan, table
from bench.ways import WayFailed, measure


def arguments() -> argparse.Namespace:
    every = [*plan.lines(quick=False, same_epochs=False), *plan.event_time_lines(quick=False)]
    lines = [line.name for line in every]
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit with 1 if a limit is missed")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="NAME",
        choices=[*lines, *plan.COMMANDS],
        help=f"a line ({', '.join(lines)}) or an implementation ({', '.join(plan.COMMANDS)}); repeatable",
    )
    parser.add_argument("--quick", action="store_true", help="a third of the measured epochs: a rough estimate only")
    parser.add_argument(
        "--same-epochs", action="store_true", help="use our epoch size for transformWithState: far slower"
    )
    chosen = parser.parse_args()
    if chosen.check and set(chosen.only) & set(plan.COMMANDS) - set(lines):
        parser.error("--check compares implementations, so --only can name lines but not implementations")
    return chosen


def main() -> int:
    chosen = arguments()
    counting, timed = plan.lines(chosen.quick, chosen.same_epochs), plan.event_time_lines(chosen.quick)
    names = {line.name for line in [*counting, *timed]} & set(chosen.only)
    ways = (set(plan.COMMANDS) & set(chosen.only)) - names or set(plan.COMMANDS)
    counting = [line for line in counting if not names or line.name in names]
    timed = [line for line in timed if not names or line.name in names]
    lines = [*counting, *timed]

    load = os.getloadavg()[0]
    results: table.Results = {}
    failed = []
    err = Console(stderr=True)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as inputs, err.status("") as status:
        for line in lines:
            for way in (way for way in line.workloads if way in ways):
                status.update(f"{line.title}: {way}")
                try:
                    results[line.name, way] = measure(line, way, Path(inputs))
                except WayFailed as failure:
                    failed.append(str(failure))

    # A pipe or a CI log has no width, and the default of 80 columns would wrap the cells.
    out = Console() if sys.stdout.isatty() else Console(width=150)
    if counting:
        out.print(table.render(counting, results, chosen.same_epochs, load))
    if timed:
        out.print(table.render_event_time(timed, results))
    for message in failed:
        print(message, file=sys.stderr)
    missed = table.failures(lines, results) if chosen.check else []
    for bar in missed:
        print(f"limit missed: {bar}", file=sys.stderr)
    return 1 if failed or missed else 0


if __name__ == "__main__":
    sys.exit(main())
