"""A file as a format reads it, and the words for what is wrong with one."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from lzma import LZMAError
from typing import IO, Any

from penstock.connectors.files.compression import open_bytes
from penstock.errors import PenstockError


class UnreadableFile(PenstockError):
    """A file cannot be read as what it was planned. Operator action: put it back as it was, and start again."""


class BrokenContents(Exception):
    """From `position` on, the contents of a file make no sense. `raw` is what is there of the record at hand."""

    def __init__(self, position: str, raw: bytes, reason: str | Exception) -> None:
        super().__init__(position, raw, reason)
        self.position, self.raw, self.reason = position, raw, reason


class InputFile:
    """`unreadable(position, raw, reason)` gives what a format yields in the place of a record that it cannot decode."""

    def __init__(
        self, path: str, unreadable: Callable[[str, bytes | str, str | Exception], Any], lenient: bool
    ) -> None:
        self.path = path
        self.unreadable = unreadable
        self.lenient = lenient
        """Whether bytes that a charset does not have are replaced, as in Flink; else they make a record unreadable."""

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """Its bytes, decompressed. Raises BrokenContents where the compressed data are damaged or cut off."""
        try:
            with open_bytes(self.path) as file:
                yield file
        except FileNotFoundError as error:
            raise gone(self.path) from error
        except (OSError, EOFError, zlib.error, LZMAError) as error:
            # What the system itself says of a file is no matter of its contents, and may be otherwise next time.
            if isinstance(error, OSError) and error.errno is not None:
                raise UnreadableFile(f"The file {self.path} cannot be read: {error}.") from error
            raise self._cut_off(error) from error

    def _cut_off(self, reason: Exception) -> BrokenContents:
        """Where the last line begins of what can be decompressed, found by reading the file once more."""
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
    return UnreadableFile(f"The file {path} is gone.", fix="Leave a file where it is until it has been read.")
