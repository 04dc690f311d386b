"""Rolling sum, min and max of one field: the other fields keep the values of the first record, as in Flink."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.common.row import Row
from penstock.errors import PenstockError

_COMBINE: dict[str, Callable[[Any, Any], Any]] = {"sum": lambda a, b: a + b, "min": min, "max": max}


class FieldReducer:
    """A reduce function over one field of tuples, lists or Rows; position 0 of a plain value is the value."""

    def __init__(self, what: str, position: int | str) -> None:
        self.what = what
        self.position = position
        self.combine = _COMBINE[what]

    def reduce(self, first: Any, second: Any) -> Any:
        position, combine = self.position, self.combine
        if isinstance(first, Row):
            result = Row.of(first._fields, list(first))
            result[position] = combine(first[position], second[position])
            return result
        if isinstance(first, (tuple, list)) and isinstance(position, int):
            values = list(first)
            values[position] = combine(first[position], second[position])
            return type(first)(values) if type(first) in (tuple, list) else type(first)(*values)
        if position == 0 and not isinstance(first, (tuple, list, dict)):
            return combine(first, second)
        raise PenstockError(
            f"{self.what}({position!r}) takes a field of tuples, lists, Rows, and {self.what}(0) plain values, such as "
            f"numbers; it was given a {type(first).__name__}. Map the records to one of these."
        )


def field_reducer(what: str, position: int | str) -> FieldReducer:
    if not isinstance(position, (int, str)):
        raise PenstockError(f"{what} takes a field's position or name, not {type(position).__name__}.")
    return FieldReducer(what, position)
