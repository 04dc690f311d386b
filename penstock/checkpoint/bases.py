"""Bases: the complete state of a block in one file, merged from the previous base and its deltas.

A block gets a new base when its deltas outgrow the old one. The bytes written for bases therefore stay proportional to
the bytes written for deltas, and a new replica reads at most about three times the state.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec

from penstock.checkpoint.expiry import left_out_of_bases
from penstock.checkpoint.manifest import BaseHandle, Manifest, Version, load
from penstock.checkpoint.manifest_chain import ManifestChain
from penstock.graph.physical import PhysicalGraph
from penstock.state.entries import state_id
from penstock.state.files import GroupChanges, merge_changes, read_changes, write_changes
from penstock.state.key_groups import block_count, block_range
from penstock.state.replica import StateHistory
from penstock.state.storage import Storage

LONGEST_WALK = 500
"""Epochs after which a block gets a base regardless of changes: a new replica walks all manifests since its base."""


SAVED_STATE = "state"
"""The folder of a savepoint's bases."""


def base_folder(number: int) -> str:
    """Return the folder of the bases of one checkpoint."""
    return f"bases/{number:012d}"


class Block(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """A block of an operator's state, and the number of the operator's key groups."""

    uid: str
    number: int
    max_parallelism: int


def keyed_blocks(graph: PhysicalGraph) -> list[Block]:
    """Return all blocks of all keyed operators."""
    return [
        Block(uid=chain.operators[0].uid, number=number, max_parallelism=chain.max_parallelism)
        for chain in graph.chains
        if chain.operators and chain.operators[0].keyed
        for number in range(block_count(chain.max_parallelism))
    ]


def merge_block(storage: Storage, version: Version, block: Block, into: Storage | None = None) -> BaseHandle:
    """Write a base of the block as of `version`. Its name is derived from its content, so writing it is idempotent.

    `into` is the savepoint that the base is for, if any; otherwise it belongs to the lineage.
    """
    groups = block_groups(ManifestChain(storage, version), block.uid, block.number, block.max_parallelism)
    expired = left_out_of_bases(load(storage, version.id, version.digest)[0], block.uid)
    if expired is not None:
        groups = map(expired.rest, groups)
    with tempfile.TemporaryFile(prefix="penstock-base-") as file:
        written = write_changes((group for group in groups if group.entries), file)
        if not written.entries:
            return BaseHandle(id=version.id, name="", size=0)
        name = f"{base_folder(version.id) if into is None else SAVED_STATE}/{written.digest}.arrow"
        file.seek(0)
        (storage if into is None else into).write_file(name, file)
        return BaseHandle(id=version.id, name=name, size=written.size)


def block_groups(history: StateHistory, uid: str, block: int, max_parallelism: int) -> Iterator[GroupChanges]:
    """Yield a block's complete state at the wanted version, as changes to an empty replica, one key group at a time to
    limit memory."""
    groups = block_range(block, max_parallelism)
    steps = history.steps(uid, block, None) or []
    streams = [read_changes(step.data, groups, name=step.name) for step in steps]
    heads = [next(stream, None) for stream in streams]
    while True:
        group = min((head.group for head in heads if head is not None), default=None)
        if group is None:
            return
        layers = []
        for place, head in enumerate(heads):
            if head is not None and head.group == group:
                layers.append(head)
                heads[place] = next(streams[place], None)
        yield merge_changes(layers, as_base=True)


def due(last: Manifest, blocks: list[Block], at_least: int) -> list[Block]:
    """Return the blocks that need a new base, those that a new replica would gain most from first.

    A block needs one if its deltas since the last base exceed both twice the base and `at_least` bytes, or if the
    base is more than `LONGEST_WALK` checkpoints old.
    """
    found = []
    for block in blocks:
        since = last.since_base.get(block.uid, {}).get(block.number, 0)
        if not since and not expires(last, block):
            continue
        base = last.bases.get(block.uid, {}).get(block.number)
        size = 0 if base is None else base.size
        behind = last.id - (0 if base is None else base.id)
        if since > max(2 * size, at_least) or behind > LONGEST_WALK:
            found.append((since / (size + 1), block))
    found.sort(key=lambda each: -each[0])
    return [block for _, block in found]


def expires(last: Manifest, block: Block) -> bool:
    """Return whether a new base of an unchanged block could omit expired entries."""
    base = last.bases.get(block.uid, {}).get(block.number)
    return base is not None and bool(base.name) and left_out_of_bases(last, block.uid) is not None


def carried_on(
    last: Manifest, blocks: list[Block], merged: dict[Block, BaseHandle], longest_walk: int = LONGEST_WALK // 2
) -> dict[str, dict[int, BaseHandle]]:
    """Return the bases that the manifest after `last` announces.

    A block that has not changed since its base has the same base at `last`; the handle is moved there when the walk to
    it gets long.
    """
    bases = {uid: dict(handles) for uid, handles in last.bases.items()}
    for block in blocks:
        handle = merged.get(block)
        if handle is None and block.number not in last.since_base.get(block.uid, {}):
            before = last.bases.get(block.uid, {}).get(block.number, BaseHandle(id=0, name="", size=0))
            if (last.id - before.id > longest_walk and not expires(last, block)) or not before.name:
                handle = BaseHandle(id=last.id, name=before.name, size=before.size)
        if handle is not None:
            bases.setdefault(block.uid, {})[block.number] = handle
    return bases


def oldest_walk(manifest: Manifest) -> int:
    """Return the checkpoint below which replicas at `manifest` need no manifests."""
    ids = [base.id for handles in manifest.bases.values() for base in handles.values()]
    changed = [
        0 for uid, blocks in manifest.since_base.items() for block in blocks if block not in manifest.bases.get(uid, {})
    ]
    return min([*ids, *changed], default=manifest.id)


def largest_state(storage: Storage, bases: list[BaseHandle], states: Iterable[str]) -> str:
    """Return the operator's state that takes up most of its bases."""
    names = {state_id(name): name for name in states}
    sizes: Counter[int] = Counter()
    for base in bases:
        for group in read_changes(storage.read(base.name), name=base.name) if base.name else ():
            for key, value in group.entries:
                sizes[int.from_bytes(key[2:6], "big")] += len(key) + len(value or b"")
    return next((names[number] for number, _ in sizes.most_common() if number in names), "timers")
