"""Rolling aggregates of one field, and projections.

sum, min and max change only that field; the other fields keep the values of the first record, as in Flink. min_by and
max_by return the complete record with the smallest or largest value, and the first of equal ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.common.row import Row, names_of
from penstock.datastream.functions import KeySelector, MapFunction, RuntimeContext
from penstock.errors import PenstockError
from penstock.graph.logical import GraphError
from penstock.runtime.operators import method_of

_COMBINE: dict[str, Callable[[Any, Any], Any]] = {"sum": lambda a, b: a + b, "min": min, "max": max}


class FieldReducer:
    """A reduce function over one field of tuples, lists or Rows. Position 0 of a plain value is the value itself."""

    def __init__(self, what: str, position: int | str) -> None:
        self.what = what
        self.position = position
        self.combine = _COMBINE.get(what)

    def reduce(self, first: Any, second: Any) -> Any:
        """Combine two records into one by the field of this reducer."""
        position, combine = self.position, self.combine
        if combine is None:
            ahead = self._field(second) < self._field(first)
            behind = self._field(first) < self._field(second)
            return second if (ahead if self.what == "min_by" else behind) else first
        if isinstance(first, Row):
            result = Row.of(names_of(first), list(first))
            result[position] = combine(first[position], second[position])
            return result
        if isinstance(first, (tuple, list)) and isinstance(position, int):
            values = list(first)
            values[position] = combine(first[position], second[position])
            return type(first)(values) if type(first) in (tuple, list) else type(first)(*values)
        if position == 0 and not isinstance(first, (tuple, list, dict)):
            return combine(first, second)
        raise self._wrong(first)

    def _field(self, record: Any) -> Any:
        position = self.position
        if isinstance(record, Row) or (isinstance(record, (tuple, list)) and isinstance(position, int)):
            return record[position]  # type: ignore[index]
        if position == 0 and not isinstance(record, (tuple, list, dict)):
            return record
        raise self._wrong(record)

    def _wrong(self, record: Any) -> PenstockError:
        position = self.position
        return PenstockError(
            f"{self.what}({position!r}) needs tuples, lists or Rows that have this field; {self.what}(0) also "
            f"accepts plain values such as numbers. It received a record of type {type(record).__name__}."
        )


def field_reducer(what: str, position: int | str) -> FieldReducer:
    """Return the reducer behind ``sum``, ``min``, ``max``, ``min_by`` and ``max_by`` for one field."""
    if not isinstance(position, (int, str)):
        raise PenstockError(f"{what} needs the position or name of a field, not {type(position).__name__}.")
    return FieldReducer(what, position)


class Projection:
    """A map function that selects fields of tuples, lists or Rows."""

    def __init__(self, positions: tuple[int, ...]) -> None:
        self.positions = positions

    def map(self, value: Any) -> Any:
        """Return the record with only the selected fields, in the order of selection."""
        if isinstance(value, Row):
            names = names_of(value)
            kept = None if names is None else tuple(names[position] for position in self.positions)
            return Row.of(kept, [value[position] for position in self.positions])
        if isinstance(value, (tuple, list)):
            return tuple(value[position] for position in self.positions)
        raise PenstockError(
            f"project needs tuples, lists or Rows. It received a record of type {type(value).__name__}."
        )


class KeyAndRecord(MapFunction):
    """Pairs each record with its key, as the records of PyFlink's keyed streams are."""

    def __init__(self, selector: Any) -> None:
        self._selector = selector

    def open(self, runtime_context: RuntimeContext) -> None:
        """Open the key selector."""
        if isinstance(self._selector, KeySelector):
            self._selector.open(runtime_context)
        self._select = method_of(self._selector, "get_key")

    def close(self) -> None:
        """Close the key selector."""
        if isinstance(self._selector, KeySelector):
            self._selector.close()

    def map(self, value: Any) -> Row:
        """Return the key and the record."""
        key = self._select(value)
        return Row(tuple(key) if type(key) is list else key, value)


def projection(positions: tuple[int, ...]) -> Projection:
    """Return the map function behind ``project``."""
    if not positions or not all(type(position) is int and position >= 0 for position in positions):
        raise GraphError(f"project needs the positions of fields, starting at 0, not {positions!r}.")
    return Projection(positions)
