"""Spark's JVM, as a process that may end before the job does."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import Any

from pyspark import SparkContext

from penstock.errors import PenstockError

_REAPED_S = 2.0
"""The JVM's connections close before its process has ended."""


class SparkEnded(PenstockError):
    """Spark's JVM ended while the job ran. Operator action: find what ended it, and start the program again."""

    retryable = False


def jvm_death() -> SparkEnded | None:
    """What ended the JVM that this process started; None if it lives, or if another process started it."""
    process: subprocess.Popen[bytes] | None = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return None
    try:
        code = process.wait(_REAPED_S)
    except subprocess.TimeoutExpired:
        return None
    return SparkEnded(
        f"Spark's JVM (process {process.pid}) has ended: {_cause(code)}.",
        fix="If memory ran out, raise spark.driver.memory or give the machine more. Start the program again: with "
        "checkpoints it resumes from the last one.",
    )


def _cause(code: int) -> str:
    if code == -signal.SIGKILL:
        return "it was killed by SIGKILL, as the kernel does when memory runs out (see dmesg)"
    if code < 0:
        try:
            return f"it was killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"it was killed by signal {-code}"
    return f"it exited with code {code}"


def end_quietly(context: Any) -> None:
    """Let PySpark's accumulator server print no traceback when the JVM closes its connection by dying."""
    server = getattr(context, "_accumulatorServer", None)
    if server is None or hasattr(server, "penstock_quiet"):
        return
    before = server.handle_error

    def handle_error(request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], (EOFError, ConnectionError)):
            before(request, client_address)

    server.handle_error = handle_error
    server.penstock_quiet = True
