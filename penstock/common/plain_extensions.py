"""Encode plain values that no shape describes as msgpack with extension types (see `penstock.common.plain`)."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from datetime import date, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec

from penstock.common.plain_parts import CONTAINERS, SCALARS, NotPlain, decode_msgpack, encode_msgpack, meet

Ext = msgspec.msgpack.Ext

# Codes are stored on disk: never change or reuse one.
_BIG_INT, _TEXT, _TUPLE, _SET, _FROZENSET, _PAIRS, _DECIMAL, _UUID, _DATETIME, _DATE, _TIME, _TIMEDELTA = range(1, 13)

_LOW, _HIGH = -(1 << 63), (1 << 64) - 1


def to_extensions(value: Any, seen: set[int]) -> Any:
    """Convert a value for msgspec, with extension types for everything msgpack cannot represent."""
    kind = type(value)
    if kind is str:
        return _extended_text(value)
    if kind is int:
        if _LOW <= value <= _HIGH:
            return value
        return Ext(_BIG_INT, value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True))
    if kind in SCALARS:
        return value
    write = _WRITE.get(kind)
    if write is not None:
        return write(value)
    if kind not in CONTAINERS:
        raise NotPlain
    # The empty tuple is a singleton, and so is the empty frozenset.
    if value or kind not in (tuple, frozenset):
        meet(value, seen)
    if kind is dict:
        return _extended_dict(value, seen)
    wires = [to_extensions(item, seen) for item in value]
    if kind is list:
        return wires
    if kind is tuple:
        return Ext(_TUPLE, encode_msgpack(wires))
    return Ext(_SET if kind is set else _FROZENSET, encode_msgpack(sorted(wires, key=encode_msgpack)))


def _extended_text(value: str) -> Any:
    try:
        value.encode()
    except UnicodeEncodeError:
        return Ext(_TEXT, value.encode("utf-8", "surrogatepass"))
    return value


def _extended_dict(value: dict[Any, Any], seen: set[int]) -> Any:
    pairs = [(to_extensions(key, seen), to_extensions(item, seen)) for key, item in value.items()]
    if all(type(key) in SCALARS for key, _ in pairs):
        return dict(pairs)
    return Ext(_PAIRS, encode_msgpack(pairs))


def _zone(zone: Any) -> Any:
    if zone is None:
        return None
    if type(zone) is timezone:
        offset, *name = zone.__getinitargs__()  # type: ignore[attr-defined]
        return [offset.days, offset.seconds, offset.microseconds, *name]
    if type(zone) is ZoneInfo and type(zone.key) is str:
        return zone.key
    raise NotPlain


def _read_zone(wire: Any) -> Any:
    if wire is None:
        return None
    if isinstance(wire, str):
        return ZoneInfo(wire)
    return timezone(timedelta(*wire[:3]), *wire[3:])


def _moment(value: Any) -> bytes:
    return encode_msgpack([value.replace(tzinfo=None, fold=0).isoformat(), value.fold, _zone(value.tzinfo)])


def _read_moment(kind: Any) -> Callable[[bytes], Any]:
    def read(data: bytes) -> Any:
        text, fold, zone = decode_msgpack(data)
        return kind.fromisoformat(text).replace(tzinfo=_read_zone(zone), fold=fold)

    return read


_WRITE: dict[type, Callable[[Any], Any]] = {
    Decimal: lambda value: Ext(_DECIMAL, str(value).encode()),
    UUID: lambda value: Ext(_UUID, value.bytes),
    datetime.datetime: lambda value: Ext(_DATETIME, _moment(value)),
    date: lambda value: Ext(_DATE, value.isoformat().encode()),
    time: lambda value: Ext(_TIME, _moment(value)),
    timedelta: lambda value: Ext(_TIMEDELTA, encode_msgpack([value.days, value.seconds, value.microseconds])),
}

_READ: dict[int, Callable[[bytes], Any]] = {
    _BIG_INT: lambda data: int.from_bytes(data, "big", signed=True),
    _TEXT: lambda data: data.decode("utf-8", "surrogatepass"),
    _TUPLE: lambda data: tuple(decode_extended(data)),
    _SET: lambda data: set(decode_extended(data)),
    _FROZENSET: lambda data: frozenset(decode_extended(data)),
    _PAIRS: lambda data: dict(decode_extended(data)),
    _DECIMAL: lambda data: Decimal(data.decode()),
    _UUID: lambda data: UUID(bytes=data),
    _DATETIME: _read_moment(datetime.datetime),
    _DATE: lambda data: date.fromisoformat(data.decode()),
    _TIME: _read_moment(time),
    _TIMEDELTA: lambda data: timedelta(*decode_msgpack(data)),
}


def _read_extension(code: int, data: memoryview) -> Any:
    read = _READ.get(code)
    if read is None:
        raise ValueError(f"unknown extension type {code} in a plain value")
    return read(bytes(data))


decode_extended: Callable[[bytes], Any] = msgspec.msgpack.Decoder(ext_hook=_read_extension).decode
