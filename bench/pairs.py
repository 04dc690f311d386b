"""`python -m bench.pairs --base REVISION`: run one line of the benchmark on two revisions, in interleaved pairs.

The speed of a shared machine changes by the hour, so two runs an hour apart are hard to compare. Here every pair runs
both revisions back to back, each in a fresh process, and the order within a pair alternates. The result is the median
of the pairs' ratios.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench import plan
from bench.plan import Line
from bench.ways import WayFailed, measure

LEAST_RATIO = 0.92
HERE = Path(__file__).resolve().parent.parent


def arguments() -> argparse.Namespace:
    lines = [line.name for line in comparable()]
    parser = argparse.ArgumentParser(prog="python -m bench.pairs", description=__doc__)
    parser.add_argument("--base", required=True, metavar="REVISION", help="the git revision to compare with")
    parser.add_argument("--line", default="keys-100000", choices=lines, help="the line to measure (keys-100000)")
    parser.add_argument("--pairs", type=int, default=5, metavar="N", help="number of pairs to run (5)")
    parser.add_argument("--check", action="store_true", help=f"exit with 1 if the median is below {LEAST_RATIO}")
    return parser.parse_args()


def comparable() -> list[Line]:
    return [*plan.lines(quick=False, same_epochs=False), *plan.event_time_lines(quick=False)]


@contextmanager
def checkout(revision: str, directory: Path) -> Iterator[Path]:
    """Check out another revision in a worktree, and remove it afterwards."""
    git = ["git", "-C", str(HERE), "worktree"]
    tree = directory / "base"
    subprocess.run([*git, "add", "--detach", str(tree), revision], check=True, capture_output=True)
    try:
        yield tree
    finally:
        subprocess.run([*git, "remove", "--force", str(tree)], check=True, capture_output=True)


@dataclass(frozen=True, kw_only=True)
class Side:
    """One of two implementations that take turns."""

    name: str
    seconds: Callable[[], float]
    """Run it and return the seconds per epoch."""


def compare(title: str, peer: Side, ours: Side, pairs: int, least: float | None) -> int:
    """Run interleaved pairs and print the median ratio. Return the exit code: 1 if it is below `least`."""
    ratios = []
    for number in range(pairs):
        turns = [peer, ours] if number % 2 == 0 else [ours, peer]
        try:
            seconds = {side.name: side.seconds() for side in turns}
        except WayFailed as failure:
            print(failure, file=sys.stderr)
            return 1
        ratios.append(seconds[peer.name] / seconds[ours.name])
        measured = ", ".join(f"{seconds[side.name]:.3f} s {side.name}" for side in (peer, ours))
        print(f"pair {number + 1}: {measured}, ratio {ratios[-1]:.3f}", flush=True)
    median = statistics.median(ratios)
    print(f"{title}: median ratio {median:.3f} of {pairs} pairs")
    if least is not None and median < least:
        print(f"limit missed: the median ratio is below {least}", file=sys.stderr)
        return 1
    return 0


def main() -> int:
    chosen = arguments()
    line = next(line for line in comparable() if line.name == chosen.line)
    way = line.bars[0].ours
    with tempfile.TemporaryDirectory(prefix="penstock-pairs-") as work, checkout(chosen.base, Path(work)) as base:

        def run_in(tree: Path) -> Callable[[], float]:
            return lambda: measure(line, way, Path(work), tree).median_seconds

        return compare(
            f"{line.name}, against {chosen.base}",
            Side(name="before", seconds=run_in(base)),
            Side(name="after", seconds=run_in(HERE)),
            chosen.pairs,
            LEAST_RATIO if chosen.check else None,
        )


if __name__ == "__main__":
    sys.exit(main())
