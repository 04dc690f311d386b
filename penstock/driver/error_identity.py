"""Whether two failures are the same: their class, their message and their place, without what differs each time."""

from __future__ import annotations

import re

from penstock.errors import PenstockError

_VOLATILE = [
    (re.compile(pattern, re.IGNORECASE), instead)
    for pattern, instead in (
        (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "<id>"),
        (r"\b0x[0-9a-f]+\b", "<address>"),
        (r"\b(?=[0-9a-f]*[0-9])[0-9a-f]{16,}\b", "<id>"),
        # Of a name with several addresses the client takes one after the other.
        (r"\bipv[46]#\S+", "<address>"),
        (r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d([.,]\d+)?(Z|[+-]\d\d:?\d\d)?", "<time>"),
        (r"\b\d\d:\d\d:\d\d([.,]\d+)?\b", "<time>"),
        (r"\b\d+([.,]\d+)? ?(ns|us|µs|ms|s|sec|secs|seconds?|min|minutes?)\b", "<duration>"),
        # As Spark counts, and as we do.
        (r"\b(task|stage|attempt|restart|retry|epoch|checkpoint|subtask|job|partition) #?\d+(\.\d+)?", r"\1 <n>"),
        (r"\b(TID|pid|process|port) #?\d+", r"\1 <n>"),
        # Py4J's name for an object of the JVM, and Spark's for a column of a plan.
        (r"\bcalling o\d+\.", "calling o<n>."),
        (r"\b([a-z_]\w*)#\d+L?\b", r"\1#<n>"),
        (r"\bpenstock-\w+", "penstock-<id>"),
    )
]


def error_identity(error: BaseException) -> str:
    """A text that is the same each time the same thing goes wrong."""
    kind = type(error)
    message = str(error)
    for pattern, instead in _VOLATILE:
        message = pattern.sub(instead, message)
    return "\n".join((f"{kind.__module__}.{kind.__qualname__}", _place(error), message))


def _place(error: BaseException) -> str:
    """The user's line if it is known, or the one that raised."""
    if isinstance(error, PenstockError) and error.locations:
        return f"{error.locations[0].file}:{error.locations[0].line}"
    trace = error.__traceback__
    if trace is None:
        return ""
    while trace.tb_next is not None:
        trace = trace.tb_next
    return f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
