"""Definitions shared by both encodings of plain values (see `penstock.common.plain`)."""

from __future__ import annotations

from typing import Any

import msgspec

encode_msgpack = msgspec.msgpack.Encoder(uuid_format="bytes").encode
decode_msgpack = msgspec.msgpack.Decoder().decode

SCALARS = frozenset((type(None), bool, int, float, str, bytes))
"""Types that msgpack represents natively."""
are_scalars = SCALARS.issuperset
"""Return whether all of these classes are scalars."""

CONTAINERS = frozenset((list, tuple, dict, set, frozenset))


class NotPlain(Exception):
    """The value needs pickle."""


def meet(value: Any, seen: set[int]) -> None:
    """Record an object. Raises NotPlain if it was seen before: decoding would turn it into two copies."""
    if id(value) in seen:
        raise NotPlain
    seen.add(id(value))
