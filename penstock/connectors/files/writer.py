"""The task's half of FileSink: writes records to hidden chunks and hands complete parts to the driver."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from penstock.common.durable_files import sync_directory
from penstock.common.serialization import BulkWriter, Encoder
from penstock.connectors.files.buckets import BucketContext, check_bucket
from penstock.connectors.files.filesystem import explained, make_directories
from penstock.connectors.files.part_files import (
    HIDDEN,
    Chunk,
    ChunkFile,
    FinishedPart,
    Handles,
    Part,
    Prepared,
    check_chunk,
    decode_part,
    encode,
    hidden_directory,
    merge,
    token_of,
)
from penstock.connectors.sink import SinkWriter
from penstock.errors import PenstockError
from penstock.runtime.context import RuntimeContext
from penstock.runtime.operators import EpochInfo

if TYPE_CHECKING:
    from penstock.connectors.files.file_sink import FileSink

_BATCH = 512
"""Records of a bucket that are buffered, then encoded and written together."""
_WAITING = 200_000
"""Maximum number of buffered records across all buckets; there can be thousands of buckets."""
_FEW = 16
"""Number of chunks of one level that are merged into one. Every manifest lists all chunks; with merging, a part that is
open for a day has a few dozen chunks instead of one per epoch. A byte is copied once per level, two or three times."""


class OpenPart:
    """A part with the data that this epoch adds."""

    __slots__ = ("bulk", "chunk", "pending", "size", "state")

    def __init__(self, state: Part) -> None:
        self.state = state
        self.size = state.size
        self.pending: list[Any] = []
        self.chunk: ChunkFile | None = None
        self.bulk: BulkWriter | None = None


class FileWriter(SinkWriter):
    """Writer without state between epochs: every epoch begins with `restore`."""

    def __init__(self, sink: FileSink, context: RuntimeContext) -> None:
        self._uid = context.uid
        self._subtask = context.get_index_of_this_subtask()
        self._whose = f"Sink '{context.get_task_name()}' (uid '{self._uid}')"
        self._base = sink.base_path
        self._format = sink.format
        self._policy = sink.policy
        self._config = sink.config
        self._assigner = sink.assigner
        self._prepare = sink.format.prepare
        self._batch = _BATCH if isinstance(sink.format, Encoder) else sink.format.batch
        self._part_size = sink.policy.part_size
        self._context = BucketContext()
        self._handles = Handles()
        self._parts: dict[str, OpenPart] = {}
        self._idle: list[Part] = []
        self._present: set[tuple[str, str]] = set()
        """(base path, path) of the chunks that this writer has verified or written."""

    def restore(self, states: list[bytes]) -> None:
        self._discard()
        parts = list(map(decode_part, states))
        self._check_present(parts)
        for part in parts:
            ours = part.base == self._base and part.format == self._format.format
            if ours and part.bucket not in self._parts:
                self._parts[part.bucket] = OpenPart(part)
            else:
                # A second part of a bucket after a rescale, or one of another base path or format: do not append to it.
                self._idle.append(part)

    def _check_present(self, parts: list[Part]) -> None:
        """Verify each chunk once, so that a restored job reports a missing one before it reads a record."""
        before, self._present = self._present, set()
        with explained(f"{self._whose}: checking unfinished files in {self._base}"):
            for part in parts:
                for chunk in part.chunks:
                    if (part.base, chunk.path) not in before:
                        check_chunk(part.base, chunk)
                    self._present.add((part.base, chunk.path))

    def begin_epoch(self, epoch: EpochInfo) -> None:
        self._epoch = epoch
        self._context.now = epoch.timestamp
        self._token = token_of(epoch.lineage, self._uid)
        self._finished: list[FinishedPart] = []
        self._merged: list[str] = []
        self._directories: set[str] = set()
        self._opened = 0
        self._chunks = 0
        self._waiting = 0
        self._ended = False
        self._fixed = self._assigner.bucket_of_epoch(epoch.timestamp)
        self._current: OpenPart | None = None
        """The part that receives all records, if they share one bucket."""

    # 0.16 µs per record for short text lines in one bucket, including encoding, hashing, writing and one sync per
    # million records.
    def write(self, value: Any) -> None:
        part = self._current
        if part is None:
            part = self._part_of(value)
        pending = part.pending
        pending.append(self._prepare(value))
        if len(pending) >= self._batch:
            self._flush(part)

    def end_input(self) -> None:
        self._ended = True

    def prepare_commit(self) -> bytes | None:
        now = self._epoch.timestamp
        with explained(f"{self._whose}: writing to {self._base}"):
            for part in list(self._parts.values()):
                self._flush(part)
            for part in list(self._parts.values()):
                self._seal(part)
                state = part.state
                if self._ended or self._policy.rolls(state.created, state.written, now):
                    self._finish(part.state)
                    del self._parts[state.bucket]
                else:
                    self._merge_chunks(state)
            for state in list(self._idle):
                ours = state.base == self._base and state.format == self._format.format
                if self._ended or not ours or self._policy.rolls(state.created, state.written, now):
                    self._finish(state)
                    self._idle.remove(state)
            for directory in sorted(self._directories):
                sync_directory(directory)
        # Writers without data also report the end: only then does the driver know that no hidden file is needed.
        if self._finished or self._merged or self._ended:
            return encode(
                Prepared(
                    base=self._base, token=self._token, ended=self._ended, parts=self._finished, merged=self._merged
                )
            )
        return None

    def snapshot_state(self) -> list[bytes]:
        return [encode(state) for state in [*(part.state for part in self._parts.values()), *self._idle]]

    def close(self) -> None:
        self._discard()

    def _discard(self) -> None:
        for part in self._parts.values():
            if part.chunk is not None:
                part.chunk.discard()
        self._parts, self._idle = {}, []

    def _part_of(self, value: Any) -> OpenPart:
        bucket = self._fixed
        if bucket is None:
            bucket = self._assigner.get_bucket_id(value, self._context)
            self._waiting += 1
            if self._waiting >= _WAITING:
                self._waiting = 0
                for part in list(self._parts.values()):
                    self._flush(part)
        found = self._parts.get(bucket)
        if found is None:
            found = self._open(bucket)
        if self._fixed is not None:
            self._current = found
        return found

    def _open(self, bucket: str) -> OpenPart:
        """Open a new part. Creates its directory now, so that failures occur before the epoch is committed."""
        check_bucket(bucket, self._whose)
        directory = os.path.join(self._base, bucket) if bucket else self._base
        hidden = hidden_directory(self._base, self._token)
        with explained(f"{self._whose}: making the directory {directory}"):
            make_directories(directory)
            make_directories(hidden)
            if os.stat(directory).st_dev != os.stat(hidden).st_dev:
                raise PenstockError(
                    f"{self._whose}: {directory} is on a different file system than {self._base}, so files cannot be "
                    f"moved there atomically. Make it a directory of the same file system."
                )
        number, self._opened = self._opened, self._opened + 1
        now = self._epoch.timestamp
        part_id = f"{self._epoch.number}-{self._subtask}-{number}"
        part = self._parts[bucket] = OpenPart(
            Part(
                base=self._base,
                format=self._format.format,
                bucket=bucket,
                id=part_id,
                created=now,
                written=now,
                chunks=[],
            )
        )
        return part

    def _flush(self, part: OpenPart) -> None:
        """Write the buffered records. A part that becomes full is finished, and the next one opened."""
        values = part.pending
        if not values:
            return
        part.pending = []
        encoder = self._format
        with explained(f"{self._whose}: writing to {self._base}"):
            if not isinstance(encoder, Encoder):
                self._chunk_of(part)
                assert part.bulk is not None
                part.bulk.write(values)
                return
            chunk = self._chunk_of(part)
            data = encoder.pack(values)
            limit = self._part_size
            if limit is None or part.size + len(data) < limit:
                part.size += chunk.write(data)
                return
            bucket: str = part.state.bucket
            full: OpenPart | None = part
            for value in values:
                if full is None:
                    full = self._open(bucket)
                full.size += self._chunk_of(full).write(encoder.pack([value]))
                if full.size >= limit:
                    self._seal(full)
                    self._finish(full.state)
                    del self._parts[bucket]
                    self._current = full = None

    def _chunk_of(self, part: OpenPart) -> ChunkFile:
        """Return the file for this epoch's records of a part, creating it if necessary."""
        chunk = part.chunk
        if chunk is None:
            make_directories(hidden_directory(self._base, self._token))
            chunk = part.chunk = ChunkFile(self._handles, self._base, self._token, self._label())
            if not isinstance(self._format, Encoder):
                part.bulk = self._format.create(chunk)
            elif not part.state.chunks and self._format.header:
                part.size += chunk.write(self._format.header)
        return chunk

    def _seal(self, part: OpenPart) -> None:
        """Turn this epoch's data into a chunk of the part."""
        chunk = part.chunk
        if chunk is None:
            return
        if part.bulk is not None:
            part.bulk.finish()
        part.chunk = part.bulk = None
        sealed = chunk.seal()
        part.state.chunks.append(sealed)
        self._present.add((part.state.base, sealed.path))
        part.state.written = self._epoch.timestamp
        self._directories.add(hidden_directory(self._base, self._token))

    def _finish(self, part: Part) -> None:
        """Combine a complete part into one file for the driver to commit."""
        if len(part.chunks) == 1:
            whole, chunks = part.chunks[0], []
            # It can be several epochs old, and its loss must be detected before the epoch is committed.
            check_chunk(part.base, whole)
        else:
            whole = self._merge(part, part.chunks)
            chunks = [chunk.path for chunk in part.chunks]
        final = os.path.join(part.bucket, self._config.name(self._token, part.id))
        self._finished.append(
            FinishedPart(base=part.base, hidden=whole.path, final=final, size=whole.size, chunks=chunks)
        )

    def _merge_chunks(self, part: Part) -> None:
        chunks = part.chunks
        while len(chunks) >= _FEW and len({chunk.level for chunk in chunks[-_FEW:]}) == 1:
            merged = self._merge(part, chunks[-_FEW:])
            # An unfinished part is always below this base path: others are finished immediately.
            self._merged += [chunk.path for chunk in chunks[-_FEW:]]
            chunks[-_FEW:] = [merged]

    def _merge(self, part: Part, chunks: list[Chunk]) -> Chunk:
        directory = hidden_directory(part.base, self._token)
        make_directories(directory)
        self._directories.add(directory)
        return merge(part.base, chunks, f"{HIDDEN}/{self._token}", self._label())

    def _label(self) -> str:
        """Return a name for a hidden file, from epoch, subtask and index."""
        number, self._chunks = self._chunks, self._chunks + 1
        return f"{self._epoch.number}-{self._subtask}-{number}"
