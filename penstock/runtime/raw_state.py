"""Raw state: opaque bytes that a function writes and reads back. Penstock stores and redistributes them."""

from __future__ import annotations

import io
from typing import Any

from penstock.errors import PenstockError
from penstock.state.key_groups import key_group_of
from penstock.state.keys import encode_key
from penstock.state.shares import GROUPED, SPLIT, Share, group_of, in_group, without_group


class BadKeyGroup(PenstockError):
    """Raw keyed state was written without a key group, for another subtask's key group, or twice for the same one.

    Operator action: start each of the subtask's key groups once, before writing to it.
    """


class RawOutput:
    """Partitions of bytes. Each partition goes to a single subtask, also after a rescale."""

    def __init__(self) -> None:
        self._partitions: list[bytearray] = []

    def start_new_partition(self) -> None:
        """Start a new partition; later writes append to it."""
        self._partitions.append(bytearray())

    def write(self, data: bytes) -> int:
        """Append to the current partition, starting the first one if necessary, and return the number of bytes."""
        if not self._partitions:
            self.start_new_partition()
        self._partitions[-1] += data
        return len(data)

    def share(self) -> Share:
        """Return all partitions as operator state."""
        return Share(mode=SPLIT, schema="bytes", elements=[bytes(partition) for partition in self._partitions])


class RawKeyedOutput:
    """Bytes by key group. The bytes of a key group are redistributed together with its keys."""

    def __init__(self, operator: str, groups: range, max_parallelism: int) -> None:
        self._operator = operator
        self._groups = groups
        self._max_parallelism = max_parallelism
        self._written: dict[int, bytearray] = {}
        self._current: bytearray | None = None

    def get_key_group_list(self) -> range:
        """Return the key groups of this subtask."""
        return self._groups

    def key_group_of(self, key: Any) -> int:
        """Return the key group of a key."""
        return key_group_of(encode_key(key), self._max_parallelism)

    def start_new_key_group(self, key_group: int) -> None:
        """Start a key group; later writes append to it. Each key group can be started once per snapshot."""
        if key_group not in self._groups or key_group in self._written:
            reason = "was already written" if key_group in self._written else "belongs to another subtask"
            raise BadKeyGroup(
                f"Raw keyed state of {self._operator}: key group {key_group} {reason}. This subtask can write key "
                f"groups {self._groups.start} to {self._groups.stop - 1}, each once per snapshot."
            )
        self._current = self._written[key_group] = bytearray()

    def write(self, data: bytes) -> int:
        """Append to the current key group, and return the number of bytes."""
        if self._current is None:
            raise BadKeyGroup(
                f"Raw keyed state of {self._operator} is written without a key group.",
                fix="Call start_new_key_group(key_group) before write(...).",
            )
        self._current += data
        return len(data)

    def share(self) -> Share:
        """Return the bytes of all key groups as operator state."""
        elements = [in_group(group, bytes(written)) for group, written in sorted(self._written.items())]
        return Share(mode=GROUPED, schema="bytes", elements=elements)


def raw_inputs(share: Share | None) -> list[io.BytesIO]:
    """Return one stream for each partition."""
    return [] if share is None else [io.BytesIO(element) for element in share.elements]


def raw_keyed_inputs(share: Share | None) -> list[tuple[int, io.BytesIO]]:
    """Return (key group, stream) for each key group of this subtask that has bytes."""
    elements = [] if share is None else share.elements
    return sorted(
        ((group_of(element), io.BytesIO(without_group(element))) for element in elements), key=lambda pair: pair[0]
    )
