"""What every part of a declared type can do, and the errors they raise."""

from __future__ import annotations

from typing import Any

from penstock.state.located import LocatedError

__all__ = ["NotEncodable", "TypeNode", "UnsupportedType"]


class NotEncodable(LocatedError):
    """A value that is not of the type it was declared with.

    Operator action: none helps; the job has to store another value or declare another type.
    """


class UnsupportedType(LocatedError):
    """A declared type that no value can be stored with."""


class TypeNode:
    """One part of a declared type: how its values are checked, written and read.

    `check` comes first and gives the value as a later read will give it back: numpy scalars as Python's, a
    list where a list was declared, an aware datetime in UTC. What it accepts can be written and read.
    `wire` turns a checked value into what msgspec writes, `value` what msgspec read into the value. A node
    that is not `native` has a `_wire`, one that is not `same` a `_value`; msgspec does the others alone.
    """

    # The nodes inside it.
    parts: tuple[TypeNode, ...] = ()
    # What the msgspec decoder is asked for.
    wire_type: Any = None
    # The classes a checked value can have; in a union they tell the members apart.
    classes: tuple[type, ...] = ()
    # The class whose every instance is a value of this type as it stands (see Serializer.exact).
    exact: type | None = None
    # msgspec writes a checked value as it is.
    native: bool = True
    # What msgspec reads is the value.
    same: bool = True
    # A value can be shared without a copy.
    immutable: bool = True
    # A value can be in a set or be the key of a dict.
    hashable: bool = True
    # Code that is not ours has its say when a value is read (a constraint, a __post_init__), so that only
    # reading it proves that it can be read.
    proof: bool = False

    def hold(self, *parts: TypeNode) -> None:
        """Take these parts, and whatever follows from them."""
        self.parts = parts
        self.native = all(part.native for part in parts)
        self.same = all(part.same for part in parts)
        self.immutable = all(part.immutable for part in parts)
        self.hashable = all(part.hashable for part in parts)
        self.proof = any(part.proof for part in parts)

    def check(self, value: Any) -> Any:
        raise NotImplementedError

    def fits(self, value: Any) -> bool:
        """Whether `check` keeps the value as it is. A node may say no where finding out costs too much."""
        try:
            return self.check(value) is value
        except NotEncodable:
            return False

    def wire(self, value: Any) -> Any:
        return value if self.native else self._wire(value)

    def value(self, wire: Any) -> Any:
        return wire if self.same else self._value(wire)

    def _wire(self, value: Any) -> Any:
        raise NotImplementedError

    def _value(self, wire: Any) -> Any:
        raise NotImplementedError

    def describe(self, inside: frozenset[str] = frozenset()) -> str:
        """The type in words that stay the same; `inside` are the classes already being described."""
        raise NotImplementedError

    def refuse(self, value: Any, fix: str = "") -> NotEncodable:
        kind = type(value)
        name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
        try:
            shown = repr(value)
        except Exception:  # any class may have its own, and this is about another error
            shown = "(whose repr fails)"
        shown = shown if len(shown) <= 60 else shown[:57] + "..."
        return NotEncodable(f"The {name} {shown} is not a {self.describe()}", fix or self._fix(value))

    def _fix(self, value: Any) -> str:
        if value is None:
            return "Declare the type with `| None`, or clear the state instead of storing None."
        if len(self.classes) == 1 and self.classes[0].__module__ == "builtins":
            name = self.classes[0].__name__
            return f"Convert it to {name}, or declare the type it has."
        return "Declare the type it has, or Types.PICKLED_BYTE_ARRAY() for any object."
