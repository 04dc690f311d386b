"""Bases: the complete state of a block in one file, merged from the previous base and its deltas.

A block gets a new base when its deltas outgrow the old one. The bytes written for bases therefore stay proportional to
the bytes written for deltas, and a new replica reads at most about three times the state.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec
from msgspec.structs import replace

from penstock.checkpoint.base_runs import BaseRuns, Part
from penstock.checkpoint.expiry import left_out_of_bases
from penstock.checkpoint.manifest import BaseHandle, Manifest, Version, load
from penstock.checkpoint.manifest_chain import ManifestChain
from penstock.state.blocks import FEWEST, Blocks
from penstock.state.entries import state_id
from penstock.state.files import GroupChanges, merge_changes, read_changes, write_changes
from penstock.state.replica import StateHistory
from penstock.state.storage import Storage

LONGEST_WALK = 500
"""Epochs after which a block gets a base regardless of changes: a new replica walks all manifests since its base."""


SAVED_STATE = "state"
"""The folder of a savepoint's bases."""


def base_folder(number: int) -> str:
    """Return the folder of the bases of one checkpoint."""
    return f"bases/{number:012d}"


class Block(msgspec.Struct, array_like=True, frozen=True, kw_only=True, gc=False):
    """A block of an operator's state."""

    uid: str
    number: int
    blocks: Blocks
    """All blocks of the operator."""

    @property
    def groups(self) -> range:
        """The key groups of the block."""
        return self.blocks.groups(self.number)


def all_blocks(uid: str, blocks: Blocks) -> list[Block]:
    """Return the blocks of an operator."""
    return [Block(uid=uid, number=number, blocks=blocks) for number in blocks.numbers]


def merge_block(storage: Storage, version: Version, block: Block, into: Storage | None = None) -> BaseHandle:
    """Write a base of the block as of `version`. Its name is derived from its content, so writing it is idempotent.

    `into` is the savepoint that the base is for, if any; otherwise it belongs to the lineage.
    """
    groups = block_groups(ManifestChain(storage, version), block.uid, block.groups)
    expired = left_out_of_bases(load(storage, version.id, version.digest)[0], block.uid)
    if expired is not None:
        groups = map(expired.rest, groups)
    with tempfile.TemporaryFile(prefix="penstock-base-") as file:
        written = write_changes((group for group in groups if group.entries), file)
        if not written.entries:
            return BaseHandle(id=version.id, name="", size=0, end=block.groups.stop)
        name = f"{base_folder(version.id) if into is None else SAVED_STATE}/{written.digest}.arrow"
        file.seek(0)
        (storage if into is None else into).write_file(name, file)
        return BaseHandle(id=version.id, name=name, size=written.size, end=block.groups.stop)


def block_groups(history: StateHistory, uid: str, groups: range) -> Iterator[GroupChanges]:
    """Yield the complete state of the key groups of a block at the wanted version, as changes to an empty replica, one
    key group at a time to limit memory."""
    steps = history.steps(uid, groups, None) or []
    streams = [read_changes(step.data, step.groups, name=step.name) for step in steps]
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

    A block needs one if its deltas since the last base exceed both twice the base and its part of `at_least` bytes, or
    if the base is more than `LONGEST_WALK` checkpoints old. `at_least` is for a sixteenth of the operator: for each of
    many blocks, it would make walks longer the more subtasks the operator has.
    """
    found = []
    runs = _runs(last)
    for block in blocks:
        since = last.since_base.get(block.uid, {}).get(block.number, 0)
        if not since and not expires(last, block, runs[block.uid]):
            continue
        bases = [part.base for part in runs[block.uid].parts(block.groups)]
        size = sum(base.size for base in bases if base is not None)
        behind = last.id - min(0 if base is None else base.id for base in bases)
        least = at_least * FEWEST // max(block.blocks.count, FEWEST)
        if since > max(2 * size, least) or behind > LONGEST_WALK:
            found.append((since / (size + 1), block))
    found.sort(key=lambda each: -each[0])
    return [block for _, block in found]


def expires(last: Manifest, block: Block, runs: BaseRuns | None = None) -> bool:
    """Return whether a new base of an unchanged block could omit expired entries. `runs`: the operator's bases."""
    if left_out_of_bases(last, block.uid) is None:
        return False
    runs = runs or BaseRuns(last.bases.get(block.uid, {}))
    return any(base is not None and base.name for _, base in runs.parts(block.groups))


def carried_on(
    last: Manifest, blocks: list[Block], merged: dict[Block, BaseHandle], longest_walk: int = LONGEST_WALK // 2
) -> dict[str, dict[int, BaseHandle]]:
    """Return the bases that the manifest after `last` announces.

    A block that has not changed since its base has the same base at `last`; the handle is moved there when the walk to
    it gets long.
    """
    runs = _runs(last)
    newer: dict[str, dict[int, BaseHandle]] = {}
    for block in blocks:
        handle = merged.get(block)
        if handle is not None:
            newer.setdefault(block.uid, {})[block.groups.start] = handle
        elif block.number not in last.since_base.get(block.uid, {}):
            parts = runs[block.uid].parts(block.groups)
            if not any(base is not None and base.name for _, base in parts):
                parts = [Part(block.groups, None)]
            for groups, base in parts:
                base = base or BaseHandle(id=0, name="", size=0)
                far = last.id - base.id > longest_walk
                if not base.name or (far and not expires(last, block, runs[block.uid])):
                    moved = replace(base, id=last.id, end=groups.stop)
                    newer.setdefault(block.uid, {})[groups.start] = moved
    return last.bases | {uid: runs[uid].replaced(handles) for uid, handles in newer.items()}


def oldest_walk(manifest: Manifest) -> int:
    """Return the checkpoint below which replicas at `manifest` need no manifests."""
    ids = [base.id for handles in manifest.bases.values() for base in handles.values()]
    runs = _runs(manifest)
    for uid, changed in manifest.since_base.items():
        if not all(runs[uid].cover(manifest.blocks[uid].groups(block)) for block in changed):
            return 0
    return min(ids, default=manifest.id)


def _runs(manifest: Manifest) -> dict[str, BaseRuns]:
    uids = manifest.bases.keys() | manifest.blocks.keys()
    return {uid: BaseRuns(manifest.bases.get(uid, {})) for uid in uids}


def largest_state(storage: Storage, bases: list[BaseHandle], states: Iterable[str]) -> str:
    """Return the operator's state that takes up most of its bases."""
    names = {state_id(name): name for name in states}
    sizes: Counter[int] = Counter()
    for base in bases:
        for group in read_changes(storage.read(base.name), name=base.name) if base.name else ():
            for key, value in group.entries:
                sizes[int.from_bytes(key[2:6], "big")] += len(key) + len(value or b"")
    return next((names[number] for number, _ in sizes.most_common() if number in names), "timers")
