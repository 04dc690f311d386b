"""Suggested fixes for objects that cannot be sent to a task, depending on the object and its holder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_CREATE = "Create it in {method} instead of holding it: {method} runs in the task."


def advice(function: Any, value: Any) -> str:
    """Return a fix. `function` is the part that the user wrote, `value` the object it holds; None if not found."""
    package = type(value).__module__.partition(".")[0]
    kind = type(value).__name__
    if package == "pyspark" and hasattr(value, "collect"):
        return (
            f"A {kind} exists only in the driver program. Collect the data that the function needs before the job "
            f"starts, rows = df.collect(), and use rows; or make the {kind} a source of the job: env.from_spark(df)."
        )
    if package == "pyspark":
        return (
            f"A {kind} exists only in the driver program, not in tasks. Read the data that the function needs before "
            f"the job starts, and use the result in the function."
        )
    if package == "penstock" and (hasattr(value, "get_execution_environment") or hasattr(value, "execute_and_collect")):
        return (
            "Environments and streams exist only in the driver program, to declare the job. Pass the function its data "
            "as records, as state, or as plain values."
        )
    if isinstance(value, Iterator):
        return "Pass the function a list of the iterator's values, or create the iterator where it is used."
    if hasattr(function, "create_writer"):
        return _CREATE.format(method="create_writer()")
    if hasattr(getattr(function, "__self__", function), "open"):
        return _CREATE.format(method="open()")
    return (
        "A plain function has no place to create it. Write a class instead, such as a MapFunction, that creates it in "
        "open(self, runtime_context): open() runs in the task."
    )
