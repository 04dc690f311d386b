"""A task's way to committed state: replicas to read from, storage to write deltas to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.state.engines.base import Engine
from penstock.state.files import GroupChanges, content_name, encode_changes
from penstock.state.key_groups import block_of
from penstock.state.replica import History, Replicas
from penstock.state.storage import Storage


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

    history: History
    storage: Storage | None
    """Where delta files go; None where deltas always ride in the manifest."""
    open_engine: Callable[[str, int], Engine]
    inline_bytes: int

    def replicas(self, uid: str, max_parallelism: int) -> Replicas:
        return Replicas(uid, max_parallelism, self.history, self.open_engine)

    def write_delta(self, epoch: int, changes: list[GroupChanges], max_parallelism: int) -> WrittenDelta:
        """Make an epoch's changes durable. Named by content: a retry writes the same file or another, never over it."""
        data = encode_changes(changes)
        blocks = sorted({block_of(change.group, max_parallelism) for change in changes})
        entries = sum(len(change.entries) for change in changes)
        name = delta_name(epoch, data)
        if self.storage is None or len(data) <= self.inline_bytes:
            return WrittenDelta(name, len(data), entries, blocks, data)
        self.storage.write(name, data)
        return WrittenDelta(name, len(data), entries, blocks, None)


def delta_name(epoch: int, data: bytes) -> str:
    """Under a prefix per epoch, so that a sweeper finds what a zombie wrote late."""
    return f"deltas/{epoch:012d}/{content_name(data)}.arrow"
