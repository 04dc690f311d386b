"""The sending side of a task: rows that wait until Spark requests them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import IO

from penstock.runtime.rows import ExchangeRow

MEMORY_BUDGET = 64 * 1024 * 1024
"""Bytes of rows that one task holds in memory; the rest is spooled to a local file. The limit is rarely reached: rows
are sent after each batch of input, but one watermark can fire a million windows."""


class Outbox(list[ExchangeRow]):
    """Collects rows from exchanges; `drain` yields them in order. The spool file has no name and is then closed."""

    def __init__(self, budget: int = MEMORY_BUDGET) -> None:
        super().__init__()
        self._budget = budget
        self._held = 0
        self._file: IO[bytes] | None = None
        self._spooled: dict[int, tuple[int, int]] = {}
        """Offset and size of each spooled payload in the file, by index of the row."""

    def append(self, row: ExchangeRow) -> None:
        size = len(row.payload)
        if self._held + size > self._budget:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="penstock-outbox-")  # noqa: SIM115  closed in clear()
            self._spooled[len(self)] = self._file.seek(0, 2), size
            self._file.write(row.payload)
            row = row._replace(payload=b"")
        else:
            self._held += size
        super().append(row)

    def drain(self) -> Iterator[ExchangeRow]:
        """Yield every row, then clear the outbox."""
        for place, row in enumerate(self):
            spooled = self._spooled.get(place)
            if spooled is not None:
                assert self._file is not None
                self._file.seek(spooled[0])
                row = row._replace(payload=self._file.read(spooled[1]))
            yield row
        self.clear()

    def clear(self) -> None:
        super().clear()
        self._held = 0
        self._spooled.clear()
        if self._file is not None:
            self._file.close()
            self._file = None
