"""Iterations in supersteps over input that ends: what one superstep gives is the input of the next (docs/write/batch.md).

Each superstep is a batch of its own, with new functions and empty state. Its records pass through the driver.
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
    """What the body of an iteration makes of its input."""

    feedback: DataStream
    """The records of the next superstep, or the result."""
    criteria: DataStream | None = None
    """Another superstep follows only if a record comes on it. None: as long as there is feedback."""


class Iterated(NamedTuple):
    """The result of an iteration."""

    records: list[Any]
    """Of the last superstep."""
    supersteps: int
    converged: bool
    """Whether the criteria ended it, and not the number of supersteps."""


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
    """Run the body over the records, then over what it gave, until its criteria stay empty.

    `body(stream, number)` is called for each superstep, the first being 1; what else it reads it takes from
    `stream.get_execution_environment()`, which has the configuration of `env`. `run` runs a superstep and gives its
    records: on Spark, or in a test `lambda stream, name: JobHarness(stream).run()`.
    """
    if max_supersteps < 1:
        raise PenstockError(f"An iteration of {max_supersteps} supersteps does nothing.", fix="Allow at least one.")
    given = list(records)
    for number in range(1, max_supersteps + 1):
        superstep = body(_environment(env).from_collection(given), number)
        if not isinstance(superstep, Superstep):
            raise PenstockError(
                f"The body of the iteration gave a {type(superstep).__name__} in superstep {number}.",
                fix="Return Superstep(feedback, criteria), both streams that were made from its input.",
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
    """One for each superstep, for each is a program."""
    fresh = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict(env.get_configuration().to_dict())
    )
    fresh._spark = env._spark
    return fresh.set_runtime_mode(RuntimeExecutionMode.BATCH)


def _fed_back(value: Any) -> tuple[bool, Any]:
    return True, value


def _goes_on(value: Any) -> tuple[bool, Any]:
    # That there is one is all that counts.
    return False, None
