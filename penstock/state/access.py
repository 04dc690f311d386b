"""Access of a task to committed state: replicas to read from, storage to write deltas to."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

from penstock.state.blocks import Blocks
from penstock.state.engines.base import Engine
from penstock.state.files import GroupChanges, content_name, encode_changes, write_changes
from penstock.state.overlay import OVERLAY_BYTES
from penstock.state.replica import Replicas, StateHistory
from penstock.state.storage import Storage

_LARGE = 200_000
"""Number of entries above which a delta is streamed to disk; encoded in one piece, it would take three copies."""


@dataclass
class WrittenDelta:
    """A delta that is durable, or small enough to be stored inside the manifest (`inline`)."""

    name: str
    size: int
    entries: int
    blocks: list[int]
    inline: bytes | None


@dataclass
class StateAccess:
    """Everything one task needs to read and write state in one epoch."""

    history: StateHistory
    storage: Storage | None
    """Where delta files go, or None if deltas are always stored in the manifest."""
    open_engine: Callable[[str, range], Engine]
    """Opens the replica of some key groups of an operator."""
    inline_bytes: int
    overlay_bytes: int = OVERLAY_BYTES
    """Memory budget for a task's keyed state; the overlay spills to disk above it."""
    blocks: Mapping[str, Blocks] = field(default_factory=dict)
    """The blocks of keyed operators in this epoch, by uid."""
    upload_ms: float = field(default=0.0, init=False)
    """Time that the storage took to make changes durable."""

    def replicas(self, uid: str) -> Replicas:
        """Return the replicas of an operator's blocks at this point in history."""
        return Replicas(uid, self.blocks[uid], self.history, self.open_engine)

    def timers(self, uid: str) -> dict[str, dict[int, int]]:
        """Return the times of an operator's first timers at this point in history, by kind and block."""
        return self.history.timers(uid, self.blocks[uid])

    def write_delta(self, epoch: int, changes: Iterable[GroupChanges], blocks: Blocks) -> WrittenDelta:
        """Make an epoch's changes durable.

        The name is derived from the content, so a retry never overwrites a different file. Changes passed as an
        iterator are never all in memory at once.
        """
        if isinstance(changes, list) and sum(len(change.entries) for change in changes) <= _LARGE:
            return self._written(epoch, changes, blocks)
        with tempfile.TemporaryFile(prefix="penstock-delta-") as file:
            written = write_changes(changes, file)
            name = delta_name(epoch, written.digest)
            numbers = sorted({blocks.of(group) for group in written.groups})
            inline = None
            file.seek(0)
            if self.storage is None or written.size <= self.inline_bytes:
                inline = file.read()
            else:
                self._upload(partial(self.storage.write_file, name, file))
            return WrittenDelta(name, written.size, written.entries, numbers, inline)

    def _written(self, epoch: int, changes: list[GroupChanges], blocks: Blocks) -> WrittenDelta:
        data = encode_changes(changes)
        numbers = sorted({blocks.of(change.group) for change in changes})
        entries = sum(len(change.entries) for change in changes)
        name = delta_name(epoch, content_name(data))
        if self.storage is None or len(data) <= self.inline_bytes:
            return WrittenDelta(name, len(data), entries, numbers, data)
        self._upload(partial(self.storage.write, name, data))
        return WrittenDelta(name, len(data), entries, numbers, None)

    def _upload(self, write: Callable[[], None]) -> None:
        began = time.perf_counter()
        write()
        self.upload_ms += (time.perf_counter() - began) * 1000


def delta_name(epoch: int, digest: str) -> str:
    """Return the name of a delta. The prefix per epoch lets the sweeper find files that a zombie task wrote late."""
    return f"deltas/{epoch:012d}/{digest}.arrow"
