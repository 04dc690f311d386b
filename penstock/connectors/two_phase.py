"""Flink's TwoPhaseCommitSinkFunction: transactions of an external system, driven by our two-phase commit.

A task begins a transaction and the driver commits it. The committable carries the transaction's handle. If the lineage
is stored in files, a task also writes the handle there before the first record, because the handle would otherwise be
lost if the task dies. Handles of a committed epoch that were not themselves committed belong to failed attempts, and
are aborted.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Protocol, get_type_hints

import msgspec
from xxhash import xxh3_64_hexdigest, xxh3_128_hexdigest

from penstock.connectors.sink import EXACTLY_ONCE, Sink, SinkWriter
from penstock.driver.committing import Commit, CommitContext
from penstock.errors import PenstockError
from penstock.runtime.context import FunctionContext, RuntimeContext
from penstock.runtime.operators import EpochInfo
from penstock.state.serializers import NotEncodable, UnsupportedType, serializer_for
from penstock.state.storage import MissingObject, Storage, StorageError

_FOLDER = "transactions"


class NotAborted(PenstockError):
    """Transactions of a two-phase commit sink that will never be committed are still open.

    Operator action: abort the transactions named in the message in the external system, then delete their handles. The
    handles are files next to the job's checkpoints.
    """


class Transactions(Protocol):
    """Structural type of `penstock.datastream.TwoPhaseCommitSinkFunction`, whose docstring is the contract."""

    def open(self, runtime_context: RuntimeContext) -> None: ...
    def begin_transaction(self) -> Any: ...
    def invoke(self, transaction: Any, value: Any, context: FunctionContext) -> None: ...
    def pre_commit(self, transaction: Any) -> None: ...
    def commit(self, transaction: Any) -> None: ...
    def abort(self, transaction: Any) -> None: ...
    def recover_and_commit(self, transaction: Any) -> None: ...
    def recover_and_abort(self, transaction: Any) -> None: ...
    def close(self) -> None: ...


class _PreparedTransaction(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    handle: bytes
    noted: str
    """File that stores the handle; empty if the handle is not stored."""


class _Handles:
    """Encodes handles by the annotated return type of `begin_transaction`, or as plain values without one."""

    def __init__(self, function: Transactions) -> None:
        self._whose = f"begin_transaction of {type(function).__name__}"
        try:
            hint = get_type_hints(type(function).begin_transaction).get("return", Any)
            self._serializer = None if hint in (Any, object, type(None)) else serializer_for(hint)
        except (NameError, TypeError, UnsupportedType):  # an annotation without a usable type
            self._serializer = None

    def encode(self, handle: Any) -> bytes:
        try:
            if self._serializer is not None:
                return self._serializer.encode(handle)
            data = msgspec.msgpack.encode(handle)
            if msgspec.msgpack.decode(data) == handle:
                return data
            reason = "Decoding it yields a different value."
        except (TypeError, OverflowError, NotEncodable) as error:
            reason = str(error)
        raise PenstockError(
            f"The transaction returned by {self._whose}, {handle!r:.200}, cannot be written to a checkpoint. {reason}",
            fix="Return a handle of strings, numbers, lists and dicts, or annotate the method with the dataclass it "
            "returns. Keep connections and files in attributes of the function.",
        )

    def decode(self, data: bytes) -> Any:
        return msgspec.msgpack.decode(data) if self._serializer is None else self._serializer.decode(data)


class TwoPhaseCommitSink(Sink):
    guarantee = EXACTLY_ONCE
    why = "its transactions are committed when their checkpoint is complete, and again by a recovering driver"

    def __init__(self, function: Transactions) -> None:
        self.function = function

    def create_writer(self, context: RuntimeContext) -> SinkWriter:
        return _TransactionWriter(self.function, context)

    def commit(self, commits: list[Commit], context: CommitContext) -> None:
        handles = _Handles(self.function)
        for commit in commits:
            prepared = _decode(commit.payload)
            handle = handles.decode(prepared.handle)
            if commit.again:
                self.function.recover_and_commit(handle)
            else:
                self.function.commit(handle)
            _forget(prepared.noted, context)
        self._abort_lost(commits[0].epoch, context)

    def abort(self, commits: list[Commit], context: CommitContext) -> None:
        handles = _Handles(self.function)
        for commit in commits:
            prepared = _decode(commit.payload)
            self.function.abort(handles.decode(prepared.handle))
            _forget(prepared.noted, context)

    def abort_uncommitted(self, epoch: int, token: str | None, context: CommitContext) -> None:
        handles = _Handles(self.function)
        left: list[tuple[Any, Exception]] = []
        for note in _notes(context):
            if note.epoch <= epoch or (token is not None and note.token != token):
                continue
            try:
                handle = handles.decode(note.read())
            except MissingObject:
                # Its task has just aborted the transaction.
                continue
            try:
                self.function.recover_and_abort(handle)
            except Exception as error:  # from the external system; abort the other transactions too
                left.append((handle, error))
            else:
                note.delete()
        if left:
            named = ", ".join(repr(handle) for handle, _ in left)
            raise NotAborted(
                f"The sink '{context.uid}' could not abort {len(left)} transactions that will never be committed: "
                f"{named:.2000}. The first abort failed with {type(left[0][1]).__name__}: {left[0][1]}.",
                fix=f"Abort them in the external system. Their handles stay in {context.wal.storage.where}, "
                f"below {_folder(context.uid)}.",
            ) from left[0][1]

    def clean_up(self, lineage: str, epoch: int, states: list[bytes], context: CommitContext) -> None:
        self._abort_lost(epoch, context)

    def _abort_lost(self, epoch: int, context: CommitContext) -> None:
        """Abort the transactions of lost attempts at epochs up to `epoch`, which is committed."""
        handles = _Handles(self.function)
        for note in _notes(context):
            if note.epoch <= epoch:
                self.function.recover_and_abort(handles.decode(note.read()))
                note.delete()


class _Note:
    """A stored handle: `folder/epoch/<hash of the handle>-<token of the driver>`."""

    def __init__(self, storage: Storage, name: str) -> None:
        self._storage = storage
        self._name = name
        _, _, epoch, rest = name.split("/")
        self.epoch = int(epoch)
        # Older versions wrote the hash without a token.
        self.token = rest.partition("-")[2]

    def read(self) -> bytes:
        return self._storage.read(self._name)

    def delete(self) -> None:
        self._storage.delete(self._name)


def _notes(context: CommitContext) -> list[_Note]:
    storage = context.wal.storage
    if storage.in_memory:
        return []
    return [_Note(storage, name) for name in storage.list(f"{_folder(context.uid)}/")]


def _forget(noted: str, context: CommitContext) -> None:
    if noted:
        context.wal.storage.delete(noted)


class _TransactionWriter(SinkWriter):
    def __init__(self, function: Transactions, context: RuntimeContext) -> None:
        assert context.of_record is not None
        self._function = function
        self._uid = context.uid
        self._given = context.of_record
        self._invoke = function.invoke
        self._handles = _Handles(function)
        self._begun = False
        self._transaction: Any = None
        self._noted = ""
        function.open(context)

    def begin_epoch(self, epoch: EpochInfo) -> None:
        self._epoch = epoch
        self._begun = False

    def write(self, value: Any) -> None:
        if not self._begun:
            self._begin()
        self._invoke(self._transaction, value, self._given)

    def prepare_commit(self) -> bytes | None:
        if not self._begun:
            return None
        self._function.pre_commit(self._transaction)
        prepared = _PreparedTransaction(handle=self._handles.encode(self._transaction), noted=self._noted)
        self._begun = False
        return msgspec.msgpack.encode(prepared)

    def close(self) -> None:
        if self._begun:
            self._begun = False
            self._function.abort(self._transaction)
            if self._noted and self._epoch.storage is not None:
                # The driver can be waiting for this deletion.
                with suppress(StorageError, OSError):
                    self._epoch.storage.delete(self._noted)
        self._function.close()

    def _begin(self) -> None:
        self._transaction = self._function.begin_transaction()
        self._begun = True
        handle = self._handles.encode(self._transaction)
        storage = self._epoch.storage
        if storage is not None:
            name = f"{xxh3_128_hexdigest(handle)}-{self._epoch.token}"
            self._noted = f"{_folder(self._uid)}/{self._epoch.number:012d}/{name}"
            storage.write(self._noted, handle)


_decode = msgspec.msgpack.Decoder(_PreparedTransaction).decode


def _folder(uid: str) -> str:
    return f"{_FOLDER}/{xxh3_64_hexdigest(uid.encode())}"
