"""Keys and values of state as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from math import isfinite
from typing import Any
from uuid import UUID

import msgspec

from penstock.rest.errors import BadRequest

_LARGEST = 1 << 63
_FROM_TEXT: Mapping[str, Callable[[str], Any]] = {
    "bytes": bytes.fromhex,
    "decimal": Decimal,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "timestamp": datetime.fromisoformat,
    "uuid": UUID,
}
"""Types of keys that JSON does not have."""


def json_key(parameter: str, text: str) -> Any:
    """Return the key or map key in a query parameter. A list is a key of several fields. Raises BadRequest."""
    try:
        return _tuples(msgspec.json.decode(text))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise BadRequest(
            f"The query parameter '{parameter}' is not JSON.",
            fix='Write a text in double quotes: "ann". Other keys are 5, 1.5, true and ["ann", 5].',
        ) from None


def converted_key(key: Any, type_: str) -> Any:
    """Return the key that a text stands for if keys of this type have no form in JSON. Raises BadRequest."""
    convert = _FROM_TEXT.get(type_)
    if convert is None or not isinstance(key, str):
        return key
    try:
        return convert(key)
    except (ValueError, ArithmeticError):
        shown = "hexadecimal digits" if type_ == "bytes" else f"a {type_} in its usual form"
        raise BadRequest(f"The key is not of type {type_}.", fix=f"Write {shown}, in double quotes.") from None


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def json_value(value: Any) -> Any:
    """Return a value in a form that JSON has: bytes as 0x…, numbers that JSON lacks and other types as text.

    A dict with keys that are not text becomes a list of objects with `key` and `value`.
    """
    match value:
        case None | bool() | str():
            return value
        case int():
            return value if -_LARGEST <= value < _LARGEST else str(value)
        case float():
            return value if isfinite(value) else str(value)
        case bytes():
            return f"0x{value.hex()}"
        case dict():
            if all(isinstance(key, str) for key in value):
                return {key: json_value(each) for key, each in value.items()}
            return [{"key": json_value(key), "value": json_value(each)} for key, each in value.items()]
        case list() | tuple() | set() | frozenset():
            return [json_value(each) for each in value]
        case datetime() | date() | time():
            return value.isoformat()
    return str(value)
