"""Plain Python values as bytes that describe themselves, for states and windows without a declared type.

Plain is what consists of None, bool, int, float, str, bytes, list, tuple, dict, set, frozenset, date, datetime, time,
timedelta, Decimal and UUID: of these classes themselves, not of subclasses. What comes back has the same classes and
is equal. Reading never runs code that the bytes name, so it is safe for bytes from anywhere. An object that occurs
twice in a value would come back as two, so such a value is left to pickle, as is everything that is not plain.

The first byte says how a value is written:

0xD4    the length of a shape, the shape, msgpack: for tuples, sets, dates and decimals. The shape says of what class
        each part is, in a letter each: `lT` is a list of tuples, `(aMN)` a tuple of something, a Decimal and a
        datetime, `{aN}` a dict of something and a datetime, written as its keys and its values
0xD5    msgpack with extension types, for values whose parts have no common shape, or that hold ints beyond 64 bits,
        half surrogate pairs, or times with a zone
others  msgpack: scalars, lists and dicts. Never bytes alone, which are of the first kind: where values without a type
        are stored, msgpack's bytes are a pickle

docs/types.md compares the cost with that of pickle.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from datetime import date, time, timedelta, timezone
from decimal import Decimal
from itertools import chain
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec

__all__ = ["decode_plain", "encode_plain"]

Ext = msgspec.msgpack.Ext

_SHAPED, _EXTENDED = b"\xd4", b"\xd5"
_LONGEST_SHAPE = 255

_encode = msgspec.msgpack.Encoder(uuid_format="bytes").encode
_decode = msgspec.msgpack.Decoder().decode

_SCALARS = frozenset((type(None), bool, int, float, str, bytes))
"""What msgpack holds as it is."""
_flat = _SCALARS.issuperset
_values = dict.values

_CONTAINERS = frozenset((list, tuple, dict, set, frozenset))
_NATIVE_SHAPES = frozenset(("a", "[", "{"))
_TUPLE_ONLY, _DICT_ONLY = frozenset((tuple,)), frozenset((dict,))
_FLAT_TUPLE, _ONLY_BYTES = _SHAPED + b"\x01T", _SHAPED + b"\x01a"


class _NotPlain(Exception):
    """Something only pickle can write."""


class _NoShape(Exception):
    """The parts of the value have no shape in common, or no shape says what they are."""


def encode_plain(value: Any) -> bytes | None:
    """The bytes of a plain value; None for any other."""
    # Hot path: once per write of a value without a type. docs/types.md compares it with pickle.
    kind = type(value)
    try:
        if kind is dict:
            if _flat(map(type, value)):
                if _flat(map(type, value.values())):
                    return _encode(value)
                if not _can_be_plain(map(type, value.values())):
                    return None
                return _encode(value) if _is_json(value) else _encode_dict(value)
        elif kind in _SCALARS:
            return _ONLY_BYTES + _encode(value) if kind is bytes else _encode(value)
        elif kind is tuple or kind is list:
            if _flat(map(type, value)):
                return _FLAT_TUPLE + _encode(value) if kind is tuple else _encode(value)
            if not _can_be_plain(map(type, value)):
                return None
            if kind is list and _is_json(value):
                return _encode(value)
        elif kind not in _CONTAINERS and kind not in _SHAPES:
            return None
        shape = _shape(value, set())
        return _encode(value) if shape in _NATIVE_SHAPES else _prefix(shape) + _encode(_ordered_for(shape, value))
    except (_NoShape, OverflowError, UnicodeEncodeError):
        pass  # no shape, an int beyond 64 bits, or half a surrogate pair
    except (_NotPlain, RecursionError):
        return None
    try:
        return _EXTENDED + _encode(_extended(value, set()))
    except (_NotPlain, RecursionError):
        return None


def _is_json(value: Any) -> bool:
    """Whether a list or dict holds lists, dicts and scalars all the way down; keys are scalars."""
    # Written for speed: most values with others inside are JSON. 0.25 µs for each list or dict, 0.03 for each scalar.
    seen = {id(value)}
    count = 1
    waiting = [value]
    for holder in waiting:
        if type(holder) is dict:
            if not _flat(map(type, holder)):
                return False
            holder = holder.values()
        elif len(holder) > 3 and type(holder[0]) is dict and _are_flat_dicts(holder):
            seen.update(map(id, holder))
            count += len(holder)
            holder = ()
        for item in holder:
            kind = type(item)
            if kind not in _SCALARS:
                if kind is not dict and kind is not list:
                    return False
                waiting.append(item)
                seen.add(id(item))
                count += 1
        if len(seen) != count:
            raise _NotPlain
    return True


def _are_flat_dicts(values: list[Any]) -> bool:
    return (
        _DICT_ONLY.issuperset(map(type, values))
        and _flat(map(type, chain.from_iterable(values)))
        and _flat(map(type, chain.from_iterable(map(_values, values))))
    )


def decode_plain(data: bytes) -> Any:
    """The value of these bytes. Raises ValueError, or an error of msgspec, for bytes that `encode_plain` never gave."""
    form = data[0]
    if form == 0xD4:
        end = 2 + data[1]
        decode = _decoders.get(data[2:end]) or _decoder(data[2:end])
        return decode(data[end:])
    if form == 0xD5:
        return _decode_extended(data[1:])
    return _decode(data)


# -- shapes ------------------------------------------------------------------------------------------------------------


def _encode_dict(value: dict[Any, Any]) -> bytes:
    """A dict with scalars for keys. One whose values have no common shape is written as a record: keys, then values."""
    seen = {id(value)}
    shapes = ["a" if type(item) in _SCALARS else _shape(item, seen) for item in value.values()]
    try:
        shape = f"da{_common(shapes)}"
        wire: Any = value
    except _NoShape:
        letters = "".join(["a" if shape in _NATIVE_SHAPES else shape for shape in shapes])
        shape = f"{{{letters}}}"
        wire = list(value), list(value.values())
    return _prefix(shape) + _encode(_ordered_for(shape, wire))


def _prefix(shape: str) -> bytes:
    prefix = _prefixes.get(shape)
    if prefix is None:
        if len(shape) > _LONGEST_SHAPE:
            raise _NoShape
        prefix = _SHAPED + bytes((len(shape),)) + shape.encode()
        if len(_prefixes) < _KNOWN:
            _prefixes[shape] = prefix
    return prefix


_KNOWN = 1024
"""Shapes that are kept ready."""
_prefixes: dict[str, bytes] = {}


def _ordered_for(shape: str, value: Any) -> Any:
    return _ordered(value) if "s" in shape or "f" in shape else value


def _shape(value: Any, seen: set[int]) -> str:
    """The letters of what is not a scalar; "[" and "{" for an empty list and dict, which have any shape of theirs.

    `seen` are the objects met so far, of those that can change or be large. A tuple of scalars can occur twice: that
    makes no difference to the reader, and writing it again costs no more than it is long.
    """
    kind = type(value)
    if kind is tuple:
        return "T" if _flat(map(type, value)) else _tuple_shape(value, seen)
    if kind is list:
        _meet(value, seen)
        if value and type(value[0]) is tuple and _are_flat_tuples(value):
            return "lT"
        shape = _shape_of_all(value, seen)
        return shape if shape in "a[" else "a" if shape == "{" else f"l{shape}"
    if kind is dict:
        _meet(value, seen)
        key = "a" if _flat(map(type, value)) else _shape_of_all(value, seen)
        if "s" in key or "f" in key:
            raise _NoShape
        shape = _shape_of_all(value.values(), seen)
        if shape in _NATIVE_SHAPES:
            if key == "a":
                return "a" if value else "{"
            shape = "a"
        return f"d{key}{shape}"
    make = _SHAPES.get(kind)
    if make is None:
        raise _NotPlain
    return make(value, seen)


def _are_flat_tuples(values: list[Any]) -> bool:
    return _TUPLE_ONLY.issuperset(map(type, values)) and _flat(map(type, chain.from_iterable(values)))


def _meet(value: Any, seen: set[int]) -> None:
    if id(value) in seen:
        raise _NotPlain
    seen.add(id(value))


def _shape_of_all(values: Any, seen: set[int]) -> str:
    """The one shape of all these values; "[" if there are none."""
    others = []
    for value in values:
        if type(value) not in _SCALARS:
            shape = _shape(value, seen)
            # Most are lists and dicts of scalars all the way down.
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
            raise _NoShape
        return full.pop() if full else "a"
    return found.pop()


def _tuple_shape(value: tuple[Any, ...], seen: set[int]) -> str:
    _meet(value, seen)
    letters = ""
    for item in value:
        kind = type(item)
        if kind in _SCALARS:
            letters += "a"
        elif kind is tuple and _flat(map(type, item)):
            letters += "T"
        else:
            shape = _shape(item, seen)
            letters += "a" if shape in _NATIVE_SHAPES else shape
    return "T" if letters == "a" * len(value) else f"({letters})"


def _set_shape(value: Any, seen: set[int]) -> str:
    # Empty frozensets are one object.
    if value:
        _meet(value, seen)
    shape = _shape_of_all(value, seen)
    return f"{'s' if type(value) is set else 'f'}{'a' if shape == '[' else shape}"


def _datetime_shape(value: datetime.datetime, seen: set[int]) -> str:
    if value.fold or (value.tzinfo is not None and value.tzinfo is not datetime.UTC):
        raise _NoShape
    return "N"


def _time_shape(value: time, seen: set[int]) -> str:
    if value.fold or value.tzinfo is not None:
        raise _NoShape
    return "H"


_SHAPES: dict[type, Callable[[Any, set[int]], str]] = {
    set: _set_shape,
    frozenset: _set_shape,
    datetime.datetime: _datetime_shape,
    time: _time_shape,
    date: lambda value, seen: "D",
    timedelta: lambda value, seen: "L",
    Decimal: lambda value, seen: "M",
    UUID: lambda value, seen: "U",
}

_can_be_plain = (_SCALARS | _CONTAINERS | _SHAPES.keys()).issuperset
"""Whether values of these classes can be plain. Most that cannot are found here, before the walk."""

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
    """A value whose sets are lists in an order that does not depend on hashes, which differ between processes."""
    kind = type(value)
    if kind is set or kind is frozenset:
        kinds = set(map(type, value))
        if len(kinds) == 1 and not kinds.isdisjoint((str, int, bytes)):
            return sorted(value)
        return sorted(map(_ordered, value), key=_encode)
    if kind is list or kind is tuple:
        return list(map(_ordered, value))
    if kind is dict:
        return {key: _ordered(item) for key, item in value.items()}
    return value


_decoders: dict[bytes, Callable[[bytes], Any]] = {}


def _decoder(shape: bytes) -> Callable[[bytes], Any]:
    decode = _new_decoder(shape)
    if len(_decoders) < _KNOWN:
        _decoders[shape] = decode
    return decode


def _new_decoder(shape: bytes) -> Callable[[bytes], Any]:
    letters = iter(shape.decode("ascii"))
    record = shape[:1] == b"{"
    kind = _places(letters, "}") if record and next(letters) else _class(letters)
    if next(letters, None) is not None:
        raise ValueError(f"{shape!r} is not the shape of a value")
    if not record:
        return msgspec.msgpack.Decoder(kind).decode
    decode = msgspec.msgpack.Decoder(tuple[list[Any], kind]).decode  # type: ignore[valid-type]

    def read(data: bytes) -> dict[Any, Any]:
        keys, values = decode(data)
        return dict(zip(keys, values, strict=True))

    return read


def _class(letters: Iterator[str]) -> Any:
    """What msgspec is asked for, for the shape that comes next."""
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
    raise ValueError("the shape of a value ends too early, or has a letter that none has")


def _places(letters: Iterator[str], end: str) -> Any:
    parts: list[Any] = []
    for letter in letters:
        if letter == end:
            return tuple.__class_getitem__(tuple(parts))
        parts.append(_class(chain((letter,), letters)))
    raise ValueError("the shape of a value ends too early")


# -- extension types ---------------------------------------------------------------------------------------------------

# Codes are for ever: never change or reuse one.
_BIG_INT, _TEXT, _TUPLE, _SET, _FROZENSET, _PAIRS, _DECIMAL, _UUID, _DATETIME, _DATE, _TIME, _TIMEDELTA = range(1, 13)

_LOW, _HIGH = -(1 << 63), (1 << 64) - 1


def _extended(value: Any, seen: set[int]) -> Any:
    """A value in what msgspec writes, with an extension type for all that is no msgpack."""
    kind = type(value)
    if kind is str:
        return _extended_text(value)
    if kind is int:
        if _LOW <= value <= _HIGH:
            return value
        return Ext(_BIG_INT, value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True))
    if kind in _SCALARS:
        return value
    write = _WRITE.get(kind)
    if write is not None:
        return write(value)
    if kind not in _CONTAINERS:
        raise _NotPlain
    # An empty tuple is one object wherever it occurs, and so is an empty frozenset.
    if value or kind not in (tuple, frozenset):
        _meet(value, seen)
    if kind is dict:
        return _extended_dict(value, seen)
    wires = [_extended(item, seen) for item in value]
    if kind is list:
        return wires
    if kind is tuple:
        return Ext(_TUPLE, _encode(wires))
    return Ext(_SET if kind is set else _FROZENSET, _encode(sorted(wires, key=_encode)))


def _extended_text(value: str) -> Any:
    try:
        value.encode()
    except UnicodeEncodeError:
        return Ext(_TEXT, value.encode("utf-8", "surrogatepass"))
    return value


def _extended_dict(value: dict[Any, Any], seen: set[int]) -> Any:
    pairs = [(_extended(key, seen), _extended(item, seen)) for key, item in value.items()]
    if all(type(key) in _SCALARS for key, _ in pairs):
        return dict(pairs)
    return Ext(_PAIRS, _encode(pairs))


def _zone(zone: Any) -> Any:
    if zone is None:
        return None
    if type(zone) is timezone:
        offset, *name = zone.__getinitargs__()  # type: ignore[attr-defined]
        return [offset.days, offset.seconds, offset.microseconds, *name]
    if type(zone) is ZoneInfo and type(zone.key) is str:
        return zone.key
    raise _NotPlain


def _read_zone(wire: Any) -> Any:
    if wire is None:
        return None
    if isinstance(wire, str):
        return ZoneInfo(wire)
    return timezone(timedelta(*wire[:3]), *wire[3:])


def _moment(value: Any) -> bytes:
    return _encode([value.replace(tzinfo=None, fold=0).isoformat(), value.fold, _zone(value.tzinfo)])


def _read_moment(kind: Any) -> Callable[[bytes], Any]:
    def read(data: bytes) -> Any:
        text, fold, zone = _decode(data)
        return kind.fromisoformat(text).replace(tzinfo=_read_zone(zone), fold=fold)

    return read


_WRITE: dict[type, Callable[[Any], Any]] = {
    Decimal: lambda value: Ext(_DECIMAL, str(value).encode()),
    UUID: lambda value: Ext(_UUID, value.bytes),
    datetime.datetime: lambda value: Ext(_DATETIME, _moment(value)),
    date: lambda value: Ext(_DATE, value.isoformat().encode()),
    time: lambda value: Ext(_TIME, _moment(value)),
    timedelta: lambda value: Ext(_TIMEDELTA, _encode([value.days, value.seconds, value.microseconds])),
}

_READ: dict[int, Callable[[bytes], Any]] = {
    _BIG_INT: lambda data: int.from_bytes(data, "big", signed=True),
    _TEXT: lambda data: data.decode("utf-8", "surrogatepass"),
    _TUPLE: lambda data: tuple(_decode_extended(data)),
    _SET: lambda data: set(_decode_extended(data)),
    _FROZENSET: lambda data: frozenset(_decode_extended(data)),
    _PAIRS: lambda data: dict(_decode_extended(data)),
    _DECIMAL: lambda data: Decimal(data.decode()),
    _UUID: lambda data: UUID(bytes=data),
    _DATETIME: _read_moment(datetime.datetime),
    _DATE: lambda data: date.fromisoformat(data.decode()),
    _TIME: _read_moment(time),
    _TIMEDELTA: lambda data: timedelta(*_decode(data)),
}


def _read_extension(code: int, data: memoryview) -> Any:
    read = _READ.get(code)
    if read is None:
        raise ValueError(f"no plain value has an extension type {code}")
    return read(bytes(data))


_decode_extended: Callable[[bytes], Any] = msgspec.msgpack.Decoder(ext_hook=_read_extension).decode
