"""Encode plain values whose parts share a shape: the shape, then msgpack (see `penstock.common.plain`)."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from datetime import date, time, timedelta
from decimal import Decimal
from itertools import chain
from typing import Any
from uuid import UUID

import msgspec

from penstock.common.plain_parts import CONTAINERS, SCALARS, NotPlain, are_scalars, encode_msgpack, meet

SHAPED = b"\xd4"
_LONGEST_SHAPE = 255

NATIVE_SHAPES = frozenset(("a", "[", "{"))
_TUPLE_ONLY = frozenset((tuple,))


class NoShape(Exception):
    """The value's parts share no shape, or no shape can describe them."""


def encode_dict(value: dict[Any, Any]) -> bytes:
    """Encode a dict with scalar keys. If its values share no shape, it is written as a record: keys, then values."""
    seen = {id(value)}
    shapes = ["a" if type(item) in SCALARS else shape_of(item, seen) for item in value.values()]
    try:
        shape = f"da{_common(shapes)}"
        wire: Any = value
    except NoShape:
        letters = "".join(["a" if shape in NATIVE_SHAPES else shape for shape in shapes])
        shape = f"{{{letters}}}"
        wire = list(value), list(value.values())
    return prefix_of(shape) + encode_msgpack(ordered_for(shape, wire))


def prefix_of(shape: str) -> bytes:
    """Return the bytes that announce this shape. Raises NoShape if the shape is too long."""
    prefix = _prefixes.get(shape)
    if prefix is None:
        if len(shape) > _LONGEST_SHAPE:
            raise NoShape
        prefix = SHAPED + bytes((len(shape),)) + shape.encode()
        if len(_prefixes) < _KNOWN:
            _prefixes[shape] = prefix
    return prefix


_KNOWN = 1024
"""Maximum number of cached shapes."""
_prefixes: dict[str, bytes] = {}


def ordered_for(shape: str, value: Any) -> Any:
    """Return the value as it will be written, with sets in a deterministic order."""
    return _ordered(value) if "s" in shape or "f" in shape else value


def shape_of(value: Any, seen: set[int]) -> str:
    """Return the shape of a non-scalar; "[" or "{" for an empty list or dict, which fits any list or dict shape.

    `seen` holds the mutable or large objects seen so far. A tuple of scalars can occur twice: the reader cannot tell
    the difference, and writing it twice costs little.
    """
    kind = type(value)
    if kind is tuple:
        return "T" if are_scalars(map(type, value)) else _tuple_shape(value, seen)
    if kind is list:
        meet(value, seen)
        if value and type(value[0]) is tuple and _are_flat_tuples(value):
            return "lT"
        shape = _shape_of_all(value, seen)
        return shape if shape in "a[" else "a" if shape == "{" else f"l{shape}"
    if kind is dict:
        meet(value, seen)
        key = "a" if are_scalars(map(type, value)) else _shape_of_all(value, seen)
        if "s" in key or "f" in key:
            raise NoShape
        shape = _shape_of_all(value.values(), seen)
        if shape in NATIVE_SHAPES:
            if key == "a":
                return "a" if value else "{"
            shape = "a"
        return f"d{key}{shape}"
    make = SHAPES.get(kind)
    if make is None:
        raise NotPlain
    return make(value, seen)


def _are_flat_tuples(values: list[Any]) -> bool:
    return _TUPLE_ONLY.issuperset(map(type, values)) and are_scalars(map(type, chain.from_iterable(values)))


def _shape_of_all(values: Any, seen: set[int]) -> str:
    """Return the shape that all these values share; "[" for an empty collection."""
    others = []
    for value in values:
        if type(value) not in SCALARS:
            shape = shape_of(value, seen)
            # Most are lists and dicts of scalars at every level.
            if shape != "a":
                others.append(shape)
    if not others:
        return "a" if values else "["
    if len(others) < len(values):
        others.append("a")
    return _common(others)


def _common(shapes: list[str]) -> str:
    found = set(shapes)
    if len(found) > 1:
        full = found - {"[", "{"}
        first = next(iter(full), "a")[0]
        if len(full) > 1 or ("[" in found and first not in "al") or ("{" in found and first not in "ad"):
            raise NoShape
        return full.pop() if full else "a"
    return found.pop()


