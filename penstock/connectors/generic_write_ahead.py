"""Flink's GenericWriteAheadSink: records wait in a write-ahead log and are sent once their checkpoint is complete."""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import msgspec
import pyarrow as pa
from xxhash import xxh3_64_hexdigest

from penstock.common.typeinfo import TypeSpec
from penstock.connectors.sink import AT_LEAST_ONCE, Sink, SinkWriter
from penstock.connectors.write_ahead import Piece, WriteAhead, chunks_of, payload_of, pieces_of, written_ahead
from penstock.driver.committing import Commit, CommitContext
from penstock.errors import PenstockError
from penstock.runtime.context import RuntimeContext
from penstock.runtime.operators import EpochInfo
from penstock.state.serializers import Hinted, serializer_for

_TOGETHER = 1000
"""Records per chunk."""
_SCALARS = (str, int, float, bool, bytes, type(None))
_array_header = struct.Struct(">BI").pack


class NotAcknowledged(PenstockError):
    """The external system has not accepted some records, and no later epoch will retry them.

    Operator action: find out why `send_values` returns False, then restart the job. The records stay in its lineage.
    """


class CheckpointCommitter(ABC):
    """Record which epochs of which subtask were sent, in storage that outlives the job. Runs in the driver.

    The sink calls ``set_job_id``, ``set_operator_id``, ``create_resource`` and ``open``, then
    ``is_checkpoint_committed`` and ``commit_checkpoint`` for each subtask and epoch, and ``close`` when the job ends. A
    committer shared by several sinks is closed and reopened between them, so store epochs by ``job_id`` and
    ``operator_id``.
    """

    job_id = ""
    operator_id = ""

    def set_job_id(self, id: str) -> None:
        """Set the lineage of the job. Epoch numbers are unique only within a lineage."""
        self.job_id = id

    def set_operator_id(self, id: str) -> None:
        """Set the uid of the sink."""
        self.operator_id = id

    def create_resource(self) -> None:
        """Create the table, file or key that stores the epochs, if it does not exist."""

    def open(self) -> None:
        """Open connections. Called after ``create_resource``."""

    def close(self) -> None:
        """Close connections."""

    @abstractmethod
    def commit_checkpoint(self, subtask_idx: int, checkpoint_id: int) -> None:
        """Record that this subtask's records of the epoch, and of all earlier epochs, were sent."""

    @abstractmethod
    def is_checkpoint_committed(self, subtask_idx: int, checkpoint_id: int) -> bool:
        """Return whether this subtask's records of the epoch were sent."""


