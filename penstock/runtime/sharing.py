"""Records that are kept beyond the call that gave them must be the keeper's own.

A function may give the same object again and again, changed in between. Whoever holds a record until a buffer is full
or an epoch ends would then hold its last content many times over, and results would depend on the size of epochs.
"""

from __future__ import annotations

import datetime
import decimal
import uuid
from typing import Any

from penstock.common.pickling import Frozen, to_pickle
from penstock.common.row import Row

_SCALARS = frozenset(
    {
        str,
        int,
        float,
        bool,
        bytes,
        complex,
        type(None),
        decimal.Decimal,
        datetime.datetime,
        datetime.date,
        datetime.time,
        datetime.timedelta,
        uuid.UUID,
    }
)
"""Types whose values cannot change; exact types, for a subclass may have attributes."""

_flat = _SCALARS.issuperset


def hold(value: Any) -> Any:
    """`value` if it cannot change; otherwise a copy, or a Frozen where copying means writing it.

    Hot path: 0.05 µs for a scalar, 0.2 µs for a pair of scalars, 0.5 µs for a Row of two, 0.7 µs for a nested list.
    """
    kind = type(value)
    if kind in _SCALARS or (kind is tuple and _flat(map(type, value))):
        return value
    if kind is Row and _flat(map(type, value._values)):
        copy = Row.of(value._fields, list(value._values))
        copy._row_kind = value._row_kind
        return copy
    if kind is list and _flat(map(type, value)):
        return value.copy()
    if kind is dict and _flat(map(type, value)) and _flat(map(type, value.values())):
        return value.copy()
    return Frozen(to_pickle(value))


def independent(value: Any) -> Any:
    """A record like `value` that shares nothing with it that could change."""
    held = hold(value)
    return held.thaw() if type(held) is Frozen else held
