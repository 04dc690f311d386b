"""Transparent decompression of input files, chosen by file name extension."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Callable
from typing import IO, Any, cast


def open_bytes(path: str) -> IO[bytes]:
    """Open a file for reading decompressed bytes."""
    opener = next((opener for ending, opener in _OPENERS.items() if path.endswith(ending)), None)
    return open(path, "rb") if opener is None else cast(IO[bytes], opener(path))


class _Inflating(io.RawIOBase):
    """A zlib stream, as written by Java's Deflater."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "rb")  # noqa: SIM115  # closed in close()
        self._stream = zlib.decompressobj()
        self._given = 0

    def readable(self) -> bool:
        return True

    def readinto(self, target: Any) -> int:
        data = b""
        while not data and not self._stream.eof:
            more = self._stream.unconsumed_tail or self._file.read(io.DEFAULT_BUFFER_SIZE)
            if not more:
                raise EOFError("the compressed data is truncated")
            data = self._stream.decompress(more, len(target))
        target[: len(data)] = data
        self._given += len(data)
        return len(data)

    def tell(self) -> int:
        return self._given

    def close(self) -> None:
        self._file.close()
        super().close()


def _inflate(path: str) -> IO[bytes]:
    return cast(IO[bytes], io.BufferedReader(_Inflating(path)))


_OPENERS: dict[str, Callable[[str], Any]] = {
    ".gz": gzip.open,
    ".gzip": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
    ".deflate": _inflate,
    ".zz": _inflate,
}