def _tuple_shape(value: tuple[Any, ...], seen: set[int]) -> str:
    meet(value, seen)
    letters = ""
    for item in value:
        kind = type(item)
        if kind in SCALARS:
            letters += "a"
        elif kind is tuple and are_scalars(map(type, item)):
            letters += "T"
        else:
            shape = shape_of(item, seen)
            letters += "a" if shape in NATIVE_SHAPES else shape
    return "T" if letters == "a" * len(value) else f"({letters})"


def _set_shape(value: Any, seen: set[int]) -> str:
    # The empty frozenset is a singleton.
    if value:
        meet(value, seen)
    shape = _shape_of_all(value, seen)
    return f"{'s' if type(value) is set else 'f'}{'a' if shape == '[' else shape}"


def _datetime_shape(value: datetime.datetime, seen: set[int]) -> str:
    if value.fold or (value.tzinfo is not None and value.tzinfo is not datetime.UTC):
        raise NoShape
    return "N"


def _time_shape(value: time, seen: set[int]) -> str:
    if value.fold or value.tzinfo is not None:
        raise NoShape
    return "H"


SHAPES: dict[type, Callable[[Any, set[int]], str]] = {
    set: _set_shape,
    frozenset: _set_shape,
    datetime.datetime: _datetime_shape,
    time: _time_shape,
    date: lambda value, seen: "D",
    timedelta: lambda value, seen: "L",
    Decimal: lambda value, seen: "M",
    UUID: lambda value, seen: "U",
}

can_be_plain = (SCALARS | CONTAINERS | SHAPES.keys()).issuperset
"""Return whether values of these classes can be plain. Rejects most other values before the walk."""

_CLASSES: dict[str, Any] = {
    "a": Any,
    "T": tuple[Any, ...],
    "N": datetime.datetime,
    "H": time,
    "D": date,
    "L": timedelta,
    "M": Decimal,
    "U": UUID,
}


def _ordered(value: Any) -> Any:
    """Replace sets by lists in an order independent of hashes, which differ between processes."""
    kind = type(value)
    if kind is set or kind is frozenset:
        kinds = set(map(type, value))
        if len(kinds) == 1 and not kinds.isdisjoint((str, int, bytes)):
            return sorted(value)
        return sorted(map(_ordered, value), key=encode_msgpack)
    if kind is list or kind is tuple:
        return list(map(_ordered, value))
    if kind is dict:
        return {key: _ordered(item) for key, item in value.items()}
    return value


decoders: dict[bytes, Callable[[bytes], Any]] = {}


def decoder_for(shape: bytes) -> Callable[[bytes], Any]:
    """Create the decoder for a shape and cache it in `decoders`."""
    decode = _new_decoder(shape)
    if len(decoders) < _KNOWN:
        decoders[shape] = decode
    return decode


def _new_decoder(shape: bytes) -> Callable[[bytes], Any]:
    letters = iter(shape.decode("ascii"))
    record = shape[:1] == b"{"
    kind = _places(letters, "}") if record and next(letters) else _class(letters)
    if next(letters, None) is not None:
        raise ValueError(f"invalid shape {shape!r}")
    if not record:
        return msgspec.msgpack.Decoder(kind).decode
    decode = msgspec.msgpack.Decoder(tuple[list[Any], kind]).decode  # type: ignore[valid-type]

    def read(data: bytes) -> dict[Any, Any]:
        keys, values = decode(data)
        return dict(zip(keys, values, strict=True))

    return read


def _class(letters: Iterator[str]) -> Any:
    """Return the type that msgspec decodes the next shape to."""
    letter = next(letters, "")
    match letter:
        case "l":
            return list[_class(letters)]  # type: ignore[misc]
        case "s":
            return set[_class(letters)]  # type: ignore[misc]
        case "f":
            return frozenset[_class(letters)]  # type: ignore[misc]
        case "d":
            key = _class(letters)
            return dict[key, _class(letters)]  # type: ignore[misc, valid-type]
        case "(":
            return _places(letters, ")")
    if letter in _CLASSES:
        return _CLASSES[letter]
    raise ValueError("the shape is truncated or contains an unknown letter")


def _places(letters: Iterator[str], end: str) -> Any:
    parts: list[Any] = []
    for letter in letters:
        if letter == end:
            return tuple.__class_getitem__(tuple(parts))
        parts.append(_class(chain((letter,), letters)))
    raise ValueError("the shape is truncated")
