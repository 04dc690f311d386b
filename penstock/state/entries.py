"""The keys of state entries: `key group · state id · key · rest`, big-endian, so that a key's entries are one range."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import xxhash

from penstock.errors import PenstockError
from penstock.state.engines.base import Reader

HEADER = struct.Struct(">HII")
"""Key group, state id, length of the key."""

key_hash = xxhash.xxh64_intdigest
"""Of a key's canonical bytes; its remainder by the max parallelism is the key group."""


class StateError(PenstockError):
    """A state was used in a way it does not allow; the message names the state."""


class StateTypeChanged(PenstockError):
    """A state's declared type is not the one its checkpoint holds. Nothing was read or changed."""

    retryable = False


def state_id(name: str) -> int:
    """A state's number inside entry keys: a hash of its name, so that it needs no registry and never changes."""
    return xxhash.xxh32_intdigest(name.encode())


def entry_prefix(group: int, state: int, key: bytes) -> bytes:
    """`key group · state id · key`, the key with its length, so that one key's entries are one range."""
    return HEADER.pack(group, state, len(key)) + key


def entry_key(entry: tuple[bytes, bytes | None]) -> bytes:
    """The key of an entry, to sort by."""
    return entry[0]


def stored_keys(reader: Reader, group: int, state: str) -> Iterator[bytes]:
    """The keys of a key group that have entries of this state; one with many entries comes as often."""
    start = HEADER.size
    for entry, _ in reader.scan(entry_prefix(group, state_id(state), b"")[:-4]):
        length = int.from_bytes(entry[start - 4 : start], "big")
        yield entry[start : start + length]