class GenericWriteAheadSink(Sink):
    """Sink that sends complete epochs from the driver. Pass it to ``add_sink`` or ``sink_to``.

    An epoch that ``send_values`` does not acknowledge is kept, and sent again before the next epoch. An epoch is also
    sent again if the driver dies after sending it and before the committer records it. If your ``send_values`` is
    idempotent, set ``guarantee = "exactly-once"`` on the class.

    Args:
        committer: Records which epochs were sent.
        type_info: Type of the records. Defaults to the type that the stream declares; without one, records must be
            plain values.
    """

    guarantee = AT_LEAST_ONCE
    why = "it sends an epoch again if the driver dies after sending it and before the committer records it"

    def __init__(self, committer: CheckpointCommitter, type_info: TypeSpec = None) -> None:
        self.committer = committer
        self.type_info = type_info
        self._stream_types: list[TypeSpec] = []
        """The type that all streams ending in this sink declare, None for undeclared; empty before the first stream."""
        self._opened: tuple[str, str] | None = None
        """The uid and lineage for which the committer is open."""

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_opened": None}

    @abstractmethod
    def send_values(self, values: Iterator[Any], checkpoint_id: int, timestamp: int) -> bool:
        """Send one subtask's records of an epoch. Called in the driver.

        Args:
            values: The records.
            checkpoint_id: The epoch.
            timestamp: The epoch's processing time in milliseconds.

        Returns:
            True if the system accepted the records, False to send them again after the next epoch. If the method
            raises, the job fails and its restart strategy decides.
        """

    def for_type(self, value_type: Any) -> Sink:
        declared = None if isinstance(value_type, Hinted) else value_type
        if not self._stream_types:
            self._stream_types = [declared]
        elif self.type_info is None and self._stream_types != [declared]:
            raise PenstockError(
                f"{type(self).__name__} receives streams of different types, {self._stream_types[0]} and "
                f"{declared}, but writes all records as one type.",
                fix="Create one sink object per stream, or declare a type that covers all records: type_info=.",
            )
        return self

    def create_writer(self, context: RuntimeContext) -> SinkWriter:
        return _ValueWriter(context, self._record_type())

    def _record_type(self) -> TypeSpec:
        return self._stream_types[0] if self.type_info is None and self._stream_types else self.type_info

    def commit(self, commits: list[Commit], context: CommitContext) -> None:
        ended = self._send([_Epoch.of(commit, context) for commit in commits], context)
        if ended:
            self.settle(context)

    def finish(self, lineage: str, states: list[bytes], context: CommitContext) -> None:
        self._send([], context)
        self.settle(context)

    def settle(self, context: CommitContext) -> None:
        owed = sorted({epoch.number for epoch in _pending(context)})
        if owed:
            raise NotAcknowledged(
                f"The sink '{context.uid}' has not acknowledged the records of epochs {owed}, and no epoch follows.",
                fix="Find out why send_values returns False, then restart the job: it sends these epochs again.",
            )

    def close(self, context: CommitContext) -> None:
        if self._opened is not None and self._opened[0] == context.uid:
            self._close_committer()

    def _send(self, epochs: list[_Epoch], context: CommitContext) -> bool:
        """Send pending epochs, then `epochs`, in order per subtask. Return whether one of `epochs` was the last."""
        refusing: set[int] = set()
        for epoch in chain(_pending(context), epochs):
            self._open_committer(context.uid, epoch.lineage)
            if not self.committer.is_checkpoint_committed(epoch.subtask, epoch.number):
                # A committer that stores only the latest epoch would otherwise count the earlier ones as sent.
                if epoch.subtask in refusing or not self._sent(epoch, context):
                    refusing.add(epoch.subtask)
                    epoch.keep()
                    continue
                self.committer.commit_checkpoint(epoch.subtask, epoch.number)
            epoch.drop()
        return any(epoch.ended for epoch in epochs)

    def _sent(self, epoch: _Epoch, context: CommitContext) -> bool:
        decode = _form(self._record_type())[1]
        values = chain.from_iterable(decode(chunk) for chunk in epoch.chunks())
        acknowledged = self.send_values(values, epoch.number, epoch.timestamp)
        if type(acknowledged) is not bool:
            raise PenstockError(
                f"send_values of sink '{context.uid}' returned {acknowledged!r}, not a bool.",
                fix="Return True if the records were accepted, or False to send them again.",
            )
        return acknowledged

    def _open_committer(self, uid: str, lineage: str) -> None:
        if self._opened != (uid, lineage):
            self._close_committer()
            self.committer.set_job_id(lineage)
            self.committer.set_operator_id(uid)
            self.committer.create_resource()
            self.committer.open()
            self._opened = uid, lineage

    def _close_committer(self) -> None:
        if self._opened is not None:
            self._opened = None
            self.committer.close()


def _pending(context: CommitContext) -> list[_Epoch]:
    storage = context.wal.storage
    names = [name for name in storage.list(f"{_folder(context.uid)}/") if name.endswith(_PAYLOAD)]
    return [_Epoch.kept(storage.read(name), context) for name in names]


