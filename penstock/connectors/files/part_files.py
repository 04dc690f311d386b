"""Part files before a reader may see them: what they are called, and how they are written.

Everything of a sink that is not finished is in one hidden directory, `{base path}/.penstock/{token}`. A part grows by
one chunk an epoch; of many chunks one is made now and then. A chunk is written under a name of the attempt's own and
then renamed to one that has its content's hash in it, so that attempts at an epoch never touch each other's files: same
name, same content.
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
    """Records of a part file that is not shown yet are gone, or are not all there.

    Operator action: put the file back that the message names, or start the job from another checkpoint or savepoint.
    Until then no epoch is completed: it would leave these records out.
    """

    retryable = False


class Chunk(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """A hidden file that will not change. `path` is relative to the base path."""

    path: str
    size: int
    level: int = 0
    """0 for what one epoch added; one more than those it was made of for a merged one."""


class Part(msgspec.Struct, array_like=True, kw_only=True):
    """A part file that is not finished: an element of the sink's state."""

    base: str
    format: str
    bucket: str
    id: str
    """`epoch-subtask-number` of when and where it was opened: no other part of this sink and lineage has it."""
    created: int
    written: int
    """The clocks of the epoch that opened it and of the last one that added to it, in milliseconds."""
    chunks: list[Chunk]

    @property
    def size(self) -> int:
        return sum(chunk.size for chunk in self.chunks)


class FinishedPart(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """What the driver needs to show a part: rename one file, then delete the chunks it was made of."""

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
    """Chunks that others have taken the place of."""


encode = msgspec.msgpack.Encoder().encode
decode_part = msgspec.msgpack.Decoder(Part).decode
decode_prepared = msgspec.msgpack.Decoder(Prepared).decode


def token_of(lineage: str, uid: str) -> str:
    """Names one sink of one run of a job: in the names of its parts, and of its hidden directory."""
    return hashlib.blake2b(f"{lineage} {uid}".encode(), digest_size=8).hexdigest()


def hidden_directory(base: str, token: str) -> str:
    return os.path.join(base, HIDDEN, token)


def epoch_of(name: str) -> int | None:
    """The epoch in which a hidden file was made; None for a file that is not ours."""
    number = name.partition("-")[0]
    return int(number) if number.isdecimal() else None


class Handles:
    """At most so many of a writer's files are open at a time. The others are opened again, to append."""

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
    """A chunk being written. `seal` gives it its name; `discard` forgets it."""

    closed = False
    """For pyarrow, which asks before it writes."""

    def __init__(self, handles: Handles, base: str, token: str, label: str) -> None:
        self._handles = handles
        self._base = base
        self._token = token
        self._label = label
        self._path = os.path.join(hidden_directory(base, token), f"{label}-{os.getpid()}-{uuid.uuid4().hex}.writing")
        self._hash = hashlib.blake2b(digest_size=16)
        self.size = 0

    def write(self, data: bytes) -> int:
        """All of it, in as few writes as the system allows."""
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
        """Nothing waits here."""

    def seal(self) -> Chunk:
        """Durable but for its name: the directory is the writer's to sync, once for all."""
        os.fsync(self._handles.of(self._path).fileno())
        self._handles.close(self._path)
        name = f"{HIDDEN}/{self._token}/{self._label}-{self._hash.hexdigest()}.chunk"
        # If the name is there, another attempt wrote the same.
        os.rename(self._path, os.path.join(self._base, name))
        return Chunk(path=name, size=self.size)

    def discard(self) -> None:
        self._handles.close(self._path)
        remove(self._path)


def merge(base: str, chunks: list[Chunk], directory: str, label: str) -> Chunk:
    """Some chunks as one. The name follows from theirs, so every attempt makes the same one."""
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
    """Raise MissingPiece unless the chunk is there, and as long as it was written."""
    path = os.path.join(base, chunk.path)
    try:
        size = os.lstat(path).st_size
    except FileNotFoundError:
        raise _gone(path) from None
    if size != chunk.size:
        raise _cut_off(path, size, chunk.size)


def _gone(path: str) -> MissingPiece:
    return MissingPiece(
        f"'{path}', a piece of an unfinished part file that the last checkpoint names, is gone.",
        fix=f"Put it back, and see that nothing else deletes files in {HIDDEN} directories; or start from another "
        f"checkpoint. A savepoint's pieces are gone when the job that made it has gone on and finished the part.",
    )


def _cut_off(path: str, found: int, size: int) -> MissingPiece:
    return MissingPiece(
        f"'{path}', a piece of an unfinished part file, has {found:,} bytes and not {size:,}.",
        fix="Put it back as it was, or start from another checkpoint.",
    )
