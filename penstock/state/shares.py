"""Operator state as it is reported, stored and dealt out: named lists of bytes, nobody's key among them."""

from __future__ import annotations

import struct

import msgspec

SPLIT = "split"
"""All elements of all subtasks are one list, which is dealt out in even runs when the parallelism changes."""
UNION = "union"
"""Every subtask is given the elements of all."""
BROADCAST = "broadcast"
"""Every subtask has the same; a new one is given a copy."""
GROUPED = "key groups"
"""Each element belongs to a key group, whose number is in front of it, and goes where that goes."""


class Share(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """One operator state of one subtask: what it reports, or what it is given back."""

    mode: str
    schema: str
    elements: list[bytes]
    migrations: tuple[bytes, ...] = ()
    """From the first version of its type to this one: see `serializers.migrations`."""


class Shares(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """One operator state of all subtasks, as a manifest holds it."""

    mode: str
    schema: str
    by_subtask: list[list[bytes]]
    """Where all subtasks of a broadcast state have the same, only one list."""
    migrations: tuple[bytes, ...] = ()


_GROUP = struct.Struct(">H")


def in_group(group: int, data: bytes) -> bytes:
    """An element of the mode GROUPED."""
    return _GROUP.pack(group) + data


def group_of(element: bytes) -> int:
    return int(_GROUP.unpack_from(element)[0])


def without_group(element: bytes) -> bytes:
    return element[_GROUP.size :]
