"""Spark's Python daemon, from which it forks workers, with all that they need imported before the first is forked.

Spark puts an archive of PySpark first on the path of its workers, and lets each import everything for itself. What
comes from an archive is compiled at every start: half a second for the daemon, a tenth for each worker, and half a
second more for Arrow, pandas and Penstock. Where the archive is part of an installed PySpark, that one is the same,
and has its compiled files beside it.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from importlib.machinery import PathFinder
from typing import Any

from penstock.spark.given_up import GivenUp


def without_archives(path: list[str]) -> list[str]:
    """`path` without the archives of the PySpark that is installed in one of its folders."""
    folders = [entry for entry in path if not entry.endswith(".zip")]
    installed = PathFinder.find_spec("pyspark", folders)
    if installed is None or installed.origin is None:
        return path
    package = os.path.dirname(os.path.realpath(installed.origin)) + os.sep
    return [entry for entry in path if entry in folders or not os.path.realpath(entry).startswith(package)]


def import_for_workers() -> None:
    """Of what is imported here nothing may leave a thread behind that does not survive a fork. Arrow's allocator has
    one and starts it anew in a child; NumPy has none, for Spark sets OMP_NUM_THREADS."""
    import pyarrow as pa
    import pyspark.worker  # noqa: F401

    from penstock.spark.worker import tune_collector

    tune_collector()
    # The first array that Arrow makes imports pandas, the first `take` what Arrow computes with.
    pa.array([0]).take(pa.array([0]))
    # What is there now stays: no worker's collector need look at it, nor copy its pages.
    gc.freeze()


def ending_quietly(worker: Callable[..., int]) -> Callable[..., int]:
    """PySpark's `worker`, which shows a traceback when its pipe is broken. Then Spark has given up the task, as it does
    at the end of a job with what runs beside epochs, and nobody waits for the answer."""

    def run(*arguments: Any) -> int:
        try:
            return worker(*arguments)
        except (BrokenPipeError, GivenUp):
            return 1

    return run


if __name__ == "__main__":
    sys.path[:] = without_archives(sys.path)
    from pyspark import daemon

    import_for_workers()
    daemon.worker = ending_quietly(daemon.worker)
    daemon.manager()
