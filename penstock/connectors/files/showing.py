"""The driver's half of FileSink: what a checkpoint decided appears, what nobody needs goes.

A part appears by one rename of a file that is complete and durable. A consumer may take it away at once.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence

from penstock.connectors.files.filesystem import make_directories, remove, remove_if_empty, sync_directory
from penstock.connectors.files.part_files import HIDDEN, FinishedPart, Part, epoch_of, hidden_directory, merge
from penstock.errors import PenstockError
from penstock.state.storage import StorageError


def show(parts: Sequence[tuple[FinishedPart, bool]]) -> None:
    """Each with whether it may have been shown before. All are durable under their names when this returns."""
    for part, again in parts:
        _rename(os.path.join(part.base, part.hidden), os.path.join(part.base, part.final), part.size, again)
    for directory in sorted({os.path.dirname(os.path.join(part.base, part.final)) for part, _ in parts}):
        if os.path.isdir(directory):
            sync_directory(directory)
    # Last: a missing chunk says that everything else was done.
    for part, _ in parts:
        for chunk in part.chunks:
            remove(os.path.join(part.base, chunk))


def _rename(hidden: str, final: str, size: int, again: bool) -> None:
    if not os.path.lexists(hidden):
        # Shown already; if the file is not there, a consumer was faster than the driver that crashed.
        if again or os.path.lexists(final):
            return
        raise StorageError(
            f"'{hidden}', which holds the records of the part file '{final}', is gone. See that nothing else deletes "
            f"files in {HIDDEN} directories, and that driver and executors share the mount."
        )
    if os.path.lexists(final):
        # Names are never used twice, so it is this part: shown before, and written once more by a late attempt.
        if os.path.getsize(final) != size:
            raise PenstockError(
                f"'{final}' exists, with other contents than the part file of that name. It is not overwritten: move "
                f"it away and start the job again."
            )
        remove(hidden)
        return
    make_directories(os.path.dirname(final))
    os.rename(hidden, final)


def show_open_part(part: Part, token: str, name: str) -> None:
    """Show a part that will get no more records. Chunks go last, so a missing one says that it was shown before."""
    final = os.path.join(part.bucket, name)
    chunks = [chunk.path for chunk in part.chunks]
    if not all(os.path.lexists(os.path.join(part.base, chunk)) for chunk in chunks):
        return
    if len(chunks) == 1:
        show([(FinishedPart(part.base, chunks[0], final, part.size, []), True)])
        return
    whole = merge(part.base, part.chunks, f"{HIDDEN}/{token}", part.id)
    sync_directory(hidden_directory(part.base, token))
    show([(FinishedPart(part.base, whole.path, final, part.size, chunks), True)])


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
