"""An input file as a format reads it, and the errors that describe a bad one."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from lzma import LZMAError
from typing import IO, Any

from penstock.connectors.files.compression import open_bytes
from penstock.errors import PenstockError


class UnreadableFile(PenstockError):
    """A file cannot be read, or has changed. Operator action: restore its original contents, then restart the job."""


class BrokenContents(Exception):
    """The contents of a file are invalid from `position` on. `raw` holds the bytes of the current record, if any."""

    def __init__(self, position: str, raw: bytes, reason: str | Exception) -> None:
        super().__init__(position, raw, reason)
        self.position, self.raw, self.reason = position, raw, reason


class InputFile:
    """A file to read. Formats yield `unreadable(position, raw, reason)` in place of a record they cannot decode."""

    def __init__(
        self, path: str, unreadable: Callable[[str, bytes | str, str | Exception], Any], lenient: bool
    ) -> None:
        self.path = path
        self.unreadable = unreadable
        self.lenient = lenient
        """Whether to replace bytes that are invalid in the charset, as Flink does, instead of rejecting the record."""

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """Open the file for reading decompressed bytes. Raises BrokenContents if the compressed data is damaged."""
        try:
            with open_bytes(self.path) as file:
                yield file
        except FileNotFoundError as error:
            raise gone(self.path) from error
        except (OSError, EOFError, zlib.error, LZMAError) as error:
            # An error of the operating system does not concern the contents, and can be temporary.
            if isinstance(error, OSError) and error.errno is not None:
                raise UnreadableFile(f"The file {self.path} cannot be read: {error}.") from error
            raise self._cut_off(error) from error

    def _cut_off(self, reason: Exception) -> BrokenContents:
        """Locate the last line that can be decompressed, by reading the file again."""
        lines, size, rest = 0, 0, b""
        try:
            with open_bytes(self.path) as file:
                while data := file.read1(1 << 16):  # type: ignore[attr-defined]
                    size += len(data)
                    lines += data.count(b"\n")
                    _, end, last = data.rpartition(b"\n")
                    rest = last if end else rest + data
        except (OSError, EOFError, zlib.error, LZMAError):
            pass
        return BrokenContents(f"from line {lines + 1}, byte {size - len(rest)} on", rest, reason)


def gone(path: str) -> UnreadableFile:
    return UnreadableFile(f"The file {path} is missing.", fix="Keep files in place until they have been read.")
