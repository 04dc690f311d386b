"""Whether Spark's streaming formats are replayable."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame

_NOT_REPLAYABLE = {
    "socket": "Spark's socket format keeps received data in the driver's memory only",
    "memory": "Spark's memory format keeps its data in the driver's memory only",
}
_REPLAYABLE = {
    "rate": "Spark's log has its start time, which determines its rows",
    "rate-micro-batch": "the offsets in Spark's log determine its rows",
    "kafka": "Spark's log has the offsets, and the topic keeps records for its retention time",
    "delta": "Spark's log has the table's versions",
}
_FILES = ("parquet", "csv", "json", "text", "orc", "avro", "xml", "binaryfile")


def replayable(frame: DataFrame) -> tuple[bool, str]:
    """Return whether all sources of a streaming DataFrame are replayable, and why."""
    verdicts = {name: _verdict(name) for name in _formats(frame)}
    lost = [why for can, why in verdicts.values() if not can]
    return not lost, "; ".join(lost or [why for _, why in verdicts.values()])


def _verdict(name: str) -> tuple[bool, str]:
    if name in _NOT_REPLAYABLE:
        return False, _NOT_REPLAYABLE[name]
    if name in _FILES:
        return True, "Spark's log has the files that were read"
    if name in _REPLAYABLE:
        return True, _REPLAYABLE[name]
    return True, f"Spark requires that formats can read again from a logged offset, which is assumed of '{name}'"


def _formats(frame: DataFrame) -> Iterator[str]:
    leaves: Any = frame._jdf.queryExecution().analyzed().collectLeaves()
    for number in range(leaves.size()):
        leaf = leaves.apply(number)
        if leaf.isStreaming():
            # StreamingRelation is a source of data source API v1; the others are v2.
            name = leaf.dataSource().className() if leaf.nodeName() == "StreamingRelation" else leaf.sourceName()
            yield str(name).lower()
