"""The driver's half of FileSink: makes the parts in a checkpoint visible and removes unneeded files.

A part becomes visible through one rename of a complete, durable file. A consumer can move it away immediately.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from typing import Protocol

from xxhash import xxh3_64_hexdigest

from penstock.common.durable_files import sync_directory
from penstock.connectors.files.filesystem import make_directories, remove, remove_if_empty
from penstock.connectors.files.part_files import (
    HIDDEN,
    FinishedPart,
    MissingPiece,
    Part,
    check_chunk,
    epoch_of,
    hidden_directory,
    merge,
)
from penstock.errors import PenstockError
from penstock.state.storage import Storage


class NamesParts(Protocol):
    def name(self, token: str, part: str) -> str: ...


CANCELLED = "cancelled"
"""Takes the place of an epoch number for the open parts of a cancelled job."""


class Notes:
    """Notes in the lineage about visible parts: one for the last epoch and one for a cancelled job.

    A note is written when all parts are known to exist and none is visible yet. If a part is missing later and a note
    exists, the part was visible and a consumer took it. Without a note its records are lost.
    """

    def __init__(self, storage: Storage, uid: str) -> None:
        self.storage = storage
        self._folder = f"shown/{xxh3_64_hexdigest(uid.encode())}/"
        self._last = ""

    def begun(self, epoch: int | str) -> bool:
        return self.storage.exists(self._name(epoch))

    def begin(self, epoch: int | str) -> None:
        """Note that the parts of this epoch are about to become visible; those of earlier epochs already are."""
        name = self._name(epoch)
        self.storage.write(name, b"shown")
        if self._last and self._last != name:
            self.storage.delete(self._last)
        self._last = name

    def forget(self, epoch: int) -> None:
        """Remove the notes that dead drivers left for earlier epochs."""
        for name in self.storage.list(self._folder):
            if name < self._name(epoch):
                self.storage.delete(name)

    def _name(self, epoch: int | str) -> str:
        return f"{self._folder}{epoch:012d}" if isinstance(epoch, int) else f"{self._folder}{epoch}"


def show(parts: Sequence[FinishedPart], shown: bool) -> None:
    """Move all parts durably to their final names. `shown`: a missing part was visible before."""
    for part in parts:
        _rename(part, shown)
    for directory in sorted({os.path.dirname(os.path.join(part.base, part.final)) for part in parts}):
        if os.path.isdir(directory):
            sync_directory(directory)
    for part in parts:
        for chunk in part.chunks:
            remove(os.path.join(part.base, chunk))


def check_parts(parts: Sequence[FinishedPart]) -> None:
    """Raise MissingPiece unless each part exists, hidden or under its final name."""
    for part in parts:
        if not os.path.lexists(os.path.join(part.base, part.hidden)):
            _check_final(part)


def _check_final(part: FinishedPart) -> None:
    hidden, final = os.path.join(part.base, part.hidden), os.path.join(part.base, part.final)
    if not os.path.lexists(final):
        raise MissingPiece(
            f"'{hidden}', which holds the records of the part file '{final}', is missing.",
            fix=f"Restore the file. Make sure that nothing else deletes files in {HIDDEN} directories, and that the "
            f"driver and the executors share the mount.",
        )
    if os.path.getsize(final) != part.size:
        raise PenstockError(
            f"'{final}' already exists with different contents than the part file of that name, and is not "
            f"overwritten. Move it away and restart the job."
        )


def _rename(part: FinishedPart, shown: bool) -> None:
    hidden, final = os.path.join(part.base, part.hidden), os.path.join(part.base, part.final)
    if not os.path.lexists(hidden):
        if not shown:
            _check_final(part)
        return
    if os.path.lexists(final):
        # Names are unique, so this is the same part: visible already, and written again by a late attempt.
        _check_final(part)
        remove(hidden)
        return
    make_directories(os.path.dirname(final))
    os.rename(hidden, final)


def show_open_parts(parts: Sequence[Part], token: str, config: NamesParts, notes: Notes) -> None:
    """Make parts visible that receive no more records.

    If pieces are missing and their parts were not visible before, handle all other parts, then raise the first error.
    """
    missing = [(part, error) for part in parts if (error := _missing(part)) is not None]
    if not missing:
        notes.begin(CANCELLED)
    lost = [error for _, error in missing if not notes.begun(CANCELLED)]
    for part in parts:
        if not any(part is each for each, _ in missing):
            _show_open_part(part, token, os.path.join(part.bucket, config.name(token, part.id)))
    if lost:
        raise lost[0]


def _missing(part: Part) -> MissingPiece | None:
    try:
        for chunk in part.chunks:
            check_chunk(part.base, chunk)
    except MissingPiece as error:
        return error
    return None


def _show_open_part(part: Part, token: str, final: str) -> None:
    # Pieces are removed last: a part with all of its pieces might be visible already, one with a missing piece is.
    chunks = [chunk.path for chunk in part.chunks]
    if len(chunks) == 1:
        show([FinishedPart(base=part.base, hidden=chunks[0], final=final, size=part.size, chunks=[])], shown=True)
        return
    whole = merge(part.base, part.chunks, f"{HIDDEN}/{token}", part.id)
    sync_directory(hidden_directory(part.base, token))
    show([FinishedPart(base=part.base, hidden=whole.path, final=final, size=part.size, chunks=chunks)], shown=True)


def sweep(base: str, token: str, epoch: int | None = None, needed: Collection[str] = ()) -> None:
    """Delete the hidden files of one sink and lineage: the unneeded ones up to `epoch`, or all."""
    directory = hidden_directory(base, token)
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return
    for name in names:
        made = epoch_of(name)
        if made is not None and (epoch is None or made <= epoch) and f"{HIDDEN}/{token}/{name}" not in needed:
            remove(os.path.join(directory, name))
    if epoch is None:
        remove_if_empty(directory)
        remove_if_empty(os.path.dirname(directory))
