"""Spark's Python daemon, which forks workers, with all their imports done before the first fork.

Spark puts an archive of PySpark first on the path of its workers, and each worker imports everything itself. Modules
from an archive are compiled at every start. That takes half a second for the daemon, a tenth for each worker, and
another half second for Arrow, pandas and Penstock. An installed PySpark contains the same modules with cached bytecode.
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
    """Return `path` without the archives of the PySpark that is installed in one of its folders."""
    folders = [entry for entry in path if not entry.endswith(".zip")]
    installed = PathFinder.find_spec("pyspark", folders)
    if installed is None or installed.origin is None:
        return path
    package = os.path.dirname(os.path.realpath(installed.origin)) + os.sep
    return [entry for entry in path if entry in folders or not os.path.realpath(entry).startswith(package)]


def import_for_workers() -> None:
    """Import the modules that workers need.

    None of these imports can leave a thread behind that does not survive a fork. Arrow's allocator has a thread, but
    restarts it in a child. NumPy has none, because Spark sets OMP_NUM_THREADS.
    """
    import pyarrow as pa
    import pyspark.worker  # noqa: F401

    from penstock.spark.worker import tune_collector

    tune_collector()
    # Arrow imports pandas for its first array, and its compute module for the first `take`.
    pa.array([0]).take(pa.array([0]))
    # Freeze existing objects: the workers' collectors skip them and do not copy their pages.
    gc.freeze()


def ending_quietly(worker: Callable[..., int]) -> Callable[..., int]:
    """Wrap PySpark's `worker`, which prints a traceback when its pipe breaks.

    A broken pipe means that Spark gave up the task, for example one that ran concurrently with epochs when the job
    ended. No process waits for its result.
    """

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
