"""Convert window names in entry keys to columns, and back."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa

from penstock.runtime.windows.scopes import SCOPES, in_scope
from penstock.runtime.windows.window import NAME_LENGTH

FIELDS = [pa.field("window_start", pa.int64()), pa.field("window_end", pa.int64()), pa.field("window_id", pa.int64())]
"""Start and end of a time window in milliseconds, or the number of a count window. All null for the global window."""

_PAIR = struct.Struct(">QQ")
_BIAS = 2**63


def window_of(name: bytes) -> tuple[int | None, int | None, int | None]:
    """Return the values of `FIELDS` for a window name."""
    first, second = _PAIR.unpack(name)
    if not second:
        return None, None, first - _BIAS if first else None
    return first - _BIAS, second - _BIAS, None


def name_of(start: Any, end: Any, number: Any) -> bytes:
    """Return the bytes under which a window is stored."""
    if number is not None:
        return _PAIR.pack(int(number) + _BIAS, 0)
    return bytes(NAME_LENGTH) if start is None else _PAIR.pack(int(start) + _BIAS, int(end) + _BIAS)


__all__ = ["FIELDS", "NAME_LENGTH", "SCOPES", "in_scope", "name_of", "window_of"]
