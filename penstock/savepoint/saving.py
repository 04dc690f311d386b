"""Makes a savepoint of a completed checkpoint, concurrently with later epochs."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from contextlib import suppress

import msgspec

import penstock
from penstock.checkpoint.base_runs import BaseRuns
from penstock.checkpoint.bases import Block, all_blocks
from penstock.checkpoint.housekeeping import Merge, merge_here
from penstock.checkpoint.job_directories import readable_part
from penstock.checkpoint.lineages import SharedStorage
from penstock.checkpoint.manifest import Manifest, OperatorSnapshot, Version, load
from penstock.common.source_locations import warn
from penstock.common.wall_clock import now_ms
from penstock.graph.physical import PhysicalGraph
from penstock.savepoint.format import (
    FORMAT,
    PREFIX,
    Metadata,
    SavedBlock,
    SavedOperator,
    SavedSource,
    SavepointError,
    dispose_savepoint,
    publish_metadata,
)
from penstock.savepoint.positions import Positions, take_apart
from penstock.state.storage import Storage, StorageError


def make_savepoint(
    directory: SharedStorage,
    job: str,
    graph: PhysicalGraph,
    storage: Storage,
    manifest: Manifest,
    version: Version,
    derived: Collection[str] = (),
    merge: Merge = merge_here,
) -> str:
    """Make a savepoint of the checkpoint `manifest` in a new directory below `directory` and return its path.

    The checkpoint's sinks must have committed, and its files must stay until this returns (`EpochDriver.pinned_last`).
    Can be called from any thread. `derived`: uids that the user did not assign.
    """
    identity = uuid.uuid4().hex[:12]
    target = directory.below(f"{PREFIX}{readable_part(job)}-{identity}")
    snapshots = _snapshots(graph, manifest)
    # An unreadable log must fail before anything is written.
    positions = take_apart(_spark_log(storage, manifest), manifest.sources, storage.where)
    blocks = [
        block
        for uid in sorted(snapshots)
        if uid in manifest.blocks
        for block in all_blocks(uid, manifest.blocks[uid])
        if _might_hold(manifest, block)
    ]
    try:
        handles = merge(storage, version, blocks, target)
        saved: dict[str, dict[int, SavedBlock]] = {}
        for block, handle in zip(blocks, handles, strict=True):
            if handle.name:
                saved.setdefault(block.uid, {})[block.number] = SavedBlock(name=handle.name, size=handle.size)
        metadata = _metadata(identity, job, graph, manifest, snapshots, positions, derived, saved)
        publish_metadata(target, metadata)
    except Exception:
        # Unusable files should not fill a disk that might already be full.
        with suppress(StorageError, SavepointError):
            dispose_savepoint(target)
        raise
    _warn_of_derived_uids(metadata, target.where)
    return target.where


def _metadata(
    identity: str,
    job: str,
    graph: PhysicalGraph,
    manifest: Manifest,
    snapshots: dict[str, OperatorSnapshot],
    positions: Positions,
    derived: Collection[str],
    saved: dict[str, dict[int, SavedBlock]],
) -> Metadata:
    return Metadata(
        format=FORMAT,
        penstock=penstock.__version__,
        id=identity,
        job=job,
        created=now_ms(),
        clock=manifest.timestamp,
        lineage=manifest.lineage,
        checkpoint=manifest.id,
        batch=manifest.batch,
        operators={
            uid: SavedOperator(
                snapshot=each,
                derived_uid=uid in derived,
                blocks=saved.get(uid, {}),
                block_count=manifest.blocks[uid].count if uid in manifest.blocks else 0,
            )
            for uid, each in snapshots.items()
        },
        sources={
            chain.source_uid: SavedSource(
                name=chain.source_name,
                derived_uid=chain.source_uid in derived,
                records=manifest.records.get(chain.source_uid, 0),
                reader=chain.reader or "",
                copied=chain.copied,
            )
            for chain in graph.sources()
            if chain.source_uid is not None
        },
        positions=positions,
        times=manifest.times,
        queryable={name: address for name, address in manifest.queryable.items() if address.uid in snapshots},
    )


def _snapshots(graph: PhysicalGraph, manifest: Manifest) -> dict[str, OperatorSnapshot]:
    snapshots = {}
    for chain in graph.chains:
        for operator in chain.operators:
            known = manifest.operators.get(operator.uid)
            if known is None:
                known = OperatorSnapshot(
                    name=operator.name,
                    parallelism=chain.parallelism,
                    max_parallelism=chain.max_parallelism,
                    states={},
                    deltas=[],
                )
            snapshots[operator.uid] = msgspec.structs.replace(known, deltas=[])
    return snapshots


def _might_hold(manifest: Manifest, block: Block) -> bool:
    parts = BaseRuns(manifest.bases.get(block.uid, {})).parts(block.groups)
    changed = block.number in manifest.since_base.get(block.uid, {})
    return changed or any(base is not None and base.name for _, base in parts)


def _spark_log(storage: Storage, manifest: Manifest) -> dict[str, bytes]:
    holders = {manifest.id: manifest}
    for number in set(manifest.log_index.values()) - {manifest.id}:
        holders[number] = load(storage, number)[0]
    return {path: holders[number].spark_log[path] for path, number in manifest.log_index.items()}


def _warn_of_derived_uids(metadata: Metadata, where: str) -> None:
    operators = [
        f"'{op.snapshot.name}' ({uid})" for uid, op in metadata.operators.items() if op.derived_uid and op.has_state
    ]
    sources = [f"'{source.name}' ({uid})" for uid, source in metadata.sources.items() if source.derived_uid]
    names = ", ".join(operators + sources)
    if names:
        warn(
            f"The savepoint {where} holds state of operators without a uid: {names}. Their uids are derived from the "
            f"program's structure, so the savepoint fits only as long as the structure does not change. Assign uids: "
            f"stream.process(...).uid('name')."
        )
