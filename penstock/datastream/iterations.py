"""Iterations in supersteps over bounded input (docs/write/batch.md).

The output of one superstep is the input of the next. Each superstep is a separate batch job with new functions and
empty state. Its records pass through the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from penstock.common.configuration import Configuration
from penstock.datastream.data_stream import DataStream
from penstock.datastream.environment import StreamExecutionEnvironment
from penstock.datastream.execution_mode import RuntimeExecutionMode
from penstock.errors import PenstockError

__all__ = ["Iterated", "Superstep", "iterate_bounded"]


class Superstep(NamedTuple):
    """The output of an iteration's body."""

    feedback: DataStream
    """The input of the next superstep, or the result of the last one."""
    criteria: DataStream | None = None
    """Another superstep runs only if this stream has records. None: only if ``feedback`` has records."""


class Iterated(NamedTuple):
    """The result of an iteration."""

    records: list[Any]
    """The records of the last superstep."""
    supersteps: int
    converged: bool
    """Whether the criteria ended the iteration before the limit of supersteps."""


Body = Callable[[DataStream, int], Superstep]


def on_spark(stream: DataStream, name: str) -> list[Any]:
    """Run a stream on Spark and return its records."""
    with stream.execute_and_collect(name) as results:
        return list(results)


def iterate_bounded(
    env: StreamExecutionEnvironment,
    records: Iterable[Any],
    body: Body,
    max_supersteps: int,
    run: Callable[[DataStream, str], list[Any]] = on_spark,
) -> Iterated:
    """Run a body over records, then over its own output, until its criteria stream is empty.

    Args:
        env: The environment whose configuration each superstep uses.
        records: The input of the first superstep.
        body: Called as ``body(stream, number)`` for each superstep, starting at 1. It must create any other source from
            ``stream.get_execution_environment()``.
        max_supersteps: The limit of supersteps.
        run: Runs a superstep and returns its records. In tests, pass ``lambda stream, name: JobHarness(stream).run()``.

    Returns:
        The records of the last superstep, the number of supersteps, and whether the iteration converged.

    Raises:
        PenstockError: If the limit is below 1, or the body does not return a ``Superstep``.
    """
    if max_supersteps < 1:
        raise PenstockError(f"max_supersteps is {max_supersteps}, so no superstep would run.", fix="Allow at least 1.")
    given = list(records)
    for number in range(1, max_supersteps + 1):
        superstep = body(_environment(env).from_collection(given), number)
        if not isinstance(superstep, Superstep):
            raise PenstockError(
                f"The body of the iteration returned {type(superstep).__name__} in superstep {number}, not Superstep.",
                fix="Return Superstep(feedback, criteria), with streams derived from the input stream.",
            )
        both = superstep.feedback.map(_fed_back)
        if superstep.criteria is not None:
            both = both.union(superstep.criteria.map(_goes_on))
        results = run(both, f"superstep-{number}")
        given = [value for feedback, value in results if feedback]
        goes_on = superstep.criteria is None or any(not feedback for feedback, _ in results)
        if not given or not goes_on:
            return Iterated(given, number, True)
    return Iterated(given, max_supersteps, False)


def _environment(env: StreamExecutionEnvironment) -> StreamExecutionEnvironment:
    """Return a new environment for one superstep, because each superstep is a separate program."""
    fresh = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict(env.get_configuration().to_dict())
    )
    fresh._spark = env._spark
    return fresh.set_runtime_mode(RuntimeExecutionMode.BATCH)


def _fed_back(value: Any) -> tuple[bool, Any]:
    return True, value


def _goes_on(value: Any) -> tuple[bool, Any]:
    # Only the existence of a record matters, not its value.
    return False, None