class _PreparedEpoch(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    timestamp: int
    ended: bool
    records: bytes | None
    """Output of `WriteAhead.seal`."""


_decode = msgspec.msgpack.Decoder(_PreparedEpoch).decode
_decode_kept = msgspec.msgpack.Decoder(Commit).decode
_PAYLOAD = "/epoch"


class _Epoch:
    """One subtask's records of an epoch, either just committed or pending since an earlier epoch.

    Pending records are copied to a separate folder, because the log's files are deleted with their epoch. The copy is
    complete once its `epoch` file exists, which is written before the commit returns and so before the next epoch.
    """

    def __init__(self, commit: Commit, context: CommitContext, kept: bool) -> None:
        prepared = _decode(commit.payload)
        self._context = context
        self._storage = context.wal.storage
        self._commit = commit
        self._kept = kept
        self._folder = f"{_folder(context.uid)}/{commit.epoch:012d}-{commit.subtask:06d}"
        self._records = prepared.records
        self.lineage, self.number, self.subtask = commit.lineage, commit.epoch, commit.subtask
        self.timestamp, self.ended = prepared.timestamp, prepared.ended

    @classmethod
    def of(cls, commit: Commit, context: CommitContext) -> _Epoch:
        return cls(commit, context, kept=False)

    @classmethod
    def kept(cls, data: bytes, context: CommitContext) -> _Epoch:
        return cls(_decode_kept(data), context, kept=True)

    def chunks(self) -> Iterator[bytes]:
        if self._records is None:
            return
        if not self._kept:
            yield from written_ahead(msgspec.structs.replace(self._commit, payload=self._records), self._context)
            return
        for piece in pieces_of(self._records):
            whose = f"which sink '{self._context.uid}' needs to send epoch {self.number} again"
            yield from chunks_of(piece, self._storage, whose)

    def keep(self) -> None:
        """Keep the records until the end of the next epoch."""
        if self._kept or self._records is None:
            return
        pieces: list[Piece] = []
        for number, piece in enumerate(pieces_of(self._records)):
            copy = piece
            if piece.inline is None:
                copy = msgspec.structs.replace(piece, name=f"{self._folder}/{number}.log")
                self._storage.write_file(copy.name, pa.BufferReader(self._storage.view(piece.name)))
            pieces.append(copy)
        prepared = _PreparedEpoch(timestamp=self.timestamp, ended=False, records=payload_of(pieces))
        kept = msgspec.structs.replace(self._commit, payload=msgspec.msgpack.encode(prepared))
        self._storage.write(f"{self._folder}{_PAYLOAD}", msgspec.msgpack.encode(kept))

    def drop(self) -> None:
        """Delete the kept copy: the records were sent and the committer recorded it."""
        # A driver that died in `keep` can have left a partial copy.
        if self._kept or self._commit.again:
            self._storage.delete_below(self._folder)


class _ValueWriter(SinkWriter):
    def __init__(self, context: RuntimeContext, type_info: TypeSpec) -> None:
        self._log = WriteAhead(context)
        self._encode = _form(type_info)[0]
        self._values: list[bytes] = []

    def begin_epoch(self, epoch: EpochInfo) -> None:
        self._log.begin(epoch)
        self._timestamp = epoch.timestamp
        self._values = []
        self._ended = False

    def write(self, value: Any) -> None:
        self._values.append(self._encode(value))
        if len(self._values) == _TOGETHER:
            self._add()

    def end_input(self) -> None:
        self._ended = True

    def prepare_commit(self) -> bytes:
        """Return a committable even without records: each complete epoch makes the driver send pending records."""
        if self._values:
            self._add()
        return msgspec.msgpack.encode(
            _PreparedEpoch(timestamp=self._timestamp, ended=self._ended, records=self._log.seal())
        )

    def _add(self) -> None:
        # Header of a msgpack array.
        self._log.add(_array_header(0xDD, len(self._values)) + b"".join(self._values))
        self._values = []


def _form(type_info: TypeSpec) -> tuple[Callable[[Any], bytes], Callable[[bytes], list[Any]]]:
    """Return an encoder for one record and a decoder for a chunk of records."""
    if type_info is None:
        return _encode_plain, msgspec.msgpack.Decoder(list[Any]).decode
    serializer = serializer_for(type_info)
    return serializer.encode_element, serializer.decode_many


def _encode_plain(value: Any) -> bytes:
    try:
        data = msgspec.msgpack.encode(value)
        if type(value) in _SCALARS or msgspec.msgpack.decode(data) == value:
            return data
        reason = "decoding it yields a different value"
    except (TypeError, OverflowError) as error:
        reason = str(error)
    raise PenstockError(
        f"The record {value!r:.200} cannot be written to the write-ahead log: {reason}.",
        fix="Declare the record type: output_type= of the operator before the sink, or type_info= of the sink.",
    )


def _folder(uid: str) -> str:
    return f"pending/{xxh3_64_hexdigest(uid.encode())}"
