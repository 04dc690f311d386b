"""The client of queryable state: reads committed state of running jobs through the proxy of a host."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import Any, Self, TypeVar

import msgspec
import pyarrow as pa

from penstock.common.tokens import read_token, state_directory
from penstock.errors import PenstockError
from penstock.query.client_types import Change, CheckpointChanges, MapPage, Read
from penstock.query.connection import Connection, location
from penstock.query.errors import BadRequest, CheckpointNotReached, NotAllowed, NotServed, Unreachable, WrongKeyType
from penstock.query.pinned import PinnedReads
from penstock.query.protocol import (
    CHECKPOINT,
    KIND,
    LINEAGE,
    RESET,
    TYPE,
    AnyRequest,
    Changes,
    Describe,
    Description,
    Entries,
    Found,
    FoundEntries,
    FoundMany,
    Get,
    GetMany,
    Held,
    Hold,
    Jobs,
    Release,
    Scan,
    decode_changes,
)
from penstock.query.reads import Change as StoredChange
from penstock.query.reads import MapRange
from penstock.query.values import DescribedValues, Values
from penstock.state.descriptors import StateDescriptor
from penstock.state.keys import KeyTypeError, decode_key, encode_key
from penstock.state.serializers import serializer_for
from penstock.tables.windows import name_of

T = TypeVar("T")

_MARGIN_S = 2.0
"""What a request takes beyond its deadline at most."""
_PAGE = 1000
_LONGEST_SCAN_S = 600.0

_description = msgspec.msgpack.Decoder(Description).decode
_descriptions = msgspec.msgpack.Decoder(list[Description]).decode
_found = msgspec.msgpack.Decoder(Found).decode
_found_many = msgspec.msgpack.Decoder(FoundMany).decode
_found_entries = msgspec.msgpack.Decoder(FoundEntries).decode
_held = msgspec.msgpack.Decoder(Held).decode


class QueryableStateClient:
    """Reads queryable state of running jobs.

    Every read shows a completed checkpoint: never a value that a restart would undo. A client never goes back: each
    read of a job shows the checkpoint of the last one or a later one, unless you ask for an earlier one.

    Args:
        host: The host of the proxy.
        port: The port of the proxy.
        token: The token of the proxy. By default it is read from ``token_file``.
        token_file: The file with the token. By default that of this user's servers on this host.
        tls: Whether to use TLS.
        authorities: A PEM file with the authorities to trust; by default those of the operating system.
        timeout: How many seconds a read can take, with all its repetitions.

    Example:
        >>> with QueryableStateClient("localhost", 9069) as client:
        ...     total = client.get("orders", "totals", "ann")
    """

    def __init__(
        self,
        host: str = "localhost",
        port: int = 9069,
        *,
        token: str | None = None,
        token_file: str | None = None,
        tls: bool = False,
        authorities: str = "",
        timeout: float = 5.0,
    ) -> None:
        if token is None:
            token = _token(token_file)
        self._connection = Connection(location(host, port, tls or bool(authorities)), token, authorities)
        self._deadline_ms = int(timeout * 1000)
        self._pool: ThreadPoolExecutor | None = None
        self._seen: dict[str, tuple[str, int]] = {}
        """The lineage and checkpoint that the last read of a job has shown."""
        self._lineage = ""
        """The lineage of all checkpoints that are asked for by number; empty for the current one."""

    # -- Flink's call ----------------------------------------------------------------------------------------------

    def get_kv_state(
        self,
        job_id: str,
        queryable_state_name: str,
        key: Any,
        key_type_info: Any,
        state_descriptor: StateDescriptor[Any],
    ) -> Future[Any]:
        """Return a future with the value of a key: a value, a list or a dict, as the job's functions see it.

        Args:
            job_id: The id of the job, or its name.
            queryable_state_name: The name of the queryable state.
            key: The key.
            key_type_info: The type of the keys, such as ``Types.STRING()``.
            state_descriptor: The descriptor that the job uses.
        """
        return self.submit(
            lambda: self.get(job_id, queryable_state_name, key, key_type=key_type_info, descriptor=state_descriptor)
        )

    def submit(self, read: Callable[[], T]) -> Future[T]:
        """Run a read of this client in a thread, and return its future.

        Args:
            read: A function without arguments.
        """
        if self._pool is None:
            self._pool = ThreadPoolExecutor(16, "penstock-query-client")
        return self._pool.submit(read)

    # -- reads -----------------------------------------------------------------------------------------------------

    def jobs(self) -> list[Description]:
        """Return the jobs that the proxy knows."""
        return _descriptions(self._call(Jobs()))

    def describe(self, job: str) -> Description:
        """Return the readable checkpoints of a job and its queryable states.

        Args:
            job: The id of the job, or its name.
        """
        return _description(self._call(Describe(job=job, deadline_ms=self._deadline_ms)))

    def get(
        self,
        job: str,
        state: str,
        key: Any,
        *,
        key_type: Any = None,
        descriptor: StateDescriptor[Any] | None = None,
        window: Any = None,
        at_least: int = 0,
        checkpoint: int | None = None,
        allow_pickle: bool = False,
    ) -> Any:
        """Return what a key has: a value, a list or a dict.

        Without a descriptor, dataclasses and Rows come as dicts, and pickles as bytes.

        Args:
            job: The id of the job, or its name.
            state: The name of the queryable state.
            key: The key.
            key_type: The type to convert the key to, as ``key_by`` of the job does.
            descriptor: The descriptor of the job, to get objects of its classes.
            window: The window of a state of windows: its start and end in milliseconds, or the number of a count
                window.
            at_least: The checkpoint that the read must show, or a later one. Waits for it up to the timeout.
            checkpoint: The checkpoint to show; the newest one by default.
            allow_pickle: Whether to load pickles, which can run code. For a job that you trust like your own program.

        Raises:
            UnknownKey: The key has nothing.
            QueryError: The read failed; the subclasses name the reasons.
        """
        return self.read(
            job, state, key, key_type=key_type, descriptor=descriptor, window=window, at_least=at_least,
            checkpoint=checkpoint, allow_pickle=allow_pickle,
        ).value  # fmt: skip

    def read(
        self,
        job: str,
        state: str,
        key: Any,
        *,
        key_type: Any = None,
        descriptor: StateDescriptor[Any] | None = None,
        window: Any = None,
        at_least: int = 0,
        checkpoint: int | None = None,
        allow_pickle: bool = False,
    ) -> Read:
        """Return what ``get`` returns, with the number of the checkpoint.

        Args:
            job: See ``get``.
            state: See ``get``.
            key: See ``get``.
            key_type: See ``get``.
            descriptor: See ``get``.
            window: See ``get``.
            at_least: See ``get``.
            checkpoint: See ``get``.
            allow_pickle: See ``get``.
        """
        request = Get(
            job=job,
            state=state,
            key=_encoded(key, key_type),
            window=_window(window),
            at_least=at_least,
            checkpoint=checkpoint,
            **self._common(job, checkpoint),
        )
        found = _found(self._call(request))
        self._note(job, found.lineage, found.checkpoint)
        values = _values(found.kind, found.type, descriptor, allow_pickle)
        return Read(values.decode(found.parts), found.checkpoint)

    def get_many(
        self,
        job: str,
        state: str,
        keys: list[Any],
        *,
        key_type: Any = None,
        descriptor: StateDescriptor[Any] | None = None,
        window: Any = None,
        at_least: int = 0,
        checkpoint: int | None = None,
        allow_pickle: bool = False,
    ) -> dict[Any, Any]:
        """Return what several keys have at one checkpoint, by key. Keys that have nothing are left out.

        Args:
            job: The id of the job, or its name.
            state: The name of the queryable state.
            keys: The keys.
            key_type: See ``get``.
            descriptor: See ``get``.
            window: See ``get``.
            at_least: See ``get``.
            checkpoint: See ``get``.
            allow_pickle: See ``get``.
        """
        request = GetMany(
            job=job,
            state=state,
            keys=[_encoded(key, key_type) for key in keys],
            window=_window(window),
            at_least=at_least,
            checkpoint=checkpoint,
            **self._common(job, checkpoint),
        )
        found = _found_many(self._call(request))
        self._note(job, found.lineage, found.checkpoint)
        decode = _values(found.kind, found.type, descriptor, allow_pickle).decode
        return {key: decode(parts) for key, parts in zip(keys, found.parts, strict=True) if parts}

    def entries(
        self,
        job: str,
        state: str,
        key: Any,
        *,
        prefix: Any = None,
        start: Any = None,
        stop: Any = None,
        limit: int = _PAGE,
        cursor: bytes | None = None,
        key_type: Any = None,
        descriptor: StateDescriptor[Any] | None = None,
        window: Any = None,
        at_least: int = 0,
        checkpoint: int | None = None,
        allow_pickle: bool = False,
    ) -> MapPage:
        """Return entries of the map of a key, in the order of the map keys.

        Args:
            job: The id of the job, or its name.
            state: The name of the queryable state.
            key: The key.
            prefix: Only map keys that start with this string.
            start: The first map key.
            stop: The map key after the last one.
            limit: The maximum number of entries.
            cursor: Where to continue: the cursor of the page before.
            key_type: See ``get``.
            descriptor: See ``get``.
            window: See ``get``.
            at_least: See ``get``.
            checkpoint: See ``get``. Pages are of one checkpoint if you pass that of the first one.
            allow_pickle: See ``get``.
        """
        bounds = {"prefix": prefix, "start": start, "stop": stop}
        wanted = MapRange(
            limit=limit, cursor=cursor, **{name: _encoded(v, None) for name, v in bounds.items() if v is not None}
        )
        request = Entries(
            job=job,
            state=state,
            key=_encoded(key, key_type),
            wanted=wanted,
            window=_window(window),
            at_least=at_least,
            checkpoint=checkpoint,
            **self._common(job, checkpoint),
        )
        found = _found_entries(self._call(request))
        self._note(job, found.lineage, found.checkpoint)
        values = _values(found.kind, found.type, descriptor, allow_pickle)
        return MapPage(dict(values.entry(*part) for part in found.parts), found.cursor, found.checkpoint)

    def scan(
        self,
        job: str,
        state: str,
        *,
        keys: list[Any] | None = None,
        keys_as_text: bool = False,
        at_least: int = 0,
        checkpoint: int | None = None,
        blocks: list[int] | None = None,
        timeout: float = _LONGEST_SCAN_S,
    ) -> pa.RecordBatchReader:
        """Return a state as an Arrow stream, with the columns of state tables: docs/query/state-tables.md.

        Args:
            job: The id of the job, or its name.
            state: The name of the queryable state, keyed or not.
            keys: The keys whose rows to return; all by default. The server reads and sends no others.
            keys_as_text: Whether to show keys as text; required if the state has keys of several types.
            at_least: See ``get``.
            checkpoint: See ``get``.
            blocks: The parts of the state to read, of 16, to divide a scan among processes; all by default. The order
                of the rows of a part at a checkpoint does not change.
            timeout: How many seconds the scan can take.
        """
        request = Scan(
            job=job,
            state=state,
            keys_as_text=keys_as_text,
            keys=None if keys is None else [_encoded(key, None) for key in keys],
            at_least=at_least,
            checkpoint=checkpoint,
            blocks=blocks,
            **self._common(job, checkpoint),
        )
        schema, batches = self._connection.stream(request, timeout)
        self._note(job, schema.metadata[LINEAGE].decode(), int(schema.metadata[CHECKPOINT]))
        return pa.RecordBatchReader.from_batches(schema, batches)

    def subscribe(
        self, job: str, state: str, since: int | None = None, until: int | None = None, lineage: str = ""
    ) -> Iterator[CheckpointChanges]:
        """Yield the changes of each checkpoint, in order, each once.

        Applied to an empty dict, they give the state of every checkpoint. Waits for the next checkpoint as long as it
        takes. A value that expires is not a change until the job removes it.

        Args:
            job: The id of the job, or its name.
            state: The name of the queryable state.
            since: The checkpoint whose state you have; by default the complete state of the newest checkpoint comes
                first.
            until: The checkpoint to stop after; none by default.
            lineage: The ``lineage`` of the changes that you have. Pass it with ``since``: if the job has started from
                a savepoint or from scratch meanwhile, its numbers mean other checkpoints, and the complete state comes
                first.
        """
        while until is None or since is None or since < until:
            request = Changes(job=job, state=state, since=since, seen_in=lineage, deadline_ms=self._deadline_ms)
            try:
                schema, batches = self._connection.stream(request, _LONGEST_SCAN_S)
            except CheckpointNotReached:
                if self.describe(job).ended:
                    return
                continue
            metadata = schema.metadata
            values = Values(metadata[KIND].decode(), metadata[TYPE].decode())
            changes = [
                _change(values, each)
                for batch in batches
                for row in batch.column(0).to_pylist()
                for each in decode_changes(row)
            ]
            since, lineage = int(metadata[CHECKPOINT]), metadata[LINEAGE].decode()
            yield CheckpointChanges(since, metadata[RESET] == b"1", changes, lineage)

    @contextmanager
    def pinned(self, job: str, checkpoint: int | None = None, lease: float = 60.0) -> Iterator[PinnedReads]:
        """Return reads that all show one checkpoint, over all keys and operators.

        Args:
            job: The id of the job, or its name.
            checkpoint: The checkpoint; the newest one by default.
            lease: How many seconds the server keeps it after the last renewal, 600 at most. Reads renew it once a third
                of that time has passed.
        """
        seen_in, seen = self._seen.get(job, ("", 0)) if checkpoint is None else ("", 0)
        hold = Hold(
            job=job,
            checkpoint=checkpoint,
            seen=seen,
            seen_in=seen_in,
            lease_ms=int(lease * 1000),
            deadline_ms=self._deadline_ms,
        )
        held = _held(self._call(hold))
        self._note(job, held.lineage, held.checkpoint)
        reads = PinnedReads(self._within(held.lineage), job, held.checkpoint, held.lease, lease)
        try:
            yield reads
        finally:
            try:
                self._call(Release(job=job, lease=reads.lease, deadline_ms=1000))
            except (Unreachable, NotServed):
                # The lease ends by itself.
                pass

    def renew(self, job: str, lease: str, seconds: float) -> str:
        """Extend a lease from now on, and return what to pass the next time. ``pinned`` does it with each read.

        Args:
            job: The id of the job, or its name.
            lease: The lease.
            seconds: How long the server keeps the checkpoint without a read.
        """
        hold = Hold(job=job, lease=lease, lease_ms=int(seconds * 1000), deadline_ms=self._deadline_ms)
        return _held(self._call(hold)).lease

    def close(self) -> None:
        """Close the connection."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _call(self, request: AnyRequest) -> bytes:
        deadline_ms = getattr(request, "deadline_ms", self._deadline_ms)
        return self._connection.call(request, deadline_ms / 1000 + _MARGIN_S)

    def _common(self, job: str, checkpoint: int | None) -> dict[str, Any]:
        """Return the fields of every read. One of the newest checkpoint shows none before that of the last read."""
        if checkpoint is not None:
            return {"deadline_ms": self._deadline_ms, "lineage": self._lineage}
        lineage, number = self._seen.get(job, ("", 0))
        return {"deadline_ms": self._deadline_ms, "seen": number, "seen_in": lineage}

    def _within(self, lineage: str) -> Self:
        """Return this client for reads of checkpoints of one lineage, with the same connection."""
        client = copy(self)
        client._lineage = lineage
        return client

    def _note(self, job: str, lineage: str, number: int) -> None:
        known, before = self._seen.get(job, ("", 0))
        self._seen[job] = lineage, max(number, before) if known == lineage else number


