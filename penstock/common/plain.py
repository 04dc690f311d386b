"""Encode plain Python values as self-describing bytes, for states and windows without a declared type.

Plain values consist of None, bool, int, float, str, bytes, list, tuple, dict, set, frozenset, date, datetime, time,
timedelta, Decimal and UUID: exactly these classes, not subclasses. Decoding returns an equal value of the same classes.
It never runs code named in the bytes, so untrusted bytes are safe to read. A value that contains the same object twice
would come back with two copies, so it is left to pickle, like everything else that is not plain.

The first byte determines the format:

0xD4    the length of a shape, the shape, msgpack: for tuples, sets, dates and decimals. The shape has a letter for the
        class of each part: `lT` is a list of tuples, `(aMN)` a tuple of anything, a Decimal and a datetime, `{aN}` a
        dict of anything and a datetime, written as its keys followed by its values
0xD5    msgpack with extension types, for values whose parts have no common shape, or that contain ints beyond 64 bits,
        unpaired surrogates, or times with a zone
others  msgpack: scalars, lists and dicts. Bytes on their top level use the first format instead: where values without
        a type are stored, msgpack bytes are a pickle

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
    """Return the bytes of a plain value, or None for any other value."""
    # Hot path: called once per write of an untyped value. docs/write/types.md compares it with pickle.
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
        pass  # no shape, an int beyond 64 bits, or an unpaired surrogate
    except (NotPlain, RecursionError):
        return None
    try:
        return _EXTENDED + encode_msgpack(to_extensions(value, set()))
    except (NotPlain, RecursionError):
        return None


def _is_json(value: Any) -> bool:
    """Return whether a list or dict contains only lists, dicts (with scalar keys) and scalars at every level."""
    # Optimized: most nested values are JSON. Costs 0.25 µs per list or dict and 0.03 µs per scalar.
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
    """Decode a plain value. Raises ValueError or a msgspec error for bytes that `encode_plain` cannot produce."""
    form = data[0]
    if form == 0xD4:
        end = 2 + data[1]
        decode = decoders.get(data[2:end]) or decoder_for(data[2:end])
        return decode(data[end:])
    if form == 0xD5:
        return decode_extended(data[1:])
    return decode_msgpack(data)
