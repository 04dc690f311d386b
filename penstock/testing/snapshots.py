"""Reads the committed state of a job from its checkpoint directory, for tests that run after the job has ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock.checkpoint.bases import all_blocks, block_groups
from penstock.checkpoint.lineages import Lineages, SharedStorage
from penstock.checkpoint.manifest import Manifest, latest
from penstock.checkpoint.manifest_chain import ManifestChain
from penstock.errors import PenstockError
from penstock.state.entries import entry_prefix, state_id
from penstock.state.keys import decode_key
from penstock.state.local_storage import LocalStorage
from penstock.state.serializers import serializer_for
from penstock.state.storage import Storage
from penstock.state.ttl import STAMP, timed_name


def newest_lineage(job: str | Path | SharedStorage) -> Storage:
    """Return the storage of the newest run of a job, below ``state.checkpoints.dir``/job name."""
    root = LocalStorage(job) if isinstance(job, (str, Path)) else job
    lineage = Lineages(root).newest()
    if lineage is None:
        raise PenstockError(f"No checkpoint exists in {root.where}.")
    return root.below(lineage)


def last_manifest(storage: Storage) -> Manifest:
    """Return the manifest of the last completed checkpoint."""
    found = latest(storage)
    if found is None:
        raise PenstockError(f"No checkpoint exists in {storage.where}.")
    return found[0]


def read_values(storage: Storage, uid: str, state: str, value_type: Any) -> dict[Any, Any]:
    """Return the value state of every key at the last checkpoint, including expired values."""
    found = latest(storage)
    if found is None:
        return {}
    manifest, version = found
    if uid not in manifest.operators:
        raise PenstockError(f"Checkpoint {manifest.id} holds no operator '{uid}'; it has {sorted(manifest.operators)}.")
    chain = ManifestChain(storage, version)
    decode = serializer_for(value_type).decode
    header = len(entry_prefix(0, 0, b""))
    # With TTL, a timestamp precedes the value.
    skipped = {state_id(state).to_bytes(4, "big"): 0, state_id(timed_name(state)).to_bytes(4, "big"): STAMP.size}
    values = {}
    for block in all_blocks(uid, manifest.blocks[uid]) if uid in manifest.blocks else []:
        for changes in block_groups(chain, uid, block.groups):
            for key, value in changes.entries:
                skip = skipped.get(key[2:6])
                if skip is not None and value is not None:
                    values[decode_key(key[header:])] = decode(value[skip:])
    return values
