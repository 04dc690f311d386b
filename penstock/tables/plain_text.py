"""Convert values without a declared type to JSON text that includes their types, and back.

JSON types map to themselves. Any other type is an object with one name that starts with a dollar sign:
`{"$tuple": [1, 2]}`, `{"$decimal": "1.50"}`. A pickle is `{"$pickle": "..."}`, base64-encoded and never loaded.
"""

from __future__ import annotations

import json
import math
import pickle
from base64 import b64decode, b64encode
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from penstock.common.pickling import plain_part, to_bytes, to_pickle
from penstock.common.plain import decode_plain, encode_plain
from penstock.state.keys import KeyTypeError, encode_key
from penstock.state.serializers import codec
from penstock.state.serializers.leaves import BYTES, pickled

__all__ = [
    "key_of_text",
    "object_of",
    "part_of_text",
    "plain_of_part",
    "plain_of_stored",
    "stored_of_text",
    "text_of_key",
    "text_of_part",
    "text_of_stored",
]

_read_bytes = codec.decoder(bytes)
_MICRO = timedelta(microseconds=1)
_LONG_INT = 8192
"""Ints longer than this many bits are written in hexadecimal: Python refuses to convert very long ones to decimal."""


class _Pickle:
    """A pickle that has not been loaded."""

    def __init__(self, data: bytes) -> None:
        self.data = data


def text_of_stored(data: bytes) -> str:
    """Return the text of a top-level value."""
    if data[0] in BYTES:
        return _text(_Pickle(_read_bytes(data)))
    return _text(decode_plain(data))


def plain_of_stored(data: bytes) -> Any:
    """Return a top-level value. A pickle stays bytes."""
    return _read_bytes(data) if data[0] in BYTES else decode_plain(data)


def plain_of_part(data: bytes) -> Any:
    """Return a nested value. A pickle stays bytes."""
    plain = plain_part(data)
    return data if plain is None else decode_plain(plain)


def text_of_part(data: bytes) -> str:
    """Return the text of a nested value."""
    plain = plain_part(data)
    return _text(_Pickle(data) if plain is None else decode_plain(plain))


def stored_of_text(text: Any) -> bytes:
    """Return the stored form of a top-level value from its text."""
    value = _value(text)
    if isinstance(value, _Pickle):
        return codec.encode(value.data)
    data = encode_plain(value)
    # None for values that only pickle can write. Text cannot contain the same list twice, but can be nested too deeply.
    return codec.encode(to_pickle(value)) if data is None else data


def part_of_text(text: Any) -> bytes:
    """Return the stored form of a nested value from its text."""
    value = _value(text)
    return value.data if isinstance(value, _Pickle) else to_bytes(value)


def text_of_key(key: Any) -> str:
    """Return the text of a map key."""
    try:
        return _text(key)
    except KeyError:  # a Row
        return repr(key)


def key_of_text(text: Any) -> bytes:
    """Return the stored form of a map key from its text."""
    value = _value(text)
    if isinstance(value, _Pickle):
        return b"\1" + codec.encode(value.data)
    try:
        return b"\0" + encode_key(value)
    except KeyTypeError:
        return b"\1" + pickled(value)


def object_of(text: str) -> Any:
    """Return the value of a text. If it contains a pickle, loading it can run arbitrary code."""
    value = _value(text)
    return pickle.loads(value.data) if isinstance(value, _Pickle) else value


