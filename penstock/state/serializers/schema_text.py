"""Parse the output of `Serializer.schema`, the only description of a state's type in snapshots."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

__all__ = ["Described", "StateSchema", "UnknownSchema", "read_schema"]

T = TypeVar("T")

OR_ANY = re.compile(" or (?:any|pickle)$")
"""Suffix of a type derived from an annotation: values that do not match it are stored as well. Earlier versions, which
had no format for plain values, wrote "pickle" instead of "any"."""

RECORDS = ("dataclass", "struct", "namedtuple", "typeddict")
_HOLDING = ("list", "tuple", "set", "frozenset", "map", "union", "row")

_WORD = re.compile(r"[a-z]+")
_TITLE = re.compile(r"(?:\w+|<\w+>)(?:\.(?:\w+|<\w+>))*")
_FIELD = re.compile(r"([^<>(),:?]+): ")
_CONSTANT = re.compile(r"""b?'(?:[^'\\]|\\.)*'|b?"(?:[^"\\]|\\.)*"|[^,()<>'" ]+""")
_DTYPE = re.compile(r"\w+")
_MEMBER = re.compile(r"(\w+)=")
_OPTIONAL = re.compile(r"[^<>(),:?]+")


class UnknownSchema(ValueError):
    """A text that this version cannot parse."""


@dataclass(frozen=True)
class Described:
    """A part of a type. `kind` is the word it starts with, or "optional" if it allows None."""

    kind: str
    text: str
    title: str = ""
    """Module and name of a class; dtype of an array, if it has one."""
    parts: tuple[Described, ...] = ()
    names: tuple[str, ...] | None = None
    """Names of the fields or enum members; None if fields have only positions, or a class is only named."""
    optional: frozenset[str] = frozenset()
    """Optional keys of a typed dict."""
    constants: tuple[str, ...] = ()
    """The `repr` of the values of an enum or literal."""
    any_length: bool = False


@dataclass(frozen=True)
class StateSchema:
    """The parsed schema of a state."""

    kind: str
    value: Described
    key: Described | None
    """Key type of a map state."""
    or_any: bool


@lru_cache(maxsize=256)
def read_schema(text: str) -> StateSchema:
    """Parse the output of `StateDescriptor.schema`.

    Raises:
        UnknownSchema: The text cannot be parsed.
    """
    kind, _, rest = text.partition(" ")
    or_any = OR_ANY.search(rest) is not None
    reader = _Reader(OR_ANY.sub("", rest))
    key = None
    try:
        value = reader.type()
        if kind == "map":
            key = value
            reader.expect(" -> ")
            value = reader.type()
    except RecursionError:
        raise UnknownSchema("it is nested too deeply") from None
    reader.end()
    return StateSchema(kind, value, key, or_any)


class _Reader:
    """Recursive descent parser of a schema text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def type(self) -> Described:
        start = self._at
        described = self._bare()
        while self._skip("?"):
            described = Described("optional", self._text[start : self._at], parts=(described,))
        return described

    def expect(self, mark: str) -> None:
        if not self._skip(mark):
            raise self._unknown()

    def end(self) -> None:
        if self._at != len(self._text):
            raise self._unknown()

    def _bare(self) -> Described:
        start = self._at
        word = self._match(_WORD)
        if word in RECORDS:
            return self._record(word, start)
        if word == "enum":
            self.expect(" ")
            title = self._match(_TITLE)
            self.expect("(")
            members = self._listed(")", self._member)
            names, values = tuple(name for name, _ in members), tuple(value for _, value in members)
            return Described(word, self._since(start), title, names=names, constants=values)
        if word == "literal":
            self.expect("<")
            constants = self._listed(">", lambda: self._match(_CONSTANT))
            return Described(word, self._since(start), constants=tuple(constants))
        if word == "row":
            return self._row(start)
        if word == "array":
            dtype = ""
            if self._skip("<"):
                dtype = self._match(_DTYPE)
                self.expect(">")
            return Described(word, self._since(start), dtype)
        if word in _HOLDING:
            self.expect("<")
            parts = self._listed(">", self._part)
            any_length = parts[-1:] == [None]
            types = tuple(part for part in parts if part is not None)
            return Described(word, self._since(start), parts=types, any_length=any_length)
        return Described(word, word)

    def _part(self) -> Described | None:
        return None if self._skip("...") else self.type()

    def _record(self, word: str, start: int) -> Described:
        self.expect(" ")
        title = self._match(_TITLE)
        if not self._skip("("):
            return Described(word, self._since(start), title)
        fields = self._listed(")", self._field)
        names = tuple(name for name, _ in fields)
        optional: list[str] = []
        if word == "typeddict" and self._skip(" optional "):
            optional.append(self._match(_OPTIONAL))
            # Further names are sorted and belong to the fields; anything else belongs to the enclosing type.
            while (name := self._next_optional(optional[-1], names)) is not None:
                optional.append(name)
        types = tuple(kind for _, kind in fields)
        return Described(word, self._since(start), title, types, names, frozenset(optional))

    def _next_optional(self, last: str, names: tuple[str, ...]) -> str | None:
        if not self._text.startswith(", ", self._at):
            return None
        found = _OPTIONAL.match(self._text, self._at + 2)
        if found is None or found[0] not in names or found[0] <= last or self._text.startswith(": ", found.end()):
            return None
        self._at = found.end()
        return found[0]

    def _row(self, start: int) -> Described:
        self.expect("<")
        fields = self._listed(">", lambda: self._field() if _FIELD.match(self._text, self._at) else ("", self.type()))
        names = tuple(name for name, _ in fields)
        named = names if any(names) else None
        return Described("row", self._since(start), parts=tuple(kind for _, kind in fields), names=named)

    def _field(self) -> tuple[str, Described]:
        found = _FIELD.match(self._text, self._at)
        if found is None:
            raise self._unknown()
        self._at = found.end()
        return found[1], self.type()

    def _member(self) -> tuple[str, str]:
        return self._match(_MEMBER)[:-1], self._match(_CONSTANT)

    def _listed(self, end: str, read: Callable[[], T]) -> list[T]:
        items: list[T] = []
        while not self._skip(end):
            if items:
                self.expect(", ")
            items.append(read())
        return items

    def _match(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self._text, self._at)
        if found is None:
            raise self._unknown()
        self._at = found.end()
        return found[0]

    def _skip(self, mark: str) -> bool:
        if not self._text.startswith(mark, self._at):
            return False
        self._at += len(mark)
        return True

    def _since(self, start: int) -> str:
        return self._text[start : self._at]

    def _unknown(self) -> UnknownSchema:
        return UnknownSchema(f"'{self._text}' cannot be parsed by this version at position {self._at}")
