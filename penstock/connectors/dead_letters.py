"""Records that a source cannot decode: each fails the job or goes to a side output as a dead letter."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from penstock.errors import PenstockError, SourceLocation
from penstock.runtime.moment import OfSplit
from penstock.runtime.plan import Chain

_SHOWN = 200
"""Bytes of a record that an error message shows: enough to recognize it."""
_CHUNK = 1000
"""Records passed on at a time: enough to amortize the call, few enough to hold in memory."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that could not be decoded, in its original form.

    It has no event time and does not hold back the watermark.
    """

    source: str
    """Name of the source."""
    split: str
    """The part of the source that the record comes from: a file, a topic partition, a stream or a table."""
    position: str
    """Human-readable position in the split, such as ``line 17, byte 2301`` or ``offset 17``."""
    raw: bytes
    """The record's original bytes."""
    reason: str
    """Why the record could not be decoded."""

    @property
    def text(self) -> str:
        """Return ``raw`` as text for display; bytes that are not valid UTF-8 appear as ``\\x..`` escapes."""
        return self.raw.decode(errors="backslashreplace")


class UnreadableRecord(PenstockError):
    """A source cannot decode a record, and the program does not collect dead letters.

    Operator action: repair the record at its origin, or collect dead letters in the program; then restart the job.
    """

    retryable = False


class LetterBox:
    """Implementation of `Source.unreadable`: one per source, in the process that reads it."""

    @staticmethod
    def of(chain: Chain) -> LetterBox:
        """Return the letter box of the chain's source."""
        return LetterBox(chain.source_name, chain.source_uid or "", chain.source_location, chain.dead_letters)

    def __init__(self, name: str, uid: str = "", location: SourceLocation | None = None, wanted: bool = False) -> None:
        self._name, self._uid, self._location = name, uid, location
        self.wanted = wanted
        """Whether the program collects dead letters."""
        self._due = 0
        """Letters created but not yet found among the records."""

    @property
    def who(self) -> str:
        """Return the source's name as error messages show it."""
        return f"Source '{self._name}'" + (f" (uid '{self._uid}')" if self._uid else "")

    def letter(self, split: str, position: str, raw: bytes | str, reason: str | Exception) -> DeadLetter:
        """Return a dead letter for a record, or raise UnreadableRecord if the program does not collect them."""
        data = raw.encode(errors="surrogatepass") if isinstance(raw, str) else bytes(raw)
        why = (str(reason) or type(reason).__name__).strip().rstrip(".")
        if not self.wanted:
            raise UnreadableRecord(
                f"{self.who} cannot read {split}, {position}: {why}."
                + (f"\nThe record: {_shown(data)}" if data else ""),
                fix="Repair the record, or route undecodable records to a side output so that the job continues: "
                "env.from_source(..., dead_letters=tag) and get_side_output(tag), with tag = OutputTag('broken').",
                locations=(self._location,),
            ) from (reason if isinstance(reason, Exception) else None)
        self._due += 1
        return DeadLetter(self._name, split, position, data, why)

    def chunks(self, split: str, records: Iterator[Any]) -> Iterator[OfSplit]:
        """Yield the records of a split in chunks, with dead letters separated out.

        Chunks are scanned for letters only while some are due.
        """
        # A failed read can leave a count behind.
        self._due = 0
        while chunk := list(islice(records, _CHUNK)):
            if not self._due:
                yield OfSplit(split, chunk)
                continue
            letters = [record for record in chunk if type(record) is DeadLetter]
            self._due -= len(letters)
            yield OfSplit(split, [record for record in chunk if type(record) is not DeadLetter], letters=letters)
        if self._due:
            raise PenstockError(
                f"Source '{self._name}' lost {self._due} dead letters of {split}: its read() must yield the result of "
                f"self.unreadable(...) in place of the record."
            )


def _shown(data: bytes) -> str:
    text = " ".join(data[:_SHOWN].decode(errors="backslashreplace").split())
    return text if len(data) <= _SHOWN else f"{text}… ({len(data):,} bytes)"
