"""Copies of records that are kept longer than the call that passed them.

A function can emit the same object repeatedly and change it in between. An operator that keeps a record until a buffer
is full or an epoch ends would then hold the object's last content several times, and results would depend on the size
of epochs.
"""

from __future__ import annotations

import copyreg
import datetime
import decimal
import uuid
from typing import Any

from penstock.common.pickling import Frozen, to_pickle
from penstock.common.row import Row, kind_of, names_of, values_of

SCALARS = frozenset(
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
"""Types with immutable values. Exact types only, because a subclass can have attributes."""

_flat = SCALARS.issuperset


def hold(value: Any) -> Any:
    """Return `value` if it cannot change; otherwise a copy, or a Frozen if copying requires serializing it.

    Hot path: 0.05 µs for a scalar, 0.2 µs for a pair of scalars, 0.5 µs for a Row of two, 0.7 µs for a nested list.
    """
    kind = type(value)
    if kind in SCALARS or (kind is tuple and _flat(map(type, value))):
        return value
    if kind is Row and _flat(map(type, values := values_of(value))):
        return Row.of(names_of(value), values.copy(), kind_of(value))
    if kind is list and _flat(map(type, value)):
        return value.copy()
    if kind is dict and _flat(map(type, value)) and _flat(map(type, value.values())):
        return value.copy()
    return Frozen(to_pickle(value))


def independent(value: Any) -> Any:
    """Return a copy of `value` that shares no mutable object with it.

    Hot path: 0.3 µs for a pair of scalars, 0.4 µs for a list or dict of scalars, 0.6 µs for an object with two, 2 µs
    and more for anything nested, which is serialized and deserialized.
    """
    kind = type(value)
    if kind is tuple or kind in SCALARS or kind is list or kind is dict or kind is Row:
        held = hold(value)
        return held.thaw() if type(held) is Frozen else held
    if _is_plain(kind):
        fields = value.__dict__
        if _flat(map(type, fields.values())):
            copy = object.__new__(kind)
            copy.__dict__.update(fields)
            return copy
    return Frozen(to_pickle(value)).thaw()


def handed_on(value: Any) -> Any:
    """Like `independent`, for a record passed to a chained function. A record that cannot be copied, such as a
    generator, is passed on as the same object."""
    try:
        return independent(value)
    except Exception:  # pickling runs arbitrary code and can raise anything
        return value


_plain: dict[type, bool] = {}


def _is_plain(kind: type) -> bool:
    """Return whether objects of a class consist only of their `__dict__` and can be copied by copying it."""
    known = _plain.get(kind)
    if known is None:
        if len(_plain) > 10_000:
            _plain.clear()
        known = _plain[kind] = _has_only_a_dict(kind)
    return known


_AS_OBJECT = ("__new__", "__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__getnewargs__")


def _has_only_a_dict(kind: type) -> bool:
    return (
        kind.__dictoffset__ != 0
        and all(getattr(kind, name, None) is getattr(object, name, None) for name in _AS_OBJECT)
        and not hasattr(kind, "__getnewargs_ex__")
        and not any("__slots__" in vars(base) for base in kind.__mro__[:-1])
        and kind not in copyreg.dispatch_table
    )
