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

docs/write/types.md compares the cost with that of pickle.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

from penstock.common.plain_extensions import decode_extended, to_extensions
from penstock.common.plain_parts import (
    CONTAINERS,
    SCALARS,
    NotPlain,
    are_scalars,
    decode_msgpack,
    encode_msgpack,
)
from penstock.common.plain_shapes import (
    NATIVE_SHAPES,
    SHAPED,
    SHAPES,
    NoShape,
    can_be_plain,
    decoder_for,
    decoders,
    encode_dict,
    ordered_for,
    prefix_of,
    shape_of,
)

__all__ = ["decode_plain", "encode_plain"]

_EXTENDED = b"\xd5"
_values = dict.values

_DICT_ONLY = frozenset((dict,))
_FLAT_TUPLE, _ONLY_BYTES = SHAPED + b"\x01T", SHAPED + b"\x01a"


def encode_plain(value: Any) -> bytes | None:
    """The bytes of a plain value; None for any other."""
    # Hot path: once per write of a value without a type. docs/write/types.md compares it with pickle.
    kind = type(value)
    try:
        if kind is dict:
            if are_scalars(map(type, value)):
                if are_scalars(map(type, value.values())):
                    return encode_msgpack(value)
                if not can_be_plain(map(type, value.values())):
                    return None
                return encode_msgpack(value) if _is_json(value) else encode_dict(value)
        elif kind in SCALARS:
            return _ONLY_BYTES + encode_msgpack(value) if kind is bytes else encode_msgpack(value)
        elif kind is tuple or kind is list:
            if are_scalars(map(type, value)):
                return _FLAT_TUPLE + encode_msgpack(value) if kind is tuple else encode_msgpack(value)
            if not can_be_plain(map(type, value)):
                return None
            if kind is list and _is_json(value):
                return encode_msgpack(value)
        elif kind not in CONTAINERS and kind not in SHAPES:
            return None
        shape = shape_of(value, set())
        return (
            encode_msgpack(value)
            if shape in NATIVE_SHAPES
            else prefix_of(shape) + encode_msgpack(ordered_for(shape, value))
        )
    except (NoShape, OverflowError, UnicodeEncodeError):
        pass  # no shape, an int beyond 64 bits, or half a surrogate pair
    except (NotPlain, RecursionError):
        return None
    try:
        return _EXTENDED + encode_msgpack(to_extensions(value, set()))
    except (NotPlain, RecursionError):
        return None


def _is_json(value: Any) -> bool:
    """Whether a list or dict holds lists, dicts and scalars all the way down; keys are scalars."""
    # Written for speed: most values with others inside are JSON. 0.25 µs for each list or dict, 0.03 for each scalar.
    seen = {id(value)}
    count = 1
    waiting = [value]
    for holder in waiting:
        if type(holder) is dict:
            if not are_scalars(map(type, holder)):
                return False
            holder = holder.values()
        elif len(holder) > 3 and type(holder[0]) is dict and _are_flat_dicts(holder):
            seen.update(map(id, holder))
            count += len(holder)
            holder = ()
        for item in holder:
            kind = type(item)
            if kind not in SCALARS:
                if kind is not dict and kind is not list:
                    return False
                waiting.append(item)
                seen.add(id(item))
                count += 1
        if len(seen) != count:
            raise NotPlain
    return True


def _are_flat_dicts(values: list[Any]) -> bool:
    return (
        _DICT_ONLY.issuperset(map(type, values))
        and are_scalars(map(type, chain.from_iterable(values)))
        and are_scalars(map(type, chain.from_iterable(map(_values, values))))
    )


def decode_plain(data: bytes) -> Any:
    """The value of these bytes. Raises ValueError, or an error of msgspec, for bytes that `encode_plain` never gave."""
    form = data[0]
    if form == 0xD4:
        end = 2 + data[1]
        decode = decoders.get(data[2:end]) or decoder_for(data[2:end])
        return decode(data[end:])
    if form == 0xD5:
        return decode_extended(data[1:])
    return decode_msgpack(data)
