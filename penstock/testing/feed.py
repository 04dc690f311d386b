"""What a harness feeds to the sources of its job: records wait in logs until an epoch takes them."""

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
    """One log per source, by uid. `last` gives the last checkpoint, which says how much of each log was read."""

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
        """How many records of each source the epoch in progress reads."""
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
        """Of the source with this uid or name; None for the only one."""
        if source is None:
            if len(self.logs) != 1:
                raise PenstockError(
                    f"The program has {len(self.logs)} sources: say which with source=, by uid or name."
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
        """How many records of a source's log no checkpoint holds."""
        return len(self.logs[uid]) - self._position(uid)

    def anything_waits(self, records: int | None) -> bool:
        """Whether an epoch of at most `records` per source would read any."""
        self.draw(records)
        return any(self.waiting(uid) for uid in self.logs)

    def may_get_more(self) -> bool:
        """Whether a source that ends by itself has not done so; it waits a moment itself, when it is asked for more."""
        return any(drawn.source.may_end and not at_end(drawn.source, drawn.positions) for drawn in self._drawn.values())

    def draw(self, records: int | None) -> None:
        """Let Python sources add to their logs what the next epoch may read."""
        for uid, drawn in self._drawn.items():
            limit = self._limit(uid, records)
            while limit is None or self.waiting(uid) < limit:
                more = drawn.draw(None if limit is None else limit - self.waiting(uid))
                self.logs[uid].extend(more)
                if not more or not drawn.source.bounded:
                    break

    def take(self, records: int | None) -> None:
        """Choose what the next epoch reads: at most `records` of each source, and at most its credits."""
        limits = {uid: self._limit(uid, records) for uid in self.logs}
        self.taken = {uid: self.waiting(uid) if limit is None else limit for uid, limit in limits.items()}

    def _limit(self, uid: str, records: int | None) -> int | None:
        granted = self.credits.granted.get(uid)
        return records if granted is None else granted if records is None else min(granted, records)

    def backlog(self, source: str | None = None) -> int | None:
        """How many records wait in a source; None where it cannot say."""
        uid = self.uid(source)
        waiting = self.waiting(uid)
        if uid not in self._drawn:
            return waiting
        behind = self._drawn[uid].source.backlog(self._drawn[uid].positions)
        return None if behind is None else waiting + behind

    def pending(self, uid: str) -> list[list[Any]]:
        """The records of the epoch in progress, one list per input partition."""
        start = self._position(uid)
        records = self.logs[uid][start : start + self.taken[uid]]
        count = self.partitions[uid]
        size = -(-len(records) // count) or 1
        return [records[index * size : (index + 1) * size] for index in range(count)]

    def follow(self, storage: Storage) -> None:
        """Bring the logs to where the last checkpoint is, whoever made it."""
        self._begin_where_saved(storage)
        for uid, log in self.logs.items():
            if uid in self._drawn:
                while len(log) < self._position(uid):
                    # What the last checkpoint holds and no more: the source may have changed its mind about the rest.
                    self.draw(0)
            # What another harness on the same storage has read is not here, and will not be asked for.
            log.extend([None] * (self._position(uid) - len(log)))

    def with_positions(self, manifest: Manifest, sources: list[str]) -> Manifest:
        """With a log as Spark would have written it: where Python sources are that no record waits of."""
        if manifest.batch is not None:
            return manifest
        lines = [
            json.dumps(self._drawn[uid].positions) if uid in self._drawn and not self.waiting(uid) else "-"
            for uid in sources
        ]
        log = {} if set(lines) == {"-"} else {_POSITIONS: "\n".join(["v1", "{}", *lines]).encode()}
        return msgspec.structs.replace(manifest, spark_log=log, log_index=dict.fromkeys(log, manifest.id))

    def _begin_where_saved(self, storage: Storage) -> None:
        """Let Python sources go on where they were in the savepoint that this lineage began with."""
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
