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
from collections.abc import Iterator
from contextlib import contextmanager
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


def ratio(line: Line, base: Path, inputs: Path, base_first: bool) -> tuple[float, float, float]:
    """Return the seconds per epoch of the base and of this checkout, and the speedup over the base."""
    way = line.bars[0].ours
    seconds = {}
    for tree in [base, HERE] if base_first else [HERE, base]:
        seconds[tree] = measure(line, way, inputs, tree).median_seconds
    return seconds[base], seconds[HERE], seconds[base] / seconds[HERE]


def main() -> int:
    chosen = arguments()
    line = next(line for line in comparable() if line.name == chosen.line)
    ratios = []
    with tempfile.TemporaryDirectory(prefix="penstock-pairs-") as work, checkout(chosen.base, Path(work)) as base:
        for number in range(chosen.pairs):
            try:
                before, after, times = ratio(line, base, Path(work), base_first=number % 2 == 0)
            except WayFailed as failure:
                print(failure, file=sys.stderr)
                return 1
            ratios.append(times)
            print(f"pair {number + 1}: {before:.3f} s before, {after:.3f} s after, ratio {times:.3f}", flush=True)
    median = statistics.median(ratios)
    print(f"{line.name}: median ratio {median:.3f} of {chosen.pairs} pairs, against {chosen.base}")
    if chosen.check and median < LEAST_RATIO:
        print(f"limit missed: the median ratio is below {LEAST_RATIO}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
