"""The driver's half of FileSink: what a checkpoint decided appears, what nobody needs goes.

A part appears by one rename of a file that is complete and durable. A consumer may take it away at once.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from typing import Protocol

from xxhash import xxh3_64_hexdigest

from penstock.connectors.files.filesystem import make_directories, remove, remove_if_empty, sync_directory
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
"""In the place of an epoch: open parts of a job that was cancelled."""


class Notes:
    """What the lineage knows of parts that are being shown: one note for the last epoch, and one for a cancelled job.

    A note is written when all parts are known to be there and none has been shown. So a part that is missing later was
    shown if there is a note, and taken by a consumer; without a note its records are lost.
    """

    def __init__(self, storage: Storage, uid: str) -> None:
        self.storage = storage
        self._folder = f"shown/{xxh3_64_hexdigest(uid.encode())}/"
        self._last = ""

    def begun(self, epoch: int | str) -> bool:
        return self.storage.exists(self._name(epoch))

    def begin(self, epoch: int | str) -> None:
        """The parts of this epoch are about to be shown; those of earlier ones have been."""
        name = self._name(epoch)
        self.storage.write(name, b"shown")
        if self._last and self._last != name:
            self.storage.delete(self._last)
        self._last = name

    def forget(self, epoch: int) -> None:
        """Remove what drivers that died have left of earlier epochs."""
        for name in self.storage.list(self._folder):
            if name < self._name(epoch):
                self.storage.delete(name)

    def _name(self, epoch: int | str) -> str:
        return f"{self._folder}{epoch:012d}" if isinstance(epoch, int) else f"{self._folder}{epoch}"


def show(parts: Sequence[FinishedPart], shown: bool) -> None:
    """All parts are durable under their names when this returns. `shown`: a missing one was shown before."""
    for part in parts:
        _rename(part, shown)
    for directory in sorted({os.path.dirname(os.path.join(part.base, part.final)) for part in parts}):
        if os.path.isdir(directory):
            sync_directory(directory)
    for part in parts:
        for chunk in part.chunks:
            remove(os.path.join(part.base, chunk))


def check_parts(parts: Sequence[FinishedPart]) -> None:
    """Raise MissingPiece unless each part is there: hidden, or under its name."""
    for part in parts:
        if not os.path.lexists(os.path.join(part.base, part.hidden)):
            _check_final(part)


def _check_final(part: FinishedPart) -> None:
    hidden, final = os.path.join(part.base, part.hidden), os.path.join(part.base, part.final)
    if not os.path.lexists(final):
        raise MissingPiece(
            f"'{hidden}', which holds the records of the part file '{final}', is gone.",
            fix=f"Put it back. See that nothing else deletes files in {HIDDEN} directories, and that driver and "
            f"executors share the mount.",
        )
    if os.path.getsize(final) != part.size:
        raise PenstockError(
            f"'{final}' exists, with other contents than the part file of that name. It is not overwritten: move "
            f"it away and start the job again."
        )


def _rename(part: FinishedPart, shown: bool) -> None:
    hidden, final = os.path.join(part.base, part.hidden), os.path.join(part.base, part.final)
    if not os.path.lexists(hidden):
        if not shown:
            _check_final(part)
        return
    if os.path.lexists(final):
        # Names are never used twice, so it is this part: shown before, and written once more by a late attempt.
        _check_final(part)
        remove(hidden)
        return
    make_directories(os.path.dirname(final))
    os.rename(hidden, final)


def show_open_parts(parts: Sequence[Part], token: str, config: NamesParts, notes: Notes) -> None:
    """Show parts that will get no more records. Of parts with a missing piece that were not shown before, the first is
    raised as MissingPiece when all others are shown."""
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
    # Pieces are removed last, so a part with all its pieces may have been shown; one with a missing piece was.
    chunks = [chunk.path for chunk in part.chunks]
    if len(chunks) == 1:
        show([FinishedPart(base=part.base, hidden=chunks[0], final=final, size=part.size, chunks=[])], shown=True)
        return
    whole = merge(part.base, part.chunks, f"{HIDDEN}/{token}", part.id)
    sync_directory(hidden_directory(part.base, token))
    show([FinishedPart(base=part.base, hidden=whole.path, final=final, size=part.size, chunks=chunks)], shown=True)


def sweep(base: str, token: str, epoch: int | None = None, needed: Collection[str] = ()) -> None:
    """Delete the hidden files of one sink and run: those up to an epoch that are not needed, or all."""
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
