"""Expired state of an operator at a checkpoint, by the processing time and watermark of its manifest."""

from __future__ import annotations

from collections.abc import Callable

from penstock.checkpoint.manifest import Manifest
from penstock.runtime.watermarks import LEAST
from penstock.state.ttl import Expiry, bases_filter, compaction_filter


def left_out_of_bases(manifest: Manifest, uid: str) -> Expiry | None:
    """Return the entries to omit from bases, or None to keep all."""
    snapshot = manifest.operators.get(uid)
    return None if snapshot is None else bases_filter(snapshot.ttl, manifest.timestamp, _watermark(manifest, uid))


def kept_by_compaction(manifest: Manifest, uid: str) -> Callable[[bytes, bytes], bool] | None:
    """Return a filter of (key, value) for the entries that a replica at this checkpoint must keep; None keeps all."""
    snapshot = manifest.operators.get(uid)
    return None if snapshot is None else compaction_filter(snapshot.ttl, manifest.timestamp, _watermark(manifest, uid))


def visible_at(manifest: Manifest, uid: str) -> Expiry:
    """Return the entries that functions do not see at this checkpoint, by its clock and watermark."""
    snapshot = manifest.operators.get(uid)
    return Expiry({} if snapshot is None else snapshot.ttl, manifest.timestamp, _watermark(manifest, uid))


def _watermark(manifest: Manifest, uid: str) -> int:
    """Return the lowest watermark of all subtasks: entries expired by then have expired in every subtask."""
    time = manifest.times.get(uid)
    return LEAST if time is None else min(time.subtasks, default=LEAST)
