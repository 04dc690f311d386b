"""Delivers the records that an operator emits to its consumers: type-checked, and copied if they are shared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from penstock.errors import PenstockError
from penstock.runtime.exchange import Records
from penstock.runtime.operators import Emit, Operator, WrongResult, describe
from penstock.runtime.sharing import independent
from penstock.state.serializers import Serializer


class TypeCheck:
    """Rejects results that do not match the operator's declared output type.

    Results that pass are converted as an exchange would convert them; chaining does not affect results.
    """

    def __init__(self, serializer: Serializer, operator: Operator, emit: Emit) -> None:
        self._check = serializer.check
        self._exact = serializer.exact
        self._operator = operator
        self._emit = emit

    def process(self, result: Any) -> None:
        if type(result) is not self._exact:
            try:
                result = self._check(result)
            except PenstockError as error:
                raise WrongResult(
                    f"{describe(self._operator.function)} returned a result that does not match the output_type of "
                    f"'{self._operator.name}': {error.statement()}.",
                    fix=error.fix,
                ) from None
        self._emit(result)


def each_to(operator: Operator) -> Callable[[Records], None]:
    """Return a function that passes many records to an operator, one by one."""

    def feed(values: Records) -> None:
        process = operator.process
        for value in values:
            process(value)

    return feed


class Consumer(NamedTuple):
    """A consumer of an operator's records: one method for records it owns, one for records that might be shared."""

    process: Emit
    process_shared: Emit

    @staticmethod
    def of(operator: Operator) -> Consumer:
        return Consumer(operator.process, operator.process if operator.reads_only else operator.process_shared)


def fan_out(consumers: list[Consumer], owned: bool = False) -> Emit:
    """Return a function that emits a record to every consumer, isolated from later changes by the others.

    `owned`: the emitter does not use the record any more, so the last consumer needs no copy.
    """
    if not consumers:
        return discard
    calls = [consumer.process_shared for consumer in consumers]
    if owned:
        calls[-1] = consumers[-1].process
    if len(calls) == 1:
        return calls[0]

    def emit(value: Any) -> None:
        for call in calls:
            call(value)

    return emit


def with_copies(root: Callable[[Records], None]) -> Callable[[Records], None]:
    """Return `root`, fed with copies that it can change."""

    def feed(values: Records) -> None:
        root([independent(value) for value in values])

    return feed


def discard(value: Any) -> None:
    """Drop a record that no operator reads."""
