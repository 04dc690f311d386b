"""Records that a source cannot decode: an error that shows the record, or a letter in a side output."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from penstock.errors import PenstockError, SourceLocation
from penstock.runtime.moment import OfSplit
from penstock.runtime.plan import Chain

_SHOWN = 200
"""Bytes of a record in an error: enough to know it by, few enough to read."""
_CHUNK = 1000
"""Records handed on at a time: enough that the hand-over costs nothing, few enough to hold."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that could not be decoded, as it came. It has no event time, and no watermark waits for it."""

    source: str
    """The source's name."""
    split: str
    """Which part of the source it is from: a file, a partition of a topic, a stream, a table."""
    position: str
    """Where in the split, in words: `line 17, byte 2301`, `offset 17`."""
    raw: bytes
    reason: str

    @property
    def text(self) -> str:
        """`raw` as text, for eyes: what is no UTF-8 is shown as \\x.."""
        return self.raw.decode(errors="backslashreplace")


class UnreadableRecord(PenstockError):
    """A source has a record that it cannot decode, and the program did not ask for dead letters.

    Operator action: mend the record where it is, or let the program ask for dead letters, and start again.
    """

    retryable = False


class LetterBox:
    """What `Source.unreadable` does: one for each source, in the process that reads it."""

    @staticmethod
    def of(chain: Chain) -> LetterBox:
        """That of the source whose chain it is."""
        return LetterBox(chain.source_name, chain.source_uid or "", chain.source_location, chain.dead_letters)

    def __init__(self, name: str, uid: str = "", location: SourceLocation | None = None, wanted: bool = False) -> None:
        self._name, self._uid, self._location = name, uid, location
        self.wanted = wanted
        """Whether the program asked for dead letters."""
        self._due = 0
        """Letters that were made and not yet seen among the records."""

    @property
    def who(self) -> str:
        """The source, as errors name it."""
        return f"Source '{self._name}'" + (f" (uid '{self._uid}')" if self._uid else "")

    def letter(self, split: str, position: str, raw: bytes | str, reason: str | Exception) -> DeadLetter:
        """Raises UnreadableRecord unless letters are wanted."""
        data = raw.encode(errors="surrogatepass") if isinstance(raw, str) else bytes(raw)
        why = (str(reason) or type(reason).__name__).strip().rstrip(".")
        if not self.wanted:
            raise UnreadableRecord(
                f"{self.who} cannot read {split}, {position}: {why}."
                + (f"\nThe record: {_shown(data)}" if data else ""),
                fix="Mend the record, or let such records go aside and the job go on: "
                "env.from_source(..., dead_letters=tag) and get_side_output(tag), with tag = OutputTag('broken').",
                locations=(self._location,),
            ) from (reason if isinstance(reason, Exception) else None)
        self._due += 1
        return DeadLetter(self._name, split, position, data, why)

    def chunks(self, split: str, records: Iterator[Any]) -> Iterator[OfSplit]:
        """The records of a split in chunks, and the letters among them apart. Without letters nothing is looked at."""
        # A read that failed may have left some.
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
                f"Source '{self._name}' lost {self._due} dead letters of {split}: its read() must give what "
                f"self.unreadable(...) returns in the place of the record."
            )


def _shown(data: bytes) -> str:
    text = " ".join(data[:_SHOWN].decode(errors="backslashreplace").split())
    return text if len(data) <= _SHOWN else f"{text}… ({len(data):,} bytes)"
