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
    oldest = min(
        (
            newest.bases[uid][block].id if block in newest.bases.get(uid, {}) else 0
            for uid in newest.keyed()
            for block in newest.bases.get(uid, {}).keys() | newest.since_base.get(uid, {}).keys()
        ),
        default=newest.id,
    )
    names = [manifest_name(newest.id)]
    manifest = newest
    deltas: list[str] = []
    while True:
        for uid, snapshot in manifest.operators.items():
            bases = newest.bases.get(uid, {})
            for delta in snapshot.deltas:
                # Deltas that are included in a block's base are not read.
                if delta.inline is None and any(
                    block not in bases or bases[block].id < manifest.id for block in delta.blocks
                ):
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
