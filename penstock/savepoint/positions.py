"""Source positions: Spark's log taken apart by source, and put together for a program whose sources are others.

offsets/7      v1 · a line of the batch · for each source a line with its position, `-` where it has none
sources/0/…    what the source of the first of these lines logged itself
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from penstock.errors import PenstockError

_VERSION = "v1"
_VOID = "-"
_OFFSETS = re.compile(r"offsets/(\d+)")
_SOURCES = re.compile(r"sources/(\d+)/(.+)")


class UnknownLog(PenstockError):
    """Spark's log is not laid out as expected, so nobody can tell whose positions are where.

    Operator action: report it with the version of Spark. No savepoint was made; the job goes on.
    """


class Line(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """What Spark knows of one of its sources."""

    offsets: dict[int, str]
    """By batch: how far it had been read."""
    files: dict[str, bytes]
    """What it logged itself, by name."""

    @property
    def position(self) -> str:
        """As Spark writes it; empty where nothing was read."""
        text = self.offsets[max(self.offsets)] if self.offsets else _VOID
        return "" if text == _VOID else text


class Positions(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    batches: dict[int, str] = {}
    """The line of each batch in `offsets`, which is no source's."""
    lines: dict[str, list[Line]] = {}
    """By source uid. A source has several where Spark reads it as several, such as two directories."""


def take_apart(log: Mapping[str, bytes], sources: list[str], where: str) -> Positions:
    """`log`: the files that a restart needs; `sources`: the uid each line belongs to."""
    batches: dict[int, str] = {}
    offsets: list[dict[int, str]] = [{} for _ in sources]
    for path, data in log.items():
        match = _OFFSETS.fullmatch(path)
        if match is None:
            continue
        version, batch, *positions = data.decode().split("\n")
        if version != _VERSION or len(positions) != len(sources):
            raise UnknownLog(
                f"'{path}' of Spark's log, in {where}, has format {version!r} and {len(positions)} sources; expected "
                f"are {_VERSION!r} and {len(sources)}: {sources}. No savepoint was made.",
                fix="Try again after the next checkpoint; if it comes again, give each stream of a Spark DataFrame a "
                "from_spark of its own.",
            )
        batches[int(match[1])] = batch
        for line, position in zip(offsets, positions, strict=True):
            line[int(match[1])] = position
    files: list[dict[str, bytes]] = [{} for _ in sources]
    for path, data in log.items():
        match = _SOURCES.fullmatch(path)
        if match is not None:
            files[int(match[1])][match[2]] = data
    lines: dict[str, list[Line]] = {}
    for uid, its_offsets, its_files in zip(sources, offsets, files, strict=True):
        lines.setdefault(uid, []).append(Line(offsets=its_offsets, files=its_files))
    return Positions(batches=batches, lines=lines)


def put_together(positions: Positions, sources: list[str]) -> dict[str, bytes]:
    """The log for a program with these sources, one uid for each line, in their order. What was not there before
    begins at its beginning. Empty where no source was there."""
    waiting = {uid: list(lines) for uid, lines in positions.lines.items()}
    known = [waiting[uid].pop(0) if waiting.get(uid) else Line(offsets={}, files={}) for uid in sources]
    if not any(line.position for line in known):
        return {}
    log = {
        f"offsets/{batch}": "\n".join([_VERSION, text, *(line.offsets.get(batch, _VOID) for line in known)]).encode()
        for batch, text in positions.batches.items()
    }
    for number, line in enumerate(known):
        log |= {f"sources/{number}/{name}": data for name, data in line.files.items()}
    return log
