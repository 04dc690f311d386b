"""Spark's JVM, as a process that can end before the job does."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import Any

from pyspark import SparkContext

from penstock.errors import PenstockError

_REAPED_S = 2.0
"""Maximum wait for the process: the JVM's connections close before its process ends."""


class SparkEnded(PenstockError):
    """Spark's JVM ended while the job ran. Operator action: find out what ended it, and start the program again."""

    retryable = False


def jvm_death() -> SparkEnded | None:
    """Return what ended the JVM that this process started, or None if it is alive or belongs to another process."""
    process: subprocess.Popen[bytes] | None = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return None
    try:
        code = process.wait(_REAPED_S)
    except subprocess.TimeoutExpired:
        return None
    return SparkEnded(
        f"Spark's JVM (process {process.pid}) has ended: {_cause(code)}.",
        fix="If it ran out of memory, raise spark.driver.memory or give the machine more. Then start the program "
        "again: with checkpoints it resumes from the last one.",
    )


def _cause(code: int) -> str:
    if code == -signal.SIGKILL:
        return "it was killed by SIGKILL, as by the kernel when memory runs out (see dmesg)"
    if code < 0:
        try:
            return f"it was killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"it was killed by signal {-code}"
    return f"it exited with code {code}"


def end_quietly(context: Any) -> None:
    """Keep PySpark's accumulator server from printing a traceback when the JVM dies and closes its connection."""
    server = getattr(context, "_accumulatorServer", None)
    if server is None or hasattr(server, "penstock_quiet"):
        return
    before = server.handle_error

    def handle_error(request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], (EOFError, ConnectionError)):
            before(request, client_address)

    server.handle_error = handle_error
    server.penstock_quiet = True
