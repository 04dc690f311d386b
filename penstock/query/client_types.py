"""What the reads of the client return."""

from __future__ import annotations

from typing import Any, NamedTuple


class Change(NamedTuple):
    """A change to one key of a state.

    For a map, ``map_key`` is the entry that changed; None means that ``value`` is all that the key has. A ``value`` of
    None means that the entry, or the key, has nothing any more. ``window`` is the window of a state of windows, in the
    form that reads accept.
    """

    key: Any
    value: Any
    map_key: Any = None
    window: bytes = b""


class CheckpointChanges(NamedTuple):
    """The changes of one checkpoint."""

    checkpoint: int
    reset: bool
    """Whether ``changes`` is the complete state: start from an empty dict. The first ones are, and those after
    checkpoints that the server no longer had."""
    changes: list[Change]
    lineage: str = ""
    """The run of the job: another one starts with a savepoint, or from scratch, and can use the same numbers again."""


class Read(NamedTuple):
    """A value, and the checkpoint that it is from."""

    value: Any
    checkpoint: int


class MapPage(NamedTuple):
    """Entries of a map."""

    entries: dict[Any, Any]
    """In the order of the map keys."""
    cursor: bytes | None
    """Pass it to read the next page; None after the last one."""
    checkpoint: int
