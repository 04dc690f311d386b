"""The interface of every part of a declared type, and its errors."""

from __future__ import annotations

from typing import Any

from penstock.state.located import LocatedError

__all__ = ["NotEncodable", "TypeNode", "UnsupportedType"]


_AN = ("any", "array", "enum", "instant", "int")
"""Types that take the article "an"."""


class NotEncodable(LocatedError):
    """A value that does not match its declared type.

    Operator action: none; the job has to store another value or declare another type.
    """


class UnsupportedType(LocatedError):
    """A declared type whose values cannot be stored.

    Operator action: declare a supported type, or leave the type out to store values as pickles.
    """


class TypeNode:
    """One part of a declared type: how its values are checked, encoded and decoded.

    `check` comes first and returns the value as a later read returns it: NumPy scalars as Python's, a list if a list is
    declared, an aware datetime in UTC. Values that it accepts can be encoded and decoded. `wire` converts a checked
    value to the form that msgspec encodes, and `value` converts it back after decoding. A node that is not `native`
    defines `_wire`, and one that is not `same` defines `_value`; otherwise msgspec needs no help.
    """

    # The nodes it contains.
    parts: tuple[TypeNode, ...] = ()
    # The type passed to the msgspec decoder.
    wire_type: Any = None
    # The classes of checked values; they distinguish the members of a union.
    classes: tuple[type, ...] = ()
    # The class whose instances are all values of this type without conversion (see Serializer.exact).
    exact: type | None = None
    # Whether msgspec can encode checked values directly.
    native: bool = True
    # Whether msgspec decodes to the final value.
    same: bool = True
    # Whether a value can be shared without a copy.
    immutable: bool = True
    # Whether a value can be in a set or be the key of a dict.
    hashable: bool = True
    # Whether user-defined code takes part in decoding (a constraint, a __post_init__), so that only decoding a value
    # proves that it can be decoded.
    proof: bool = False

    def hold(self, *parts: TypeNode) -> None:
        """Set the parts, and derive the attributes from them."""
        self.parts = parts
        self.native = all(part.native for part in parts)
        self.same = all(part.same for part in parts)
        self.immutable = all(part.immutable for part in parts)
        self.hashable = all(part.hashable for part in parts)
        self.proof = any(part.proof for part in parts)

    def check(self, value: Any) -> Any:
        """Return the value as a later read returns it, or raise NotEncodable."""
        raise NotImplementedError

    def fits(self, value: Any) -> bool:
        """Return whether `check` keeps the value unchanged. A node can return False if the test is too expensive."""
        try:
            return self.check(value) is value
        except NotEncodable:
            return False

    def wire(self, value: Any) -> Any:
        """Convert a checked value to the form that msgspec encodes."""
        return value if self.native else self._wire(value)

    def value(self, wire: Any) -> Any:
        """Convert a decoded value to its final form."""
        return wire if self.same else self._value(wire)

    def _wire(self, value: Any) -> Any:
        raise NotImplementedError

    def _value(self, wire: Any) -> Any:
        raise NotImplementedError

    def describe(self, inside: frozenset[str] = frozenset()) -> str:
        """Return a stable textual form of the type; `inside` contains the classes already being described."""
        raise NotImplementedError

    def refuse(self, value: Any, fix: str = "") -> NotEncodable:
        """Return the error for a value that does not match this type."""
        kind = type(value)
        name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
        try:
            shown = repr(value)
        except Exception:  # a user-defined repr can raise anything, and must not hide the actual error
            shown = "(whose repr fails)"
        shown = shown if len(shown) <= 60 else shown[:57] + "..."
        described = self.describe()
        article = "an" if described.startswith(_AN) else "a"
        return NotEncodable(f"The {name} {shown} is not {article} {described}", fix or self._fix(value))

    def _fix(self, value: Any) -> str:
        if value is None:
            return "Declare the type with `| None`, or clear the state instead of storing None."
        if len(self.classes) == 1 and self.classes[0].__module__ == "builtins":
            name = self.classes[0].__name__
            return f"Convert it to {name}, or declare its actual type."
        return "Declare its actual type, or Types.PICKLED_BYTE_ARRAY() for any object."
