"""How the records that an operator emits reach its consumers: checked, and as copies where they are shared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from penstock.errors import PenstockError
from penstock.runtime.exchange import Records
from penstock.runtime.operators import Emit, Operator, WrongResult, describe
from penstock.runtime.sharing import independent
from penstock.state.serializers import Serializer


class TypeCheck:
    """Refuses what an operator emits against its declared type, before it goes anywhere.

    What it lets pass is as an exchange would give it, so that chaining changes no result.
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
                    f"{describe(self._operator.function)} gave a result that is not of the output_type of "
                    f"'{self._operator.name}': {error.statement()}.",
                    fix=error.fix,
                ) from None
        self._emit(result)


def each_to(operator: Operator) -> Callable[[Records], None]:
    """Give many records to an operator, one after the other."""

    def feed(values: Records) -> None:
        process = operator.process
        for value in values:
            process(value)

    return feed


class Consumer(NamedTuple):
    """Who is given the records of an operator: how to give it one that is its own, and how one that may be shared."""

    process: Emit
    process_shared: Emit

    @staticmethod
    def of(operator: Operator) -> Consumer:
        return Consumer(operator.process, operator.process if operator.reads_only else operator.process_shared)


def fan_out(consumers: list[Consumer], owned: bool = False) -> Emit:
    """Give a record to every consumer, as it was when it was emitted, whatever the others and the giver do with it.

    `owned`: the giver has no use for it any more, and so the last consumer needs no copy.
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
    """As `root`, but it is given copies, which it can change."""

    def feed(values: Records) -> None:
        root([independent(value) for value in values])

    return feed


def discard(value: Any) -> None:
    """Take a record that no operator reads."""
