"""CSV lines with their raw bytes, kept until the record that spans them is known to be valid."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from typing import IO

from penstock.common.csv_text import CsvText
from penstock.connectors.files.formats import ends_lines_as_ascii, lines_of


class HeldLines:
    """Raw lines of one record at a time."""

    def __init__(self, charset: str) -> None:
        self._charset = charset
        self._held: list[bytes] = []
        self._number = 0
        self.first = 1
        """Line number of the record's first line."""
        self.wrong: Exception | None = None
        """Why the record cannot be parsed, or one of its lines cannot be decoded."""

    def raw(self) -> bytes:
        return b"".join(self._held)

    def rows(self, data: IO[bytes], text: IO[str], form: CsvText) -> Iterator[list[str]]:
        """Yield the fields of each record, [] for an invalid one. Reads `data` or `text`, two views of one file."""
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
