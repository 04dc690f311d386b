"""Source positions: splits Spark's log by source and rebuilds it for a program with different sources.

offsets/7      v1 · a line about the batch · one line per source with its position, or `-` if it has none
sources/0/…    files that the source of the first of these lines logged
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
    """Spark's log has an unexpected layout, so positions cannot be assigned to sources.

    Operator action: report it with the Spark version. No savepoint was made; the job continues.
    """


class Line(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """Spark's record of one source."""

    offsets: dict[int, str]
    """The position reached, by batch."""
    files: dict[str, bytes]
    """Files that the source logged, by name."""

    @property
    def position(self) -> str:
        """The position as Spark writes it; empty if nothing was read."""
        text = self.offsets[max(self.offsets)] if self.offsets else _VOID
        return "" if text == _VOID else text


class Positions(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    batches: dict[int, str] = {}
    """The line about each batch in `offsets`, which belongs to no source."""
    lines: dict[str, list[Line]] = {}
    """By source uid. A source has several lines if Spark reads it as several sources, such as two directories."""


def take_apart(log: Mapping[str, bytes], sources: list[str], where: str) -> Positions:
    """Split Spark's log by source. `log`: the files that a restart needs. `sources`: the uid for each line."""
    batches: dict[int, str] = {}
    offsets: list[dict[int, str]] = [{} for _ in sources]
    for path, data in log.items():
        match = _OFFSETS.fullmatch(path)
        if match is None:
            continue
        version, batch, *positions = data.decode().split("\n")
        if version != _VERSION or len(positions) != len(sources):
            raise UnknownLog(
                f"'{path}' in Spark's log in {where} has format {version!r} and {len(positions)} sources, but "
                f"{_VERSION!r} and {len(sources)} were expected: {sources}. No savepoint was made.",
                fix="Retry after the next checkpoint. If the error recurs, use a separate from_spark for each stream "
                "of a Spark DataFrame.",
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
    """Build the log for a program with these sources, one uid per line, in order.

    New sources start at their beginning. The result is empty if none of the sources has a position.
    """
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
