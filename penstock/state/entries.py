"""Keys of state entries: `key group · state id · key · rest`, big-endian, so that a key's entries form one range."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import xxhash

from penstock.errors import PenstockError
from penstock.state.engines.base import Reader

HEADER = struct.Struct(">HII")
"""Key group, state id, length of the key."""

key_hash = xxhash.xxh64_intdigest
"""Hash of a key's canonical bytes; the hash modulo the max parallelism is the key group."""


class StateError(PenstockError):
    """A state was used in an unsupported way; the message names the state.

    Operator action: change the call that the message shows.
    """


class StateTypeChanged(PenstockError):
    """A state's declared type is incompatible with the one in the checkpoint. Nothing was read or changed.

    Operator action: declare the stored type, or change it in steps that a schema migration covers.
    """

    retryable = False


def state_id(name: str) -> int:
    """Return the id of a state in entry keys: a hash of its name, which needs no registry and never changes."""
    return xxhash.xxh32_intdigest(name.encode())


def entry_prefix(group: int, state: int, key: bytes) -> bytes:
    """Return `key group · state id · length of the key · key`, the common prefix of a key's entries."""
    return HEADER.pack(group, state, len(key)) + key


def entry_key(entry: tuple[bytes, bytes | None]) -> bytes:
    """Return the key of an entry, for sorting."""
    return entry[0]


def stored_keys(reader: Reader, group: int, state: str) -> Iterator[bytes]:
    """Yield the keys of a key group that have entries of this state, once per entry."""
    start = HEADER.size
    for entry, _ in reader.scan(entry_prefix(group, state_id(state), b"")[:-4]):
        length = int.from_bytes(entry[start - 4 : start], "big")
        yield entry[start : start + length]
