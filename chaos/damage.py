"""Damage files (truncate, flip bits, remove), and find the files of a checkpoint that a restart needs."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

from penstock.checkpoint.manifest import Manifest, latest, load, manifest_name
from penstock.state.local_storage import LocalStorage
from penstock.state.storage import Storage


def cut(path: Path, dice: random.Random) -> str:
    size = path.stat().st_size
    length = dice.randrange(size) if size else 0
    os.truncate(path, length)
    return f"truncated from {size} to {length} bytes"


def flip(path: Path, dice: random.Random) -> str:
    size = path.stat().st_size
    if not size:
        return "empty, left unchanged"
    place, bit = dice.randrange(size), dice.randrange(8)
    with path.open("r+b") as file:
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ (1 << bit)]))
    return f"bit {bit} of byte {place} flipped"


_PAGE = 4096


def flip_pages(path: Path, dice: random.Random) -> str:
    """Flip one bit in each page: a single bit would mostly hit obsolete data."""
    pages = range(0, path.stat().st_size, _PAGE)
    with path.open("r+b") as file:
        for page in pages:
            place = page + dice.randrange(_PAGE)
            file.seek(place)
            byte = file.read(1)
            if byte:
                file.seek(place)
                file.write(bytes([byte[0] ^ (1 << dice.randrange(8))]))
    return f"one bit flipped in each of {len(pages)} pages"


def remove(path: Path, dice: random.Random) -> str:
    path.unlink()
    return "removed"


def replica_files(roots: list[Path]) -> list[Path]:
    """Return the files that contain state, without locks and guards."""
    return sorted(
        path
        for root in roots
        for path in root.rglob("*")
        if path.is_file() and path.name not in ("lock.mdb", "guard", "LOCK") and path.stat().st_size
    )


def drop_replicas(roots: list[Path]) -> None:
    for root in roots:
        shutil.rmtree(root, ignore_errors=True)


def lineages(checkpoints: Path) -> list[Path]:
    """Return the lineages of the job, oldest first."""
    return sorted(path.parent for path in checkpoints.glob("*/*/manifests")) if checkpoints.exists() else []


def needed_files(storage: Storage, known: dict[int, Manifest] | None = None) -> list[str]:
    """Return the names of all files that a driver without replicas reads when it resumes, the newest manifest first.

    `known` caches manifests between calls: they do not change.
    """
    found = latest(storage)
    if found is None:
        return []
    known = {} if known is None else known
    newest, _ = found
    based = {uid: _based(newest, uid) for uid in newest.blocks}
    oldest = min((checkpoint for groups in based.values() for checkpoint in groups.values()), default=newest.id)
    names = [manifest_name(newest.id)]
    manifest = newest
    deltas: list[str] = []
    while True:
        for uid, snapshot in manifest.operators.items():
            for delta in snapshot.deltas:
                groups = [group for block in delta.blocks for group in manifest.blocks[uid].groups(block)]
                # Deltas that are included in a base of all their blocks are not read.
                if delta.inline is None and any(based[uid].get(group, 0) < manifest.id for group in groups):
                    deltas.append(delta.name)
        # The parent of the newest manifest is always read.
        if not manifest.parent or (manifest.id <= oldest + 1 and manifest is not newest):
            break
        number = manifest.id - 1
        names.append(manifest_name(number))
        if number not in known:
            known[number] = load(storage, number)[0]
        manifest = known[number]
    return names + deltas + sorted({base.name for each in newest.bases.values() for base in each.values() if base.name})


def _based(manifest: Manifest, uid: str) -> dict[int, int]:
    """Return the checkpoint of the base of each key group; 0 for one that has changed and has no base."""
    changed = [manifest.blocks[uid].groups(block) for block in manifest.since_base.get(uid, {})]
    based = {group: 0 for groups in changed for group in groups}
    for first, base in manifest.bases.get(uid, {}).items():
        based |= dict.fromkeys(range(first, base.end), base.id)
    return based


def choose_needed(lineage: Path, dice: random.Random) -> tuple[Path, str]:
    """Return a file that a restart must read, and how to damage it: `cut`, `flip` or `remove`.

    The newest manifest is never removed: without it, nothing shows that the checkpoint existed.
    """
    names = needed_files(LocalStorage(lineage))
    manifests = [name for name in names if name.startswith("manifests/")][:2]
    others = [name for name in names if name not in manifests]
    name = dice.choice(others if others and dice.random() < 0.6 else manifests)
    how = dice.choice(["cut", "flip"] if name == names[0] else ["cut", "flip", "remove"])
    return lineage / name, how


HOW = {"cut": cut, "flip": flip, "remove": remove}
