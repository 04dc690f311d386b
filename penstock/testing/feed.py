"""The input of a harness. Records wait in logs until an epoch takes them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec

from penstock.checkpoint.manifest import Manifest, load
from penstock.common.program import Program
from penstock.connectors.source import at_end
from penstock.errors import PenstockError
from penstock.graph.logical import LogicalGraph
from penstock.graph.physical import PhysicalGraph
from penstock.state.storage import Storage
from penstock.testing.credits import Credits
from penstock.testing.drawing import DrawnSource

_POSITIONS = "offsets/0"


class Feed:
    """The input logs, one per source uid. `last` returns the last checkpoint, which holds the position in each log."""

    def __init__(
        self,
        logical: LogicalGraph,
        graph: PhysicalGraph,
        program: Program,
        parallelism: int,
        last: Callable[[], Manifest | None],
    ) -> None:
        self._last = last
        self.logs: dict[str, list[Any]] = {}
        self.partitions: dict[str, int] = {}
        self.taken: dict[str, int] = {}
        """The number of records that the current epoch reads from each source."""
        self.credits = Credits(self.backlog)
        self._names = {node.name: node.uid for node in logical.nodes.values()}
        self._drawn: dict[str, DrawnSource] = {}
        for node in logical.nodes.values():
            if node.source is not None:
                self.logs[node.uid] = list(node.source.origin if node.source.reader == "chunks" else [])
                self.partitions[node.uid] = 1
                if node.source.reader == "splits":
                    chain = next(chain for chain in graph.sources() if chain.source_uid == node.uid)
                    self._drawn[node.uid] = DrawnSource(chain, parallelism, program)

    def uid(self, source: str | None) -> str:
        """Return the uid of a source given its uid or name. None stands for the only source."""
        if source is None:
            if len(self.logs) != 1:
                raise PenstockError(
                    f"The program has {len(self.logs)} sources. Pass source= with the uid or name of one."
                )
            return next(iter(self.logs))
        uid = source if source in self.logs else self._names.get(source, source)
        if uid not in self.logs:
            raise PenstockError(f"The program has no source '{source}'; it has {sorted(self.logs)}.")
        return uid

    def _position(self, uid: str) -> int:
        last = self._last()
        return 0 if last is None else last.records.get(uid, 0)

    def waiting(self, uid: str) -> int:
        """Return how many records of a source's log are not in a checkpoint."""
        return len(self.logs[uid]) - self._position(uid)

    def anything_waits(self, records: int | None) -> bool:
        """Return whether an epoch of at most ``records`` per source would read any."""
        self.draw(records)
        return any(self.waiting(uid) for uid in self.logs)

    def can_get_more(self) -> bool:
        """Return whether a source that ends by itself is still open. Such a source waits briefly when it is read."""
        return any(drawn.source.may_end and not at_end(drawn.source, drawn.positions) for drawn in self._drawn.values())

    def draw(self, records: int | None) -> None:
        """Let Python sources append the records that the next epoch can read to their logs."""
        for uid, drawn in self._drawn.items():
            limit = self._limit(uid, records)
            while limit is None or self.waiting(uid) < limit:
                more = drawn.draw(None if limit is None else limit - self.waiting(uid))
                self.logs[uid].extend(more)
                if not more or not drawn.source.bounded:
                    break

    def take(self, records: int | None) -> None:
        """Select the input of the next epoch: at most ``records`` of each source, and at most its credits."""
        limits = {uid: self._limit(uid, records) for uid in self.logs}
        self.taken = {uid: self.waiting(uid) if limit is None else limit for uid, limit in limits.items()}

    def _limit(self, uid: str, records: int | None) -> int | None:
        granted = self.credits.granted.get(uid)
        return records if granted is None else granted if records is None else min(granted, records)

    def backlog(self, source: str | None = None) -> int | None:
        """Return how many records wait in a source, or None if it cannot tell."""
        uid = self.uid(source)
        waiting = self.waiting(uid)
        if uid not in self._drawn:
            return waiting
        behind = self._drawn[uid].source.backlog(self._drawn[uid].positions)
        return None if behind is None else waiting + behind

    def pending(self, uid: str) -> list[list[Any]]:
        """Return the records of the current epoch, as one list per input partition."""
        start = self._position(uid)
        records = self.logs[uid][start : start + self.taken[uid]]
        count = self.partitions[uid]
        size = -(-len(records) // count) or 1
        return [records[index * size : (index + 1) * size] for index in range(count)]

    def follow(self, storage: Storage) -> None:
        """Advance the logs to the last checkpoint, even if another harness took it."""
        self._begin_where_saved(storage)
        for uid, log in self.logs.items():
            if uid in self._drawn:
                while len(log) < self._position(uid):
                    # Only up to the last checkpoint, because the source can return different records after it.
                    self.draw(0)
            # Records read by another harness on the same storage are unknown here and never needed.
            log.extend([None] * (self._position(uid) - len(log)))

    def with_positions(self, manifest: Manifest, sources: list[str]) -> Manifest:
        """Return the manifest with a log as Spark would write it.

        The log holds the positions of Python sources that have no waiting records.
        """
        if manifest.batch is not None:
            return manifest
        lines = [
            json.dumps(self._drawn[uid].positions) if uid in self._drawn and not self.waiting(uid) else "-"
            for uid in sources
        ]
        log = {} if set(lines) == {"-"} else {_POSITIONS: "\n".join(["v1", "{}", *lines]).encode()}
        return msgspec.structs.replace(manifest, spark_log=log, log_index=dict.fromkeys(log, manifest.id))

    def _begin_where_saved(self, storage: Storage) -> None:
        """Let Python sources resume at their positions in the savepoint that started this lineage."""
        last = self._last()
        if last is None or last.batch is not None or _POSITIONS not in last.log_index:
            return
        first = load(storage, last.log_index[_POSITIONS])[0]
        for uid, line in zip(first.sources, first.spark_log[_POSITIONS].decode().split("\n")[2:], strict=True):
            if line != "-" and not self.logs[uid]:
                self._drawn[uid].positions = json.loads(line)
                self.logs[uid].extend([None] * first.records.get(uid, 0))

    def close(self) -> None:
        """Close the Python sources."""
        for drawn in self._drawn.values():
            drawn.source.close()
