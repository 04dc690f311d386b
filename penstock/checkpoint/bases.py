"""Bases: all of a block's state in one file, merged from the base before and its deltas."""

from __future__ import annotations

from penstock.checkpoint.expiry import left_out_of_bases
from penstock.checkpoint.history import ManifestHistory
from penstock.checkpoint.manifest import BaseHandle, Version, load
from penstock.state.files import GroupChanges, content_name, encode_changes, merge_changes, read_changes
from penstock.state.key_groups import block_count, block_range
from penstock.state.replica import History
from penstock.state.storage import Storage


def merge_bases(storage: Storage, version: Version, uid: str, max_parallelism: int) -> dict[int, BaseHandle]:
    """Write a base of every block of an operator as of `version`. Content-named, so a repeat writes the same."""
    history = ManifestHistory(storage, version)
    bases = {}
    expired = left_out_of_bases(load(storage, version.id, version.digest)[0], uid)
    for block in range(block_count(max_parallelism)):
        merged = block_state(history, uid, block, max_parallelism)
        if expired is not None:
            merged = [expired.rest(changes) for changes in merged]
        if any(changes.entries for changes in merged):
            data = encode_changes(merged)
            name = f"bases/{version.id:012d}/{content_name(data)}.arrow"
            storage.write(name, data)
            bases[block] = BaseHandle(version.id, name, len(data))
        else:
            bases[block] = BaseHandle(version.id, "", 0)
    return bases


def block_state(history: History, uid: str, block: int, max_parallelism: int) -> list[GroupChanges]:
    """All of a block's state at the wanted version, by key group, as what would be put into an empty replica."""
    layers: dict[int, list[GroupChanges]] = {}
    for step in history.steps(uid, block, None) or []:
        for changes in read_changes(step.data, block_range(block, max_parallelism), name=step.name):
            layers.setdefault(changes.group, []).append(changes)
    return [merge_changes(layers[group], as_base=True) for group in sorted(layers)]
