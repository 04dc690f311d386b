"""Files made wrong: cut off, with one bit changed, gone. And which files of a checkpoint a restart needs."""

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
    return f"cut from {size} to {length} bytes"


def flip(path: Path, dice: random.Random) -> str:
    size = path.stat().st_size
    if not size:
        return "empty, left as it is"
    place, bit = dice.randrange(size), dice.randrange(8)
    with path.open("r+b") as file:
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ (1 << bit)]))
    return f"bit {bit} of byte {place} flipped"


_PAGE = 4096


def flip_pages(path: Path, dice: random.Random) -> str:
    """One bit of each page: a single one would mostly hit what nobody reads any more."""
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
    """The files that hold state; what is only a lock or a guard holds none."""
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
    """The runs of the job, oldest first."""
    return sorted(path.parent for path in checkpoints.glob("*/*/manifests")) if checkpoints.exists() else []


def needed_files(storage: Storage, known: dict[int, Manifest] | None = None) -> list[str]:
    """The names of all that a driver without replicas reads when it goes on, the newest manifest first.

    `known` keeps manifests from one call to the next: they do not change.
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
                # What a block's base holds already is not read.
                if delta.inline is None and any(
                    block not in bases or bases[block].id < manifest.id for block in delta.blocks
                ):
                    deltas.append(delta.name)
        # The newest one's parent is always looked at.
        if not manifest.parent or (manifest.id <= oldest + 1 and manifest is not newest):
            break
        number = manifest.id - 1
        names.append(manifest_name(number))
        if number not in known:
            known[number] = load(storage, number)[0]
        manifest = known[number]
    return names + deltas + sorted({base.name for each in newest.bases.values() for base in each.values() if base.name})


def choose_needed(lineage: Path, dice: random.Random) -> tuple[Path, str]:
    """A file that a restart must read, and what to do to it: `cut`, `flip` or `remove`.

    The newest manifest is not removed: that there was one more checkpoint is then known to nobody.
    """
    names = needed_files(LocalStorage(lineage))
    manifests = [name for name in names if name.startswith("manifests/")][:2]
    others = [name for name in names if name not in manifests]
    name = dice.choice(others if others and dice.random() < 0.6 else manifests)
    how = dice.choice(["cut", "flip"] if name == names[0] else ["cut", "flip", "remove"])
    return lineage / name, how


HOW = {"cut": cut, "flip": flip, "remove": remove}
