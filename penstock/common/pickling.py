"""Pickling of users' objects, also of classes that exist only in the user's script."""

from __future__ import annotations

import pickle
from typing import Any

from penstock.common.class_pickling import dump_by_name
from penstock.common.plain import decode_plain, encode_plain


class Frozen:
    """An object that had to be written to be kept as it was."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data

    def thaw(self) -> Any:
        """Only for what this job wrote: reading a pickle runs whatever code it names."""
        return from_bytes(self.data)


def to_pickle(content: Any) -> bytes:
    """Return an object as a pickle; what no module holds is written by its name in the program."""
    try:
        return pickle.dumps(content, protocol=5)
    except (pickle.PicklingError, AttributeError):
        # A function or a class that no module holds.
        return dump_by_name(content)


_PLAIN = b"\x01"
"""In front of a plain value; no pickle begins with it."""


def to_bytes(content: Any) -> bytes:
    """A plain value in a form that describes itself (`plain.py`), anything else as a pickle."""
    data = encode_plain(content)
    return to_pickle(content) if data is None else _PLAIN + data


def from_bytes(data: bytes) -> Any:
    """What `to_bytes` or `to_pickle` wrote. If that is a pickle, reading it runs whatever code it names."""
    return decode_plain(data[1:]) if data[:1] == _PLAIN else pickle.loads(data)


def as_part(plain: bytes) -> bytes:
    """What `to_bytes` would have written for what `encode_plain` gave."""
    return _PLAIN + plain


def plain_part(data: bytes) -> bytes | None:
    """What `encode_plain` gave, of what `to_bytes` wrote; None for a pickle."""
    return data[1:] if data[:1] == _PLAIN else None
