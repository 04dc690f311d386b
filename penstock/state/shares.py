"""Operator state as reported, stored and redistributed: named lists of bytes that belong to no key."""

from __future__ import annotations

import struct

import msgspec

SPLIT = "split"
"""The elements of all subtasks form one list, which is split evenly when the parallelism changes."""
UNION = "union"
"""Every subtask receives the elements of all subtasks."""
BROADCAST = "broadcast"
"""Every subtask has the same elements; a new subtask receives a copy."""
GROUPED = "key groups"
"""Each element is prefixed with its key group, and goes to the subtask that owns the key group."""


class Share(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """One operator state of one subtask, as reported for a checkpoint or as restored."""

    mode: str
    schema: str
    elements: list[bytes]
    migrations: tuple[bytes, ...] = ()
    """From the first version of the type to this one: see `serializers.migrations`."""


class Shares(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """One operator state of all subtasks, as stored in a manifest."""

    mode: str
    schema: str
    by_subtask: list[list[bytes]]
    """The elements of each subtask; a single list if all subtasks of a broadcast state have the same."""
    migrations: tuple[bytes, ...] = ()


_GROUP = struct.Struct(">H")


def in_group(group: int, data: bytes) -> bytes:
    """Return an element of mode GROUPED."""
    return _GROUP.pack(group) + data


def group_of(element: bytes) -> int:
    """Return the key group of an element of mode GROUPED."""
    return int(_GROUP.unpack_from(element)[0])


def without_group(element: bytes) -> bytes:
    """Return the data of an element of mode GROUPED."""
    return element[_GROUP.size :]
