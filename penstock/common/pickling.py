"""Pickle user objects, including instances of classes that exist only in the user's script."""

from __future__ import annotations

import pickle
from typing import Any

from penstock.common.class_pickling import dump_by_name
from penstock.common.plain import decode_plain, encode_plain


class Frozen:
    """A serialized snapshot of a mutable object."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data

    def thaw(self) -> Any:
        """Deserialize the object. Only for data this job wrote: reading a pickle can run arbitrary code."""
        return from_bytes(self.data)


def to_pickle(content: Any) -> bytes:
    """Pickle an object. Classes and functions that no module contains are written by their name in the program."""
    try:
        return pickle.dumps(content, protocol=5)
    except (pickle.PicklingError, AttributeError):
        # A function or class that no module contains.
        return dump_by_name(content)


_PLAIN = b"\x01"
"""Prefix of a plain value; no pickle begins with this byte."""


def to_bytes(content: Any) -> bytes:
    """Encode a plain value in a self-describing form (`plain.py`), and anything else as a pickle."""
    data = encode_plain(content)
    return to_pickle(content) if data is None else _PLAIN + data


def from_bytes(data: bytes) -> Any:
    """Decode the output of `to_bytes` or `to_pickle`. If it is a pickle, reading it can run arbitrary code."""
    return decode_plain(data[1:]) if data[:1] == _PLAIN else pickle.loads(data)


def as_part(plain: bytes) -> bytes:
    """Convert the output of `encode_plain` to that of `to_bytes`."""
    return _PLAIN + plain


def plain_part(data: bytes) -> bytes | None:
    """Convert the output of `to_bytes` to that of `encode_plain`; None for a pickle."""
    return data[1:] if data[:1] == _PLAIN else None
