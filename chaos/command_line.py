"""A run from the command line: the options that all rigs have, and the end of a run with its report and exit code."""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from rich.console import Console

from chaos.progress import Progress
from chaos.report import Report

TO_BE_CONTINUED = 3
INCOMPLETE = 4
"""No violation was found, but some faults are not possible on this host."""


class AnyRig(Protocol):
    progress: Progress

    def run(self) -> bool:
        """Carry out the plan. Return whether the run is over; otherwise another one continues it."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kills", type=int, default=20, help="number of faults (20)")
    parser.add_argument(
        "--seed", type=int, help="determines the faults and their timing; random, and printed, by default"
    )
    parser.add_argument(
        "--minutes", type=float, help=f"stop after this time with exit code {TO_BE_CONTINUED}; the next run continues"
    )
    parser.add_argument("--work", type=Path, help="work directory; another run with the same one continues this run")
    parser.add_argument("--summary", type=Path, metavar="FILE", help="also write the table as Markdown")


def complete(chosen: argparse.Namespace, name: str) -> None:
    """Choose the seed and the work directory, whose name starts with `name`, if the user did not."""
    if chosen.seed is None:
        chosen.seed = random.SystemRandom().randrange(1_000_000)
    if chosen.work is None:
        chosen.work = Path(tempfile.gettempdir(), "penstock-chaos", f"{name}-seed-{chosen.seed}-kills-{chosen.kills}")


def begin(command: str) -> tuple[Console, Callable[[str], None]]:
    """Print the command of this run. Return the console, and a function that prints a line."""
    # On SIGTERM the rig ends its processes as well, and another run can continue.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    console = Console() if sys.stdout.isatty() else Console(width=160)

    def say(text: str) -> None:
        console.print(text, highlight=False, markup=False, soft_wrap=True)

    say(command)
    return console, say


def carry_out(rig: AnyRig, chosen: argparse.Namespace, say: Callable[[str], None]) -> bool:
    """Run or continue the plan. Return whether the run is over."""
    if rig.progress.outcomes:
        say(f"continuing after {len(rig.progress.outcomes)} of {chosen.kills} faults, in {chosen.work}")
    try:
        return rig.run()
    except KeyboardInterrupt:
        return False


def conclude(
    report: Report, chosen: argparse.Namespace, console: Console, *, over: bool, command: str, success: str
) -> int:
    """Print the report and return the exit code of the run."""

    def say(text: str, style: str | None = None) -> None:
        console.print(text, style=style, highlight=False, markup=False, soft_wrap=True)

    console.print(report.table())
    if chosen.summary is not None:
        chosen.summary.write_text(report.markdown(command))
    for violation in report.progress.violations:
        say(f"VIOLATION: {violation}", "bold red")
    if report.progress.violations:
        say(f"See {chosen.work}. To repeat the run: {command}")
        return 1
    if not over:
        say(f"Not finished yet. To continue: {command}")
        return TO_BE_CONTINUED
    if report.left_out:
        say(f"Incomplete: these faults are not possible on this host: {', '.join(report.left_out)}.", "bold yellow")
        return INCOMPLETE
    say(success)
    return 0
