"""Flink's GenericWriteAheadSink: records wait in the write-ahead log and are sent when their checkpoint is complete."""

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
"""Records of a chunk."""
_SCALARS = (str, int, float, bool, bytes, type(None))
_array_header = struct.Struct(">BI").pack


class NotAcknowledged(PenstockError):
    """A system has not taken records, and no later epoch will try again.

    Operator action: see why `send_values` gives False, then start the job again; until then they are in its lineage.
    """


class CheckpointCommitter(ABC):
    """Remembers, in a place that outlives the job, which epochs of which subtask were sent. Used in the driver.

    Order of calls: `set_job_id`, `set_operator_id`, `create_resource`, `open`, then `is_checkpoint_committed` and
    `commit_checkpoint` for each subtask and epoch, `close` when the job is over. If one object serves several sinks,
    it is closed and opened between them; so remember epochs by `job_id` and `operator_id`.
    """

    job_id = ""
    operator_id = ""

    def set_job_id(self, id: str) -> None:
        """Names the run of the job: epochs of another one have the same numbers."""
        self.job_id = id

    def set_operator_id(self, id: str) -> None:
        """The sink's uid."""
        self.operator_id = id

    def create_resource(self) -> None:
        """Make the table, file or key, if it is not there."""

    def open(self) -> None:
        pass

    def close(self) -> None:
        pass

    @abstractmethod
    def commit_checkpoint(self, subtask_idx: int, checkpoint_id: int) -> None:
        """The epoch's records of this subtask were sent. Those of earlier epochs were too."""

    @abstractmethod
    def is_checkpoint_committed(self, subtask_idx: int, checkpoint_id: int) -> bool: ...


class GenericWriteAheadSink(Sink):
    """Give it to `add_sink` or `sink_to`. `send_values` is called in the driver.

    An epoch that is not acknowledged stays, and is sent again when the next one is complete, before it. One whose
    sending was not noted by the committer, because the driver died in between, is sent again as well: where that must
    not show, `send_values` has to be idempotent, and the class may then say `guarantee = "exactly-once"`.
    """

    guarantee = AT_LEAST_ONCE
    why = "an epoch is sent again if the driver dies after sending it and before the committer has noted it"

    def __init__(self, committer: CheckpointCommitter, type_info: TypeSpec = None) -> None:
        """`type_info`: of the records; what the stream declares if it is left out, or else plain values."""
        self.committer = committer
        self.type_info = type_info
        self._stream_types: list[TypeSpec] = []
        """What the streams that end in it declare: one type, or None if they declare none."""
        self._opened: tuple[str, str] | None = None
        """The uid and the lineage that the committer is open for."""

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_opened": None}

    @abstractmethod
    def send_values(self, values: Iterator[Any], checkpoint_id: int, timestamp: int) -> bool:
        """Send one subtask's records of an epoch. False: not acknowledged, to be sent again. May raise: the job fails,
        and its restart strategy decides. `timestamp` is the epoch's clock, in milliseconds."""

    def for_type(self, value_type: Any) -> Sink:
        declared = None if isinstance(value_type, Hinted) else value_type
        if not self._stream_types:
            self._stream_types = [declared]
        elif self.type_info is None and self._stream_types != [declared]:
            raise PenstockError(
                f"{type(self).__name__} ends streams that declare different types, {self._stream_types[0]} and "
                f"{declared}, and can write their records in one type only.",
                fix="Give each stream a sink object, or give the sink the type of all records: type_info=.",
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
                fix="See why send_values gives False.",
            )

    def close(self, context: CommitContext) -> None:
        if self._opened is not None and self._opened[0] == context.uid:
            self._close_committer()

    def _send(self, epochs: list[_Epoch], context: CommitContext) -> bool:
        """All that is owed and then these, of each subtask in order. Whether one of them was the last."""
        refusing: set[int] = set()
        for epoch in chain(_pending(context), epochs):
            self._open_committer(context.uid, epoch.lineage)
            if not self.committer.is_checkpoint_committed(epoch.subtask, epoch.number):
                # A committer that knows the last epoch only would take those before it for sent.
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
                f"send_values of sink '{context.uid}' gave {acknowledged!r}.",
                fix="Return True if the records were taken, False to have them sent again.",
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
    """What the write-ahead log gave."""


_decode = msgspec.msgpack.Decoder(_PreparedEpoch).decode
_decode_kept = msgspec.msgpack.Decoder(Commit).decode
_PAYLOAD = "/epoch"


class _Epoch:
    """One subtask's records of an epoch, just committed or owed since an earlier one.

    Those that are owed are copied to a place of their own: the log's files go with their epoch. They are complete when
    the file `epoch` is there, before the commit returns and so before the next epoch begins.
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
            whose = f"which sink '{self._context.uid}' has not acknowledged of epoch {self.number}"
            yield from chunks_of(piece, self._storage, whose)

    def keep(self) -> None:
        """Let it wait for the next epoch's end."""
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
        """It was sent, and the committer knows."""
        # A driver that died while it kept this may have left a part.
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
        """Also of nothing: what the driver still owes is sent when an epoch is complete."""
        if self._values:
            self._add()
        return msgspec.msgpack.encode(
            _PreparedEpoch(timestamp=self._timestamp, ended=self._ended, records=self._log.seal())
        )

    def _add(self) -> None:
        # A msgpack array.
        self._log.add(_array_header(0xDD, len(self._values)) + b"".join(self._values))
        self._values = []


def _form(type_info: TypeSpec) -> tuple[Callable[[Any], bytes], Callable[[bytes], list[Any]]]:
    """How a record is written, and how many are read."""
    if type_info is None:
        return _encode_plain, msgspec.msgpack.Decoder(list[Any]).decode
    serializer = serializer_for(type_info)
    return serializer.encode_element, serializer.decode_many


def _encode_plain(value: Any) -> bytes:
    try:
        data = msgspec.msgpack.encode(value)
        if type(value) in _SCALARS or msgspec.msgpack.decode(data) == value:
            return data
        reason = "it comes back as another"
    except (TypeError, OverflowError) as error:
        reason = str(error)
    raise PenstockError(
        f"The record {value!r:.200} cannot wait in the write-ahead log: {reason}.",
        fix="Declare the type of the records: output_type= of the operator before the sink, or type_info= of the sink.",
    )


def _folder(uid: str) -> str:
    return f"pending/{xxh3_64_hexdigest(uid.encode())}"
