"""Write-ahead log of a sink: a writer logs records in its task, and the driver sends them at commit.

::

    class Letters(SinkWriter):
        def __init__(self, context):
            self.log = WriteAhead(context)
            self.letters = []

        def begin_epoch(self, epoch):
            self.log.begin(epoch)

        def write(self, value):
            self.letters.append(value)        # and call self.log.add(...) for every few thousand records

        def prepare_commit(self):
            self.log.add(json.dumps(self.letters).encode())
            self.letters = []
            return self.log.seal()

    def commit(self, commits, context):       # of the sink
        for commit in commits:
            for chunk in written_ahead(commit, context):
                send(json.loads(chunk))

Small logs are stored inline in the manifest, larger ones in files next to the deltas of the lineage
(`checkpoint/wal.py`). If checkpoints are kept in driver memory, everything is inline.
"""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Iterator

import msgspec
from xxhash import xxh3_64_intdigest, xxh3_128

from penstock.checkpoint.wal import wal_name
from penstock.driver.committing import Commit, CommitContext
from penstock.errors import PenstockError
from penstock.runtime.context import RuntimeContext
from penstock.runtime.operators import EpochInfo
from penstock.state.files import RESTORE, CorruptFile
from penstock.state.storage import MissingObject, Storage

_HEAD = struct.Struct("<QQ")
"""Header of each chunk: length and checksum."""
_IN_MEMORY = 4 << 20
"""Bytes kept in memory before spooling to a temporary file."""
PIECE = 64 << 20
"""Size at which a file is closed after the current chunk; object stores read and write complete files."""


class Piece(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """A run of chunks, stored in a file of the lineage or inline."""

    name: str
    size: int
    chunks: int
    inline: bytes | None


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Piece]).decode


class WriteAhead:
    """The writer's side of the log. In each epoch call ``begin``, ``add`` for every chunk, and ``seal``."""

    def __init__(self, context: RuntimeContext) -> None:
        self._whose = context.described()
        self._epoch: EpochInfo | None = None

    def begin(self, epoch: EpochInfo) -> None:
        """Begin an epoch and discard an unsealed one."""
        self._epoch = epoch
        self._pieces: list[Piece] = []
        self._renew()

    def add(self, chunk: bytes) -> None:
        """Append a chunk: the bytes of many records, because each chunk costs 16 bytes and 0.8 µs."""
        if self._epoch is None or not isinstance(chunk, bytes):
            raise PenstockError(
                f"The write-ahead log of {self._whose} accepts bytes, between begin(epoch) and seal(); got "
                f"{type(chunk).__name__}."
            )
        head = _HEAD.pack(len(chunk), xxh3_64_intdigest(chunk))
        for part in (head, chunk):
            self._hash.update(part)
            self._spool.write(part)
        self._size += len(head) + len(chunk)
        self._chunks += 1
        if self._size >= PIECE and self._epoch.storage is not None:
            self._close_piece()

    def seal(self) -> bytes | None:
        """Make the chunks durable.

        Returns:
            The committable for ``written_ahead``, or part of a larger one; None without chunks. The same chunks yield
            the same bytes in every attempt.
        """
        if self._size:
            self._close_piece()
        pieces, self._pieces = self._pieces, []
        return _encode(pieces) if pieces else None

    def _close_piece(self) -> None:
        assert self._epoch is not None
        storage = self._epoch.storage
        self._spool.seek(0)
        if storage is None or self._size <= self._epoch.inline_bytes:
            self._pieces.append(Piece(name="", size=self._size, chunks=self._chunks, inline=self._spool.read()))
        else:
            name = wal_name(self._epoch.number, self._hash.hexdigest())
            storage.write_file(name, self._spool)  # type: ignore[arg-type]  # it reads and seeks like a file
            self._pieces.append(Piece(name=name, size=self._size, chunks=self._chunks, inline=None))
        self._renew()

    def _renew(self) -> None:
        # An unnamed file leaves nothing behind if the process dies.
        self._spool = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY, prefix="penstock-ahead-")  # noqa: SIM115
        self._hash = xxh3_128()
        self._size = self._chunks = 0


def written_ahead(commit: Commit, context: CommitContext) -> Iterator[bytes]:
    """Yield the chunks that one subtask logged in the epoch to commit, in order.

    Call this in ``Sink.commit``, in the driver. Each chunk is yielded after its checksum matches, before later chunks
    are known to exist. To send all or nothing, send the chunks in one transaction.
    """
    for piece in pieces_of(commit.payload):
        if piece.inline is None:
            context.wal.noted(commit.epoch, piece.name)
        whose = f"which sink '{context.uid}' needs to commit epoch {commit.epoch}"
        yield from chunks_of(piece, context.wal.storage, whose)


def pieces_of(payload: bytes) -> list[Piece]:
    """Return the pieces in the output of `WriteAhead.seal`, in order."""
    return _decode(payload)


def payload_of(pieces: list[Piece]) -> bytes:
    return _encode(pieces)


def chunks_of(piece: Piece, storage: Storage | None, whose: str) -> Iterator[bytes]:
    """Yield the verified chunks of a piece. `whose`: who needs it and why, for error messages."""
    if piece.inline is not None:
        view = memoryview(piece.inline)
    else:
        assert storage is not None
        try:
            view = memoryview(storage.view(piece.name))
        except MissingObject:
            raise MissingObject(piece.name, storage.where, whose) from None
    place = found = 0
    if len(view) == piece.size:
        while place + _HEAD.size <= len(view):
            length, checksum = _HEAD.unpack_from(view, place)
            chunk = bytes(view[place + _HEAD.size : place + _HEAD.size + length])
            if len(chunk) != length or xxh3_64_intdigest(chunk) != checksum:
                break
            yield chunk
            found += 1
            place += _HEAD.size + length
    if found != piece.chunks or place != piece.size:
        raise CorruptFile(
            f"'{piece.name or 'a piece of the manifest'}', {whose}, is damaged: it has {len(view):,} bytes and "
            f"{found:,} valid chunks, expected {piece.size:,} bytes and {piece.chunks:,} chunks.",
            fix=RESTORE,
        )
