"""A task's way to committed state: replicas to read from, storage to write deltas to."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from penstock.state.engines.base import Engine
from penstock.state.files import GroupChanges, content_name, encode_changes, write_changes
from penstock.state.key_groups import block_of
from penstock.state.overlay import OVERLAY_BYTES
from penstock.state.replica import Replicas, StateHistory
from penstock.state.storage import Storage

_LARGE = 200_000
"""Entries of a delta past which it is written piece by piece: as a whole it would be in memory three times."""


@dataclass
class WrittenDelta:
    """A delta that is durable, or small enough to ride inside the manifest (`inline`)."""

    name: str
    size: int
    entries: int
    blocks: list[int]
    inline: bytes | None


@dataclass
class StateAccess:
    """Made per task and epoch."""

    history: StateHistory
    storage: Storage | None
    """Where delta files go; None where deltas always ride in the manifest."""
    open_engine: Callable[[str, int], Engine]
    inline_bytes: int
    overlay_bytes: int = OVERLAY_BYTES
    """What a task's keyed state may take of memory before it spills."""

    def replicas(self, uid: str, max_parallelism: int) -> Replicas:
        return Replicas(uid, max_parallelism, self.history, self.open_engine)

    def write_delta(self, epoch: int, changes: Iterable[GroupChanges], max_parallelism: int) -> WrittenDelta:
        """Make an epoch's changes durable. Named by content: a retry writes the same file or another, never over it.
        What is given as an iterator is never in memory as a whole."""
        if isinstance(changes, list) and sum(len(change.entries) for change in changes) <= _LARGE:
            return self._written(epoch, changes, max_parallelism)
        with tempfile.TemporaryFile(prefix="penstock-delta-") as file:
            written = write_changes(changes, file)
            name = delta_name(epoch, written.digest)
            blocks = sorted({block_of(group, max_parallelism) for group in written.groups})
            inline = None
            file.seek(0)
            if self.storage is None or written.size <= self.inline_bytes:
                inline = file.read()
            else:
                self.storage.write_file(name, file)
            return WrittenDelta(name, written.size, written.entries, blocks, inline)

    def _written(self, epoch: int, changes: list[GroupChanges], max_parallelism: int) -> WrittenDelta:
        data = encode_changes(changes)
        blocks = sorted({block_of(change.group, max_parallelism) for change in changes})
        entries = sum(len(change.entries) for change in changes)
        name = delta_name(epoch, content_name(data))
        if self.storage is None or len(data) <= self.inline_bytes:
            return WrittenDelta(name, len(data), entries, blocks, data)
        self.storage.write(name, data)
        return WrittenDelta(name, len(data), entries, blocks, None)


def delta_name(epoch: int, digest: str) -> str:
    """Under a prefix per epoch, so that a sweeper finds what a zombie wrote late."""
    return f"deltas/{epoch:012d}/{digest}.arrow"
