"""What to do about an object that cannot travel to a task: it depends on the object, and on what holds it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_CREATE = "Create it in {method} instead of holding it: {method} runs where the records are."


def advice(function: Any, value: Any) -> str:
    """`function` is the part that the user wrote, `value` what it holds; None if that was not found."""
    package = type(value).__module__.partition(".")[0]
    kind = type(value).__name__
    if package == "pyspark" and hasattr(value, "collect"):
        return (
            f"A {kind} exists only in the program. Collect what the function needs before the job, rows = "
            f"df.collect(), and use rows; or make the {kind} a source of the job: env.from_spark(df)."
        )
    if package == "pyspark":
        return (
            f"A {kind} exists only in the program: tasks have none. Read what the function needs before the job, and "
            f"use the result in the function."
        )
    if package == "penstock" and (hasattr(value, "get_execution_environment") or hasattr(value, "execute_and_collect")):
        return (
            "Environments and streams exist only in the program, to declare the job. Give the function what it needs "
            "as records, as state, or as plain values."
        )
    if isinstance(value, Iterator):
        return "Give the function a list of what the iterator yields, or create the iterator where it is used."
    if hasattr(function, "create_writer"):
        return _CREATE.format(method="create_writer()")
    if hasattr(getattr(function, "__self__", function), "open"):
        return _CREATE.format(method="open()")
    return (
        "A plain function has nowhere to create it. Write a class instead, such as a MapFunction, that creates it in "
        "open(self, runtime_context): open() runs where the records are."
    )
