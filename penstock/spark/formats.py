"""What Spark's own streaming formats can do: read again what they read before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame

_NOT_REPLAYABLE = {
    "socket": "Spark's socket format keeps what it received in the driver's memory only",
    "memory": "Spark's memory format is in the driver's memory only",
}
_REPLAYABLE = {
    "rate": "Spark's log has when it began, and its rows are made of that",
    "rate-micro-batch": "its rows are made of the offsets in Spark's log",
    "kafka": "Spark's log has the offsets, and the topic keeps the records as long as its retention says",
    "delta": "Spark's log has the table's versions",
}
_FILES = ("parquet", "csv", "json", "text", "orc", "avro", "xml", "binaryfile")


def replayable(frame: DataFrame) -> tuple[bool, str]:
    """Whether all that a streaming DataFrame reads can be read again, and why."""
    told = {name: _told(name) for name in _formats(frame)}
    lost = [why for can, why in told.values() if not can]
    return not lost, "; ".join(lost or [why for _, why in told.values()])


def _told(name: str) -> tuple[bool, str]:
    if name in _NOT_REPLAYABLE:
        return False, _NOT_REPLAYABLE[name]
    if name in _FILES:
        return True, "Spark's log has the files that were read"
    if name in _REPLAYABLE:
        return True, _REPLAYABLE[name]
    return True, f"Spark asks of a format that it reads again from a logged offset; '{name}' is trusted to"


def _formats(frame: DataFrame) -> Iterator[str]:
    leaves: Any = frame._jdf.queryExecution().analyzed().collectLeaves()
    for number in range(leaves.size()):
        leaf = leaves.apply(number)
        if leaf.isStreaming():
            # Of a format with Spark's first interface, and of one with the second.
            name = leaf.dataSource().className() if leaf.nodeName() == "StreamingRelation" else leaf.sourceName()
            yield str(name).lower()
