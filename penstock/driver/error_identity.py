"""The identity of an error: its class, message and location, without details that vary between occurrences."""

from __future__ import annotations

import re

from penstock.errors import PenstockError

_VOLATILE = [
    (re.compile(pattern, re.IGNORECASE), instead)
    for pattern, instead in (
        (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "<id>"),
        (r"\b0x[0-9a-f]+\b", "<address>"),
        (r"\b(?=[0-9a-f]*[0-9])[0-9a-f]{16,}\b", "<id>"),
        # The client tries the addresses of a host name in turn.
        (r"\bipv[46]#\S+", "<address>"),
        (r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d([.,]\d+)?(Z|[+-]\d\d:?\d\d)?", "<time>"),
        (r"\b\d\d:\d\d:\d\d([.,]\d+)?\b", "<time>"),
        (r"\b\d+([.,]\d+)? ?(ns|us|µs|ms|s|sec|secs|seconds?|min|minutes?)\b", "<duration>"),
        # Counters of Spark and Penstock.
        (r"\b(task|stage|attempt|restart|retry|epoch|checkpoint|subtask|job|partition) #?\d+(\.\d+)?", r"\1 <n>"),
        (r"\b(TID|pid|process|port) #?\d+", r"\1 <n>"),
        # Py4J's names for JVM objects, and Spark's for columns of a plan.
        (r"\bcalling o\d+\.", "calling o<n>."),
        (r"\b([a-z_]\w*)#\d+L?\b", r"\1#<n>"),
        (r"\bpenstock-\w+", "penstock-<id>"),
    )
]


def error_identity(error: BaseException) -> str:
    """Return a text that is the same for each occurrence of the same error."""
    kind = type(error)
    message = str(error)
    for pattern, instead in _VOLATILE:
        message = pattern.sub(instead, message)
    return "\n".join((f"{kind.__module__}.{kind.__qualname__}", _place(error), message))


def _place(error: BaseException) -> str:
    """Return the user's line if known, otherwise the line that raised."""
    if isinstance(error, PenstockError) and error.locations:
        return f"{error.locations[0].file}:{error.locations[0].line}"
    trace = error.__traceback__
    if trace is None:
        return ""
    while trace.tb_next is not None:
        trace = trace.tb_next
    return f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
