"""Windows over two streams: joins and co-groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from penstock.runtime.context import RuntimeContext
from penstock.runtime.operators import Emit, iterate, method_of
from penstock.runtime.windows.contents import Contents, Listed
from penstock.runtime.windows.operator import WindowDescription, WindowOperator
from penstock.state.namespaced import Namespaced

JOIN, FLAT_JOIN, CO_GROUP = "join", "flat join", "co-group"


class TaggedUnion(NamedTuple):
    """A record of one of two streams, as the assigner, trigger and evictor of a joined window see it."""

    number: int
    """0 for the first stream, 1 for the second."""
    value: Any

    def is_one(self) -> bool:
        """Return whether the record belongs to the first stream."""
        return self.number == 0

    def is_two(self) -> bool:
        """Return whether the record belongs to the second stream."""
        return self.number == 1

    def get_one(self) -> Any:
        """Return the record if it belongs to the first stream, else None."""
        return None if self.number else self.value

    def get_two(self) -> Any:
        """Return the record if it belongs to the second stream, else None."""
        return self.value if self.number else None


class _Sides:
    """The records of each stream, in a list with that stream's type."""

    def __init__(self, scope: Namespaced, types: tuple[Any, Any]) -> None:
        self._parts = [Listed(scope, types[0], "first"), Listed(scope, types[1], "second")]

    def add(self, value: TaggedUnion, timestamp: int | None) -> None:
        self._parts[value.number].add(value.value, timestamp)

    def fire(self, evaluate: Callable[[list[Any]], None], window: Any) -> None:
        values: list[Any] = []

        def take(number: int) -> Callable[[list[Any]], None]:
            return lambda records: values.extend(TaggedUnion(number, record) for record in records)

        for number, part in enumerate(self._parts):
            part.fire(take(number), window)
        if values:
            evaluate(values)

    def clear(self) -> None:
        for part in self._parts:
            part.clear()

    def merge(self, target: bytes, sources: list[bytes]) -> None:
        for part in self._parts:
            part.merge(target, sources)


class CoGroupOperator(WindowOperator):
    """A window operator with two inputs. Its function receives the window's records of each input."""

    def __init__(self, description: WindowDescription, function: Any, how: str, types: tuple[Any, Any]) -> None:
        super().__init__(description, function)
        self.how = how
        self.types = types

    @property
    def kind(self) -> str:
        return self.how

    def open(self, context: RuntimeContext, emit: Emit) -> None:
        super().open(context, emit)
        self.user = method_of(self.function, "co_group" if self.how == CO_GROUP else "join")
        calls = {JOIN: self._join, FLAT_JOIN: self._flat_join, CO_GROUP: self._co_group}
        self._call = calls[self.how]

    def _records(self) -> Contents:
        return _Sides(self.scopes.contents, self.types)

    def process(self, value: Any) -> None:
        super().process(TaggedUnion(0, value))

    def process_second(self, value: Any) -> None:
        super().process(TaggedUnion(1, value))

    def _co_group(self, key: Any, window: Any, values: list[TaggedUnion]) -> Any:
        results = self.user(*_split(values))
        return None if results is None else iterate(results, self.function, "co_group")

    def _join(self, key: Any, window: Any, values: list[TaggedUnion]) -> Iterator[Any]:
        for first, second in _pairs(values):
            yield self.user(first, second)

    def _flat_join(self, key: Any, window: Any, values: list[TaggedUnion]) -> Iterator[Any]:
        for first, second in _pairs(values):
            results = self.user(first, second)
            if results is not None:
                yield from iterate(results, self.function, "join")


def _split(values: list[TaggedUnion]) -> tuple[list[Any], list[Any]]:
    return [each.value for each in values if not each.number], [each.value for each in values if each.number]


def _pairs(values: list[TaggedUnion]) -> Iterator[tuple[Any, Any]]:
    first, second = _split(values)
    for one in first:
        for other in second:
            yield one, other