def _token(token_file: str | None) -> str:
    path = state_directory() / "query-token" if token_file is None else Path(token_file).expanduser()
    try:
        return read_token(path)
    except FileNotFoundError:
        raise NotAllowed(
            f"The token file {path} does not exist.",
            fix="Pass token=... or token_file=... with the token of the server.",
        ) from None


def _encoded(key: Any, key_type: Any) -> bytes:
    """Return the bytes of a key. Raises WrongKeyType."""
    try:
        return encode_key(key if key_type is None else serializer_for(key_type).check(key))
    except KeyTypeError as error:
        raise WrongKeyType(f"{error.statement()}.", fix=error.fix) from None
    except PenstockError as error:
        raise WrongKeyType(f"The key {key!r} is not of the type passed: {error.statement()}.", fix=error.fix) from None


def _window(window: Any) -> bytes:
    """Return the stored name of a window: the bytes of a change, a pair of times, or a number."""
    if window is None:
        return b""
    if isinstance(window, bytes):
        return window
    if isinstance(window, int):
        return name_of(None, None, window)
    try:
        start, end = window
        return name_of(start, end, None)
    except (TypeError, ValueError):
        raise BadRequest(
            f"{window!r} is not a window.", fix="Pass window=(start, end) in milliseconds, or the number of a window."
        ) from None


def _values(kind: str, text: str, descriptor: StateDescriptor[Any] | None, allow_pickle: bool) -> Values:
    return Values(kind, text) if descriptor is None else DescribedValues(kind, text, descriptor, allow_pickle)


def _change(values: Values, change: StoredChange) -> Change:
    key = decode_key(change.key)
    if change.map_key is None:
        return Change(key, None if change.parts is None else values.decode(change.parts), None, change.window)
    value = None if change.parts is None else values.value(change.parts[0][1])
    return Change(key, value, values.map_key(change.map_key), change.window)
