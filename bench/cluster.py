"""`python -m bench.cluster`: the count on two executors in separate processes, against the count in one process.

Both have two cores, and take turns. On the executors, rows of an exchange cross a socket, and each executor has
separate replicas.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench.masters import CLUSTER, MASTER
from bench.pairs import Side, compare
from bench.plan import Way, executors_line
from bench.ways import measure


def main() -> int:
    line = executors_line()
    (bar,) = line.bars
    parser = argparse.ArgumentParser(prog="python -m bench.cluster", description=__doc__)
    parser.add_argument("--pairs", type=int, default=5, metavar="N", help="number of pairs to run (5)")
    parser.add_argument("--check", action="store_true", help=f"exit with 1 if the median is below {bar.limit}")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="penstock-cluster-") as inputs:

        def run(way: Way) -> Callable[[], float]:
            return lambda: measure(line, way, Path(inputs)).median_seconds

        return compare(
            f"{line.title}, {CLUSTER} against {MASTER}",
            Side(name=MASTER, seconds=run(bar.peer)),
            Side(name=CLUSTER, seconds=run(bar.ours)),
            chosen.pairs,
            bar.limit if chosen.check else None,
        )


if __name__ == "__main__":
    sys.exit(main())
