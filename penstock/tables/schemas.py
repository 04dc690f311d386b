"""Parse the types of states as stored in snapshots: `map string -> dataclass shop.Item(name: string, n: long?)`.

Types that cannot be parsed, such as those of a later version, are shown as JSON of the stored data. None is rejected.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from penstock.tables import shapes
from penstock.tables.arrays import array
from penstock.tables.shapes import Shape
from penstock.tables.snapshot import KINDS

_OTHER = {" or any": "value_any", " or pickle": "value_pickle"}
"""Suffixes for states that can contain values of other types, and the columns for those values."""
_DEEPEST = 64
"""Maximum nesting of types. Deeper nesting only occurs in input crafted to exhaust the reader."""

_WORD = re.compile(r"[a-z]+")
_CLASS = re.compile(r"(?:[\w.]|<locals>|<lambda>)+")
_FIELD = re.compile(r"([^:<>(),]+): ")
_MEMBER = re.compile(r"(\w+)=")
_CONSTANT = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|-?\d+|None|True|False""")
_LAST = re.compile(r" optional ")
_NAME = re.compile(r"\w+")


class _Unknown(Exception):
    """The type cannot be parsed."""


class StateType(NamedTuple):
    """A state's type: its kind, and the types of its map keys and values."""

    kind: str
    value: Shape
    key: Shape | None
    """The type of the keys of a map state."""
    other: str = ""
    """The column for values of other types; empty if the state has none."""


def state_type(schema: str) -> StateType:
    """Parse a state's type."""
    kind, _, rest = schema.partition(" ")
    if kind not in KINDS or not rest:
        return StateType("value" if kind not in KINDS else kind, shape_of(schema), None)
    suffix = next((suffix for suffix in _OTHER if rest.endswith(suffix)), "")
    rest, other = rest.removesuffix(suffix), _OTHER.get(suffix, "")
    if kind != "map":
        return StateType(kind, shape_of(rest), None, other)
    try:
        text = _Text(rest)
        key = text.type()
        text.take(" -> ")
        value = text.type()
        text.end()
    except (_Unknown, RecursionError):
        left, _, right = rest.partition(" -> ")
        key, value = shape_of(left), shape_of(right)
    return StateType(kind, value, key, other)


def shape_of(text: str) -> Shape:
    """Return the shape of one type; that of JSON if the type cannot be parsed."""
    try:
        parsed = _Text(text)
        shape = parsed.type()
        parsed.end()
        return shape
    except (_Unknown, RecursionError):
        return shapes.as_text(text)


class _Text:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def end(self) -> None:
        if self._at != len(self._text):
            raise _Unknown

    def take(self, what: str) -> None:
        if not self._taken(what):
            raise _Unknown

    def type(self) -> Shape:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise _Unknown
        start = self._at
        shape = self._base(start)
        self._depth -= 1
        return shapes.nullable(shape) if self._taken("?") else shape

    def _base(self, start: int) -> Shape:
        word = self._match(_WORD)
        if word in _RECORDS and self._taken(" "):
            return self._record(start, word)
        if word == "enum" and self._taken(" "):
            return self._enumeration(start)
        if word in _CONTAINERS and self._taken("<"):
            return _CONTAINERS[word](self, start)
        if word == "array":
            return array(word, "")
        if word not in shapes.LEAVES:
            raise _Unknown
        return shapes.LEAVES[word]

    def _record(self, start: int, word: str) -> Shape:
        self._match(_CLASS)
        if not self._taken("("):
            # A recursive class, or one known only by name.
            return shapes.as_text(self._since(start))
        fields = self._each(")", self._named)
        if self._match_if(_LAST):
            while True:
                back = self._at
                if self._match(_NAME) not in dict(fields) or self._text[self._at : self._at + 1] == ":":
                    self._at = back - len(", ")
                    break
                if not self._taken(", "):
                    break
        named = dict(fields)
        if len(named) != len(fields):
            raise _Unknown
        return _RECORDS[word](self._since(start), named)

    def _named(self) -> tuple[str, Shape]:
        return self._match(_FIELD, 1), self.type()

    def _enumeration(self, start: int) -> Shape:
        self._match(_CLASS)
        self.take("(")
        members = self._each(")", lambda: (self._match(_MEMBER, 1), self._constant()))
        return shapes.enumeration(self._since(start), dict(members))

    def _constant(self) -> Any:
        text = self._match(_CONSTANT)
        if len(text) > 4096 and not text.startswith(("'", '"')):
            raise _Unknown
        return ast.literal_eval(text)

    def literal(self, start: int) -> Shape:
        values = self._each(">", self._constant)
        return shapes.literal(self._since(start), values)

    def sequence(self, start: int) -> Shape:
        members = self._text[start:].startswith(("set<", "frozenset<"))
        element = self.type()
        self.take(">")
        return shapes.sequence(self._since(start), element, members=members)

    def tuple(self, start: int) -> Shape:
        found: list[Shape] = []
        while not self._taken(">"):
            if found:
                self.take(", ")
            if len(found) == 1 and self._taken("...>"):
                return shapes.sequence(self._since(start), found[0])
            found.append(self.type())
        return shapes.positional(self._since(start), {f"f{i}": each for i, each in enumerate(found)})

    def mapping(self, start: int) -> Shape:
        key = self.type()
        self.take(", ")
        value = self.type()
        self.take(">")
        return shapes.mapping(self._since(start), key, value)

    def union(self, start: int) -> Shape:
        self._each(">", self.type)
        return shapes.as_text(self._since(start))

    def array(self, start: int) -> Shape:
        dtype = self._match(_NAME)
        self.take(">")
        return array(self._since(start), dtype)

    def row(self, start: int) -> Shape:
        named = _FIELD.match(self._text, self._at) is not None
        if named:
            fields = dict(self._each(">", self._named))
        else:
            fields = {f"f{i}": each for i, each in enumerate(self._each(">", self.type))}
        return shapes.positional(self._since(start), fields, row=True)

    def _each(self, close: str, one: Callable[[], Any]) -> list[Any]:
        found: list[Any] = []
        while not self._taken(close):
            if found:
                self.take(", ")
            found.append(one())
        return found

    def _since(self, start: int) -> str:
        return self._text[start : self._at]

    def _taken(self, what: str) -> bool:
        if not self._text.startswith(what, self._at):
            return False
        self._at += len(what)
        return True

    def _match_if(self, pattern: re.Pattern[str]) -> bool:
        found = pattern.match(self._text, self._at)
        if found is not None:
            self._at = found.end()
        return found is not None

    def _match(self, pattern: re.Pattern[str], group: int = 0) -> str:
        found = pattern.match(self._text, self._at)
        if found is None:
            raise _Unknown
        self._at = found.end()
        return found[group]


_CONTAINERS: dict[str, Callable[[_Text, int], Shape]] = {
    "list": _Text.sequence,
    "set": _Text.sequence,
    "frozenset": _Text.sequence,
    "tuple": _Text.tuple,
    "map": _Text.mapping,
    "union": _Text.union,
    "literal": _Text.literal,
    "array": _Text.array,
    "row": _Text.row,
}

_RECORDS: dict[str, Callable[[str, dict[str, Shape]], Shape]] = {
    "dataclass": shapes.record,
    "typeddict": shapes.record,
    "namedtuple": shapes.positional,
    "struct": shapes.structure,
}
