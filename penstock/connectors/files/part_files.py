"""Hidden part files: how they are named and written before readers can see them.

All unfinished files of a sink are in one hidden directory, `{base path}/.penstock/{token}`. A part grows by one chunk
per epoch, and chunks are merged from time to time. A chunk is written under a name unique to the attempt, then renamed
to a name that contains the hash of its contents. Attempts at the same epoch therefore never overwrite each other's
files: equal names imply equal contents.
"""

from __future__ import annotations

import hashlib
import os
import uuid
from collections import OrderedDict
from typing import BinaryIO

import msgspec

from penstock.connectors.files.filesystem import remove
from penstock.state.storage import StorageError

HIDDEN = ".penstock"


class MissingPiece(StorageError):
    """Records of a part file that is not yet visible are missing or incomplete.

    Operator action: restore the file named in the message, or start the job from another checkpoint or savepoint. Until
    then no epoch completes, because it would omit these records.
    """

    retryable = False


class Chunk(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """An immutable hidden file. `path` is relative to the base path."""

    path: str
    size: int
    level: int = 0
    """0 for the data of one epoch; a merged chunk is one level above its inputs."""


class Part(msgspec.Struct, array_like=True, kw_only=True):
    """An unfinished part file: an element of the sink's state."""

    base: str
    format: str
    bucket: str
    id: str
    """`epoch-subtask-number` of its creation, unique within this sink and lineage."""
    created: int
    written: int
    """Processing times, in milliseconds, of the epoch that created the part and of the last one that wrote to it."""
    chunks: list[Chunk]

    @property
    def size(self) -> int:
        return sum(chunk.size for chunk in self.chunks)


class FinishedPart(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """What the driver needs to make a part visible: the file to rename, and the chunks to delete afterwards."""

    base: str
    hidden: str
    final: str
    size: int
    chunks: list[str]


class Prepared(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """The committable of one subtask and epoch."""

    base: str
    token: str
    ended: bool
    parts: list[FinishedPart]
    merged: list[str]
    """Chunks that a merged chunk has replaced."""


encode = msgspec.msgpack.Encoder().encode
decode_part = msgspec.msgpack.Decoder(Part).decode
decode_prepared = msgspec.msgpack.Decoder(Prepared).decode


def token_of(lineage: str, uid: str) -> str:
    """Return the id of one sink and lineage, used in the names of its parts and its hidden directory."""
    return hashlib.blake2b(f"{lineage} {uid}".encode(), digest_size=8).hexdigest()


def hidden_directory(base: str, token: str) -> str:
    return os.path.join(base, HIDDEN, token)


def epoch_of(name: str) -> int | None:
    """Return the epoch in which a hidden file was made; None if the file is not ours."""
    number = name.partition("-")[0]
    return int(number) if number.isdecimal() else None


class Handles:
    """Keeps at most `limit` files of a writer open; closed ones are reopened for appending."""

    def __init__(self, limit: int = 64) -> None:
        self._limit = limit
        self._open: OrderedDict[str, BinaryIO] = OrderedDict()

    def of(self, path: str) -> BinaryIO:
        file = self._open.get(path)
        if file is None:
            if len(self._open) >= self._limit:
                self._open.popitem(last=False)[1].close()
            file = self._open[path] = open(path, "ab", buffering=0)  # noqa: SIM115  # closed here, later
        else:
            self._open.move_to_end(path)
        return file

    def close(self, path: str) -> None:
        file = self._open.pop(path, None)
        if file is not None:
            file.close()


class ChunkFile:
    """A chunk being written. `seal` gives it its final name; `discard` deletes it."""

    closed = False
    """Checked by pyarrow before it writes."""

    def __init__(self, handles: Handles, base: str, token: str, label: str) -> None:
        self._handles = handles
        self._base = base
        self._token = token
        self._label = label
        self._path = os.path.join(hidden_directory(base, token), f"{label}-{os.getpid()}-{uuid.uuid4().hex}.writing")
        self._hash = hashlib.blake2b(digest_size=16)
        self.size = 0

    def write(self, data: bytes) -> int:
        """Write all of `data`, in as few system calls as possible."""
        rest = memoryview(data).cast("B")
        length = len(rest)
        self._hash.update(rest)
        file = self._handles.of(self._path)
        while rest:
            rest = rest[file.write(rest) :]
        self.size += length
        return length

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        """Do nothing: writes are unbuffered."""

    def seal(self) -> Chunk:
        """Make the contents durable and rename the file. The writer syncs the directory, once for all chunks."""
        os.fsync(self._handles.of(self._path).fileno())
        self._handles.close(self._path)
        name = f"{HIDDEN}/{self._token}/{self._label}-{self._hash.hexdigest()}.chunk"
        # If the name exists, another attempt wrote the same contents.
        os.rename(self._path, os.path.join(self._base, name))
        return Chunk(path=name, size=self.size)

    def discard(self) -> None:
        self._handles.close(self._path)
        remove(self._path)


def merge(base: str, chunks: list[Chunk], directory: str, label: str) -> Chunk:
    """Merge chunks into one. Its name is derived from theirs, so every attempt produces the same file."""
    digest = hashlib.blake2b("\n".join(chunk.path for chunk in chunks).encode(), digest_size=16).hexdigest()
    name = f"{directory}/{label}-{digest}.chunk"
    path = os.path.join(base, name)
    writing = f"{path.removesuffix('.chunk')}-{os.getpid()}-{uuid.uuid4().hex}.writing"
    try:
        with open(writing, "xb") as target:
            for chunk in chunks:
                _append(target, os.path.join(base, chunk.path), chunk.size)
            target.flush()
            os.fsync(target.fileno())
        os.rename(writing, path)
    finally:
        remove(writing)
    return Chunk(path=name, size=sum(chunk.size for chunk in chunks), level=chunks[-1].level + 1)


def _append(target: BinaryIO, path: str, size: int) -> None:
    copied = 0
    try:
        with open(path, "rb", buffering=0) as source:
            while data := source.read(1 << 20):
                target.write(data)
                copied += len(data)
    except FileNotFoundError:
        raise _gone(path) from None
    if copied != size:
        raise _cut_off(path, copied, size)


def check_chunk(base: str, chunk: Chunk) -> None:
    """Raise MissingPiece unless the chunk exists with its full size."""
    path = os.path.join(base, chunk.path)
    try:
        size = os.lstat(path).st_size
    except FileNotFoundError:
        raise _gone(path) from None
    if size != chunk.size:
        raise _cut_off(path, size, chunk.size)


def _gone(path: str) -> MissingPiece:
    return MissingPiece(
        f"'{path}', a piece of an unfinished part file in the last checkpoint, is missing.",
        fix=f"Restore the file and make sure that nothing else deletes files in {HIDDEN} directories, or start from "
        f"another checkpoint. The pieces of a savepoint are deleted once the job that took it finishes the part.",
    )


def _cut_off(path: str, found: int, size: int) -> MissingPiece:
    return MissingPiece(
        f"'{path}', a piece of an unfinished part file, has {found:,} bytes, expected {size:,}.",
        fix="Restore the original file, or start from another checkpoint.",
    )
