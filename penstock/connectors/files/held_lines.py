"""Lines of CSV that can still be had as they came: a record may have several, and is known to be broken only later."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from typing import IO

from penstock.common.csv_text import CsvText
from penstock.connectors.files.formats import ends_lines_as_ascii, lines_of


class HeldLines:
    """Holds the lines of one record at a time."""

    def __init__(self, charset: str) -> None:
        self._charset = charset
        self._held: list[bytes] = []
        self._number = 0
        self.first = 1
        """The number of the record's first line."""
        self.wrong: Exception | None = None
        """Why the record cannot be taken apart, or a line of it not decoded."""

    def raw(self) -> bytes:
        return b"".join(self._held)

    def rows(self, data: IO[bytes], text: IO[str], form: CsvText) -> Iterator[list[str]]:
        """The fields of each record; none of one that is wrong. `data` or `text` is read, two views of one file."""
        reader = csv.reader(
            self._decoded(data) if ends_lines_as_ascii(self._charset) else self._encoded(text), **form.options()
        )
        while True:
            self._held.clear()
            self.wrong = None
            self.first = self._number + 1
            try:
                row = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                self.wrong = error
            yield [] if self.wrong is not None else row

    def _decoded(self, data: IO[bytes]) -> Iterator[str]:
        for line in lines_of(data):
            self._hold(line)
            try:
                yield line.decode(self._charset)
            except UnicodeDecodeError as error:
                self.wrong = error
                yield line.decode(self._charset, "replace")

    def _encoded(self, text: IO[str]) -> Iterator[str]:
        for line in text:
            self._hold(line.encode())
            yield line

    def _hold(self, line: bytes) -> None:
        self._held.append(line)
        self._number += 1
