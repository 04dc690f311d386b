"""What plain values consist of, and msgpack as both ways of writing them use it (see `penstock.common.plain`)."""

from __future__ import annotations

from typing import Any

import msgspec

encode_msgpack = msgspec.msgpack.Encoder(uuid_format="bytes").encode
decode_msgpack = msgspec.msgpack.Decoder().decode

SCALARS = frozenset((type(None), bool, int, float, str, bytes))
"""What msgpack holds as it is."""
are_scalars = SCALARS.issuperset
"""Whether all of these classes are."""

CONTAINERS = frozenset((list, tuple, dict, set, frozenset))


class NotPlain(Exception):
    """Something only pickle can write."""


def meet(value: Any, seen: set[int]) -> None:
    """Note an object. Raises NotPlain for one that occurs twice, which would come back as two."""
    if id(value) in seen:
        raise NotPlain
    seen.add(id(value))
