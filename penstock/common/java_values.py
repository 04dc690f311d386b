"""Conversion of text to values of declared types, the way Flink's JSON and CSV formats do it."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from penstock.common.java_numbers import float_text, number_text
from penstock.common.simple_types import (
    BasicType,
    BasicTypeInfo,
    DateTypeInfo,
    LocalTimeTypeInfo,
    TimestampTypeInfo,
    TimeTypeInfo,
)
from penstock.common.typeinfo import Types, TypeSpec

Parse = Callable[[str], Any]

_BITS = {BasicType.BYTE: 8, BasicType.SHORT: 16, BasicType.INT: 32, BasicType.LONG: 64}
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?[fFdD]?|[+-]?Infinity|NaN")
_LOCAL = {
    LocalTimeTypeInfo.TimeType.LOCAL_DATE: Types.SQL_DATE(),
    LocalTimeTypeInfo.TimeType.LOCAL_TIME: Types.SQL_TIME(),
    LocalTimeTypeInfo.TimeType.LOCAL_DATE_TIME: Types.SQL_TIMESTAMP(),
}


def whole(value: int, basic: BasicType) -> int:
    """Return an integer that fits the type. Raises ValueError for others."""
    limit = 1 << (_BITS[basic] - 1)
    if not -limit <= value < limit:
        raise ValueError(f"{value} does not fit into {basic.name}")
    return value


def text_parser(spec: TypeSpec) -> Parse | None:
    """Return the function that converts the text of a plain value, or None for other types."""
    if isinstance(spec, LocalTimeTypeInfo):
        spec = _LOCAL[spec.get_time_type()]
    if isinstance(spec, DateTypeInfo):
        return datetime.date.fromisoformat
    if isinstance(spec, TimeTypeInfo):
        return time_of
    if isinstance(spec, TimestampTypeInfo):
        return timestamp_of
    if not isinstance(spec, BasicTypeInfo):
        return None
    basic = spec.get_basic_type()
    if basic in _BITS:
        return lambda text: whole(_integer(text), basic)
    return _PARSERS.get(basic)


def value_text(value: Any) -> str:
    """Return the text of a number, boolean or string."""
    if value is True or value is False:
        return "true" if value else "false"
    return number_text(value) if isinstance(value, float) else str(value)


def time_of(text: str) -> datetime.time:
    """Return the time of ``10:11:12`` or ``10:11:12Z``."""
    return datetime.time.fromisoformat(text.removesuffix("Z")).replace(tzinfo=None)


def timestamp_of(text: str) -> datetime.datetime:
    """Return the timestamp of ``2020-01-02 10:11:12.5`` or ``2020-01-02T10:11:12.5Z``."""
    whole_part, dot, fraction = text.removesuffix("Z").partition(".")
    found = datetime.datetime.fromisoformat(whole_part)
    if dot and not (fraction.isascii() and fraction.isdigit()):
        raise ValueError(text)
    return found.replace(tzinfo=None, microsecond=int(fraction[:6].ljust(6, "0")) if dot else 0)


def _integer(text: str) -> int:
    text = text.strip()
    if not re.fullmatch(r"[+-]?[0-9]+", text):
        raise ValueError(f"'{text}' is not an integer")
    return int(text)


def _double(text: str) -> float:
    text = text.strip()
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"'{text}' is not a number")
    return float(text.rstrip("fFdD") if text[-1:] in "fFdD" else text)


def _decimal(text: str) -> Decimal:
    text = text.strip()
    if not re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", text):
        raise ValueError(f"'{text}' is not a decimal number")
    return Decimal(text)


_PARSERS: dict[BasicType, Parse] = {
    BasicType.STRING: str,
    BasicType.CHAR: str,
    BasicType.BOOLEAN: lambda text: text.strip().lower() == "true",
    BasicType.DOUBLE: _double,
    BasicType.FLOAT: _double,
    BasicType.BIG_INT: _integer,
    BasicType.BIG_DEC: _decimal,
}

TEXTS: dict[BasicType, Callable[[Any], str]] = {
    BasicType.DOUBLE: number_text,
    BasicType.FLOAT: float_text,
    BasicType.BOOLEAN: value_text,
}
"""How numbers and booleans are written; the others as ``str`` does."""
