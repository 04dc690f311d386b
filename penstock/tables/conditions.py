"""Conditions on the fields of a row, such as `value.price > 10 and key contains "north"`. Nothing is evaluated as code.

::

    condition  = all {"or" all}
    all        = one {"and" one}
    one        = "not" one | "(" condition ")" | text | field operator literal
    operator   = "=" | "!=" | "<" | "<=" | ">" | ">=" | "contains"
    literal    = number | text | true | false | null
    text       = "…" | '…'       alone: the row contains it

A field is a column, or a path into it: `value.price`, `value."unit price"`, `value.0`.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec

from penstock.errors import PenstockError

Row = dict[str, Any]
Holds = Callable[[Row], bool]

_LONGEST = 10_000
_DEEPEST = 50
_TOKEN = re.compile(
    r"""\s*(?:(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')"""
    r"""|(?P<number>-?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)(?![\w.])"""
    r"""|(?P<sign><=|>=|!=|<>|==|=|<|>|\(|\))"""
    r"""|(?P<word>[^\W\d]\w*(?:\.(?:\w+|"[^"]*"))*))""",
)
_PART = re.compile(r'"([^"]*)"|(\w+)')
_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_EQUAL = {"=": True, "==": True, "!=": False, "<>": False}
_CONSTANTS = {"true": True, "false": False, "null": None}
_NUMBER = (int, float, Decimal)
_EXAMPLE = 'Write conditions such as: value.price > 10 and key contains "north"'


class BadCondition(PenstockError):
    """A condition on fields cannot be understood, or does not fit the fields of the state.

    Operator action: correct the part that the message names.
    """


class _Token(NamedTuple):
    kind: str
    """text, number, sign, word, or end."""
    value: Any
    written: str


def condition(text: str, columns: Sequence[str] = ()) -> Holds:
    """Return a function that says whether a row fulfils a condition. Raises BadCondition.

    Args:
        text: The condition.
        columns: The columns of the rows; a field must start with one of them.
    """
    if len(text) > _LONGEST:
        raise BadCondition(f"The condition has more than {_LONGEST:,} characters.", fix="Shorten it.")
    parser = _Parser(text, columns)
    found = parser.any_of(0)
    if parser.next.kind != "end":
        raise parser.wrong("and, or, or the end")
    return found


class _Parser:
    """Parses one condition by recursive descent."""

    def __init__(self, text: str, columns: Sequence[str]) -> None:
        self._text = text
        self._columns = columns
        self._at = 0
        self.next = self._read()

    def any_of(self, depth: int) -> Holds:
        """Parse conditions joined by `or`."""
        parts = [self._all_of(depth)]
        while self._takes("or"):
            parts.append(self._all_of(depth))
        return parts[0] if len(parts) == 1 else lambda row: any(part(row) for part in parts)

    def _all_of(self, depth: int) -> Holds:
        parts = [self._one(depth)]
        while self._takes("and"):
            parts.append(self._one(depth))
        return parts[0] if len(parts) == 1 else lambda row: all(part(row) for part in parts)

    def _one(self, depth: int) -> Holds:
        if depth > _DEEPEST:
            raise BadCondition(f"The condition is nested more than {_DEEPEST} deep.", fix="Leave out parentheses.")
        if self._takes("not"):
            inverse = self._one(depth + 1)
            return lambda row: not inverse(row)
        if self._takes("("):
            inner = self.any_of(depth + 1)
            if not self._takes(")"):
                raise self.wrong("a closing parenthesis")
            return inner
        if self.next.kind == "text":
            wanted = self._take().value
            return lambda row: any(_mentions(value, wanted) for value in row.values())
        if self.next.kind != "word":
            raise self.wrong("a field")
        field = self._take().written
        path = self._path(field)
        if self._takes("contains"):
            return _contains(field, path, self._literal(field))
        sign = self.next.written
        if sign in _EQUAL:
            self._take()
            return _equality(field, path, self._literal(field), _EQUAL[sign])
        if sign in _ORDERS:
            self._take()
            return _order(field, path, sign, self._literal(field))
        raise BadCondition(
            f"Field '{field}' is compared with nothing.",
            fix=f'Write {field} = …, or put it in quotes to find the rows that contain the text: "{field}".',
        )

    def _path(self, field: str) -> list[str]:
        parts = [quoted or plain for quoted, plain in _PART.findall(field)]
        if self._columns and parts[0] not in self._columns:
            raise BadCondition(
                f"The state has no column '{parts[0]}', only {', '.join(self._columns)}.",
                fix="Start a field with one of these, such as value.price.",
            )
        return parts

    def _literal(self, field: str) -> Any:
        if self.next.kind in ("text", "number"):
            return self._take().value
        if self.next.kind == "word" and self.next.written.lower() in _CONSTANTS:
            return _CONSTANTS[self._take().written.lower()]
        if self.next.kind == "word":
            word = self.next.written
            raise BadCondition(
                f"Field '{field}' is compared with {word}, which is not a value.",
                fix=f'Put text in quotes: "{word}".',
            )
        raise self.wrong("a number, text in quotes, true, false or null")

    def _takes(self, written: str) -> bool:
        found = self.next.kind in ("word", "sign") and self.next.written.lower() == written
        if found:
            self._take()
        return found

    def _take(self) -> _Token:
        taken, self.next = self.next, self._read()
        return taken

    def _read(self) -> _Token:
        found = _TOKEN.match(self._text, self._at)
        if found is None:
            rest = self._text[self._at :].strip()
            if not rest:
                return _Token("end", None, "the end")
            if rest[0] in "\"'":
                raise BadCondition(f"The text {rest[:40]} has no closing quote.", fix="Add the quote.")
            raise BadCondition(f"'{rest[:40]}' is not a condition.", fix=_EXAMPLE)
        self._at = found.end()
        kind = found.lastgroup or ""
        written = found[kind]
        value: Any = written
        if kind == "text":
            value = re.sub(r"\\(.)", r"\1", written[1:-1])
        elif kind == "number":
            value = int(written) if re.fullmatch(r"-?\d+", written) else float(written)
        return _Token(kind, value, written)

    def wrong(self, expected: str) -> BadCondition:
        """Return the error for the next token."""
        return BadCondition(f"The condition has {self.next.written} where it needs {expected}.", fix=_EXAMPLE)


def _reach(row: Row, path: list[str]) -> Any:
    """Return the value at a path, or None if the row does not have it."""
    value: Any = row
    for name in path:
        if isinstance(value, dict):
            value = value.get(name)
        elif isinstance(value, list | tuple) and name.isdigit():
            value = value[int(name)] if int(name) < len(value) else None
        elif isinstance(value, list) and value and all(isinstance(pair, tuple) and len(pair) == 2 for pair in value):
            # The entries of a map.
            value = next((each for key, each in value if key == name), None)
        else:
            return None
    return value


def _equality(field: str, path: list[str], literal: Any, equal: bool) -> Holds:
    def holds(row: Row) -> bool:
        value = _reach(row, path)
        if value is None or literal is None:
            return (value is literal) is equal
        return bool(value == _as(field, value, literal)) is equal

    return holds


def _order(field: str, path: list[str], sign: str, literal: Any) -> Holds:
    if isinstance(literal, bool) or literal is None:
        raise BadCondition(f"'{sign}' does not order true, false or null.", fix="Use = or !=.")
    compare = _ORDERS[sign]

    def holds(row: Row) -> bool:
        value = _reach(row, path)
        return value is not None and bool(compare(value, _as(field, value, literal)))

    return holds


def _contains(field: str, path: list[str], literal: Any) -> Holds:
    def holds(row: Row) -> bool:
        value = _reach(row, path)
        if isinstance(value, str) and not isinstance(literal, str):
            raise BadCondition(f"Field '{field}' is text.", fix=f'Put the value in quotes: "{literal}".')
        if isinstance(value, dict):
            return literal in value
        if isinstance(value, list | tuple):
            return any(each == literal or (isinstance(each, tuple) and each[:1] == (literal,)) for each in value)
        return value is not None and _mentions(value, str(literal))

    return holds


def _as(field: str, value: Any, literal: Any) -> Any:
    """Return a literal as the type of a value. Raises BadCondition."""
    kind, shown = type(value).__name__, f'"{literal}"'
    try:
        if isinstance(value, bool):
            if isinstance(literal, bool):
                return literal
        elif isinstance(value, _NUMBER):
            if isinstance(literal, bool):
                pass
            elif isinstance(literal, _NUMBER):
                return Decimal(str(literal)) if isinstance(value, Decimal) else literal
            else:
                shown = "a number without quotes"
        elif isinstance(value, bytes):
            if isinstance(literal, str):
                return bytes.fromhex(literal.removeprefix("0x"))
            shown = '"0x…"'
        elif isinstance(value, str):
            if isinstance(literal, str):
                return literal
        elif isinstance(value, datetime):
            found = datetime.fromisoformat(str(literal))
            return found.replace(tzinfo=found.tzinfo or value.tzinfo) if value.tzinfo else found.replace(tzinfo=None)
        elif isinstance(value, date):
            return date.fromisoformat(str(literal))
        elif isinstance(value, time):
            return time.fromisoformat(str(literal))
        elif isinstance(value, timedelta) and isinstance(literal, int | float):
            return timedelta(seconds=literal)
    except ValueError:
        pass
    if isinstance(value, dict | list | tuple):
        raise BadCondition(
            f"Field '{field}' has several parts, which cannot be compared with {_shown(literal)}.",
            fix=f"Name a part, such as {field}.{_part_of(value)}, or use contains.",
        )
    if isinstance(value, bool):
        shown = "true or false"
    elif isinstance(value, datetime | date | time):
        shown = '"2026-01-31T12:00:00"' if isinstance(value, datetime) else f'"{value}"'
    raise BadCondition(
        f"Field '{field}' is of type {kind}, which cannot be compared with {_shown(literal)}.",
        fix=f"Compare it with {shown}.",
    )


def _part_of(value: Any) -> str:
    return str(next(iter(value), "name")) if isinstance(value, dict) else "0"


def _shown(literal: Any) -> str:
    return f'"{literal}"' if isinstance(literal, str) else {True: "true", False: "false"}.get(literal, str(literal))


def _mentions(value: Any, wanted: str) -> bool:
    """Return whether a value, written as text, contains something."""
    if isinstance(value, str):
        return wanted in value
    if isinstance(value, bytes):
        return wanted.removeprefix("0x") in value.hex()
    if isinstance(value, dict):
        return any(wanted in str(name) or _mentions(each, wanted) for name, each in value.items())
    if isinstance(value, list | tuple):
        return any(_mentions(each, wanted) for each in value)
    if isinstance(value, bool) or value is None:
        return wanted == {True: "true", False: "false", None: "null"}[value]
    return wanted in (str(value) if not isinstance(value, float) else msgspec.json.encode(value).decode())
