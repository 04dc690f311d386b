"""Format records as text the way Flink's print and text files do.

In Flink a record with a declared `TypeInformation` is a Java object and prints like one: `(To,1)`, `+I[1, abc]`,
`{a=true}`. A record without one, or declared by a type hint, is a Python object and prints with `str`. The one
exception is arrays, shown as lists: Java would print their address.
"""

from __future__ import annotations

import datetime
import struct
from collections.abc import Callable
from typing import Any

from penstock.common.java_numbers import float_text, number_text
from penstock.common.row import Row
from penstock.common.time import Instant
from penstock.common.typeinfo import (
    BasicType,
    BasicTypeInfo,
    MapTypeInfo,
    PickledBytesTypeInfo,
    RowTypeInfo,
    TimestampTypeInfo,
    TimeTypeInfo,
    TupleTypeInfo,
    TypeInformation,
    TypeSpec,
    _ElementsTypeInfo,
)

Show = Callable[[Any], str]

_EPOCH = datetime.datetime(1970, 1, 1)


def shower(declared: TypeSpec | None) -> Show:
    """Return the function that formats a stream's records. Built once, from the declared type."""
    if not isinstance(declared, TypeInformation) or isinstance(declared, PickledBytesTypeInfo):
        return str
    show = _java(declared)
    return lambda value: "null" if value is None else show(value)


def print_shower(declared: TypeSpec | None) -> Show:
    """Return the function that formats records for ``print``, which writes the fields of a row as Python does."""
    return _printed_row if isinstance(declared, RowTypeInfo) else shower(declared)


def _printed_row(value: Row) -> str:
    return f"{value.get_row_kind()}[{','.join(map(str, value))}]"


def _java(declared: TypeInformation) -> Show:
    if isinstance(declared, BasicTypeInfo):
        return _BASIC.get(declared.get_basic_type(), str)
    if isinstance(declared, TupleTypeInfo):
        fields = [shower(kind) for kind in declared.get_field_types()]
        return lambda value: f"({','.join(show(field) for show, field in zip(fields, value))})"
    if isinstance(declared, RowTypeInfo):
        return _row([shower(kind) for kind in declared.get_field_types()])
    if isinstance(declared, MapTypeInfo):
        key, item = shower(declared.get_key_type()), shower(declared.get_value_type())
        return lambda value: f"{{{', '.join(f'{key(k)}={item(v)}' for k, v in value.items())}}}"
    if isinstance(declared, _ElementsTypeInfo):
        return _elements(shower(declared.get_element_type()))
    if isinstance(declared, TimestampTypeInfo):
        return _timestamp
    return _time if isinstance(declared, TimeTypeInfo) else str


def _row(fields: list[Show]) -> Show:
    def show(value: Row) -> str:
        return f"{value.get_row_kind()}[{', '.join(show(field) for show, field in zip(fields, value))}]"

    return show


def _elements(element: Show) -> Show:
    def show(value: Any) -> str:
        if isinstance(value, bytes):
            # Java's bytes are signed.
            value = struct.unpack(f"{len(value)}b", value)
        return f"[{', '.join(map(element, value))}]"

    return show


def _boolean(value: bool) -> str:
    return "true" if value else "false"


def _instant(value: Instant) -> str:
    try:
        whole = (_EPOCH + datetime.timedelta(seconds=value.seconds)).isoformat()
    except OverflowError:
        # Before the year 1 or after 9999.
        return repr(value)
    nanos = f"{value.nanos:09d}"
    while nanos.endswith("000"):
        nanos = nanos[:-3]
    return f"{whole}.{nanos}Z" if nanos else f"{whole}Z"


def _timestamp(value: datetime.datetime) -> str:
    whole = value.replace(tzinfo=None).isoformat(" ", "seconds")
    return f"{whole}.{f'{value.microsecond:06d}'.rstrip('0') or '0'}"


def _time(value: datetime.time) -> str:
    return value.replace(tzinfo=None).isoformat("seconds")


_BASIC: dict[BasicType, Show] = {
    BasicType.BOOLEAN: _boolean,
    BasicType.FLOAT: float_text,
    BasicType.DOUBLE: number_text,
    BasicType.INSTANT: _instant,
}
