"""What of an operator's state has expired at a checkpoint, by the clock and the watermark of its manifest."""

from __future__ import annotations

from collections.abc import Callable

from penstock.checkpoint.manifest import Manifest
from penstock.runtime.watermarks import LEAST
from penstock.state.ttl import Expiry, bases_filter, compaction_filter


def left_out_of_bases(manifest: Manifest, uid: str) -> Expiry | None:
    """None where bases hold all there is."""
    snapshot = manifest.operators.get(uid)
    return None if snapshot is None else bases_filter(snapshot.ttl, manifest.timestamp, _watermark(manifest, uid))


def kept_by_compaction(manifest: Manifest, uid: str) -> Callable[[bytes, bytes], bool] | None:
    """Given an entry's key and value: whether a replica at this checkpoint must keep it. None: it must keep all."""
    snapshot = manifest.operators.get(uid)
    return None if snapshot is None else compaction_filter(snapshot.ttl, manifest.timestamp, _watermark(manifest, uid))


def _watermark(manifest: Manifest, uid: str) -> int:
    """The least of all subtasks: in any of them, what has expired by then has."""
    time = manifest.times.get(uid)
    return LEAST if time is None else min(time.subtasks, default=LEAST)