def _text(value: Any) -> str:
    shown = _shown(value)
    text = json.dumps(shown, ensure_ascii=False, allow_nan=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # an unpaired surrogate
        return json.dumps(shown, allow_nan=False)
    return text


def _value(text: Any) -> Any:
    if not isinstance(text, str):
        raise ValueError("not JSON text")
    return _read(json.loads(text, parse_constant=_no_constant), whole=True)


def _no_constant(name: str) -> Any:
    raise ValueError(f'{name} is not valid JSON; write {{"$float": "{name}"}}')


def _shown(value: Any) -> Any:
    kind = type(value)
    if kind in (str, bool, type(None)):
        return value
    if kind is int:
        return value if value.bit_length() < _LONG_INT else {"$int": hex(value)}
    if kind is float:
        return value if math.isfinite(value) else {"$float": repr(value)}
    if kind is list:
        return [_shown(item) for item in value]
    if kind is dict:
        if all(type(key) is str and not key.startswith("$") for key in value):
            return {key: _shown(item) for key, item in value.items()}
        return {"$dict": [[_shown(key), _shown(item)] for key, item in value.items()]}
    name, show = _SHOW[kind]
    shown = show(value)
    return {name: shown} if name else shown


def _shown_moment(name: str) -> Callable[[Any], dict[str, Any]]:
    def show(value: Any) -> dict[str, Any]:
        zone = value.tzinfo
        shown: dict[str, Any] = {}
        if type(zone) is ZoneInfo:
            shown["zone"] = zone.key
            zone = None
        elif zone is not None and len(zone.__getinitargs__()) > 1 and zone is not UTC:
            shown["name"] = zone.tzname(None)
        text = value.replace(tzinfo=zone, fold=0).isoformat()
        return {name: text, **shown, **({"fold": 1} if value.fold else {})}

    return show


_SHOW: dict[type, tuple[str, Callable[[Any], Any]]] = {
    _Pickle: ("$pickle", lambda value: b64encode(value.data).decode()),
    bytes: ("$bytes", lambda value: b64encode(value).decode()),
    tuple: ("$tuple", lambda value: [_shown(item) for item in value]),
    set: ("$set", lambda value: _members(value)),
    frozenset: ("$frozenset", lambda value: _members(value)),
    Decimal: ("$decimal", str),
    UUID: ("$uuid", str),
    date: ("$date", date.isoformat),
    timedelta: ("$timedelta", lambda value: value // _MICRO),
    datetime: ("", _shown_moment("$datetime")),
    time: ("", _shown_moment("$time")),
}


def _members(value: Any) -> list[Any]:
    return sorted(map(_shown, value), key=lambda shown: json.dumps(shown))


def _read(shown: Any, *, whole: bool = False) -> Any:
    if isinstance(shown, list):
        return [_read(item) for item in shown]
    if not isinstance(shown, dict):
        return shown
    name = next(iter(shown), "")
    if not name.startswith("$"):
        if any(key.startswith("$") for key in shown):
            raise ValueError('a name starts with "$"; write the dict as {"$dict": [[key, value], ...]}')
        return {key: _read(item) for key, item in shown.items()}
    if name == "$pickle" and whole:
        return _Pickle(b64decode(shown[name], validate=True))
    if name in _MOMENTS:
        return _read_moment(_MOMENTS[name], **{"text" if key == name else key: item for key, item in shown.items()})
    if name not in _READ or len(shown) != 1:
        raise ValueError(f"unknown type name {name!r}")
    return _READ[name](shown[name])


def _read_moment(kind: Any, text: str, zone: str | None = None, name: str | None = None, fold: int = 0) -> Any:
    value = kind.fromisoformat(text)
    if zone is not None:
        value = value.replace(tzinfo=ZoneInfo(zone))
    elif name is not None:
        value = value.replace(tzinfo=timezone(value.utcoffset(), name))
    return value.replace(fold=fold)


_MOMENTS = {"$datetime": datetime, "$time": time}

_READ: dict[str, Callable[[Any], Any]] = {
    "$int": lambda shown: int(shown, 16),
    "$float": float,
    "$dict": lambda shown: {_read(key): _read(item) for key, item in shown},
    "$bytes": lambda shown: b64decode(shown, validate=True),
    "$tuple": lambda shown: tuple(map(_read, shown)),
    "$set": lambda shown: set(map(_read, shown)),
    "$frozenset": lambda shown: frozenset(map(_read, shown)),
    "$decimal": Decimal,
    "$uuid": UUID,
    "$date": date.fromisoformat,
    "$timedelta": lambda shown: shown * _MICRO,
}
