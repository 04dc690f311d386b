"""The proxy of a host: finds the state server that has a key, and asks it again until a deadline.

Servers of this process answer directly, others over connections. A server that registers no more is forgotten.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain
from typing import NamedTuple, Protocol, TypeVar

import msgspec
import pyarrow as pa

from penstock.common.options.query import MAX_RESULT, PROXY_THREADS
from penstock.query.connection import Connection
from penstock.query.errors import BadRequest, CheckpointNotReached, NotServed, QueryError, UnknownJob, Unreachable
from penstock.query.follower import Share, runs_of
from penstock.query.limits import Turns, check_result
from penstock.query.protocol import (
    RESET,
    AnyRequest,
    Changes,
    Describe,
    Description,
    Entries,
    FoundMany,
    Get,
    GetMany,
    Held,
    Hold,
    Jobs,
    ReadRequest,
    Register,
    Release,
    Request,
    Scan,
    encode,
)
from penstock.state.key_groups import key_group_of

T = TypeVar("T")

_FORGET_S = 5.0
"""Time without a registration after which a server counts as dead."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.01, 0.5
_SCAN_S = 600.0

_decode_description = msgspec.msgpack.Decoder(Description).decode
_decode_many = msgspec.msgpack.Decoder(FoundMany).decode
_decode_held = msgspec.msgpack.Decoder(Held).decode


_Forwarded = Get | GetMany | Entries | Scan | Changes | Describe | Hold | Release


class Server(Protocol):
    """A state server, here or elsewhere."""

    def call(self, request: AnyRequest, seconds: float) -> bytes:
        """Return the encoded answer."""

    def stream(self, request: AnyRequest, seconds: float) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Return the answer as a stream."""


class _Registered(NamedTuple):
    address: str
    server: Server
    description: Description
    seen: float

    @property
    def share(self) -> Share:
        return Share(*self.description.share)


class Proxy:
    """Forwards requests to the servers of a job. Used by any number of threads."""

    def __init__(
        self,
        connect: Callable[[str], Server],
        threads: int = PROXY_THREADS.default,
        max_result: int = MAX_RESULT.default,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`connect` returns the server at an address."""
        self._connect = connect
        self._turns = Turns(threads)
        self._max_result = max_result
        self._clock = clock
        self._sleep = sleep
        self._started = clock()
        self._servers: dict[str, Server] = {}
        self._jobs: dict[str, dict[str, _Registered]] = {}
        """By id of the job, and address of the server."""
        self._pool = ThreadPoolExecutor(16, "penstock-query-proxy")

    def register(self, address: str, descriptions: list[Description], server: Server | None = None) -> None:
        """Note what a server has at present. `server`: the server itself, if it is in this process."""
        if server is None:
            server = self._servers.get(address) or self._connect(address)
        self._servers[address] = server
        now = self._clock()
        for description in descriptions:
            servers = self._jobs.get(description.job_id, {})
            self._jobs[description.job_id] = servers | {address: _Registered(address, server, description, now)}

    def answer(self, request: AnyRequest) -> bytes:
        """Return the encoded answer to a request. Raises QueryError."""
        if isinstance(request, Register):
            self.register(request.address, request.jobs)
            return b""
        if isinstance(request, Jobs):
            return encode([self._described(job) for job in list(self._jobs) if self._living(job)])
        with self._turns.turn():
            answer = self._again(request, lambda seconds: self._answer(request, seconds))
        check_result(len(answer), self._max_result)
        return answer

    def stream(self, request: Scan | Changes) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Return the answer to a request as a stream. Raises QueryError, as does the stream."""
        with self._turns.turn():
            return self._again(request, lambda seconds: self._stream(request, seconds))

    def close(self) -> None:
        """Close the connections."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        for server in self._servers.values():
            if isinstance(server, Connection):
                server.close()

    def _again(self, request: Request, attempt: Callable[[float], T]) -> T:
        """Try until the deadline, as long as the error can pass."""
        until = self._clock() + request.deadline_ms / 1000
        pause = _FIRST_PAUSE_S
        while True:
            try:
                return attempt(max(until - self._clock(), 0.001))
            except QueryError as error:
                starting = isinstance(error, UnknownJob) and self._clock() - self._started < _FORGET_S
                if not (error.again or starting) or self._clock() + pause >= until:
                    raise
            self._sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    # -- finding servers -------------------------------------------------------------------------------------------

    def _living(self, job: str) -> list[_Registered]:
        now = self._clock()
        return [each for each in self._jobs.get(job, {}).values() if now - each.seen < _FORGET_S]

    def _of(self, named: str) -> list[_Registered]:
        """Return the living servers of a job. Raises UnknownJob, NotServed."""
        for job, servers in self._jobs.items():
            if named == job or any(each.description.job_name == named for each in servers.values()):
                living = self._living(job)
                if living:
                    return living
                raise NotServed(
                    f"The state servers of job '{named}' have not been heard of for {_FORGET_S:g} s.",
                    fix="Check whether the job runs, or start a state server.",
                )
        known = sorted({each.description.job_name for servers in self._jobs.values() for each in servers.values()})
        raise UnknownJob(
            f"No job '{named}' is served on this host, only {', '.join(known) or 'none'}.",
            fix="Check its id with penstock list, and whether it runs with queryable-state.enable.",
        )

    def _having(self, servers: list[_Registered], state: str, key: bytes) -> _Registered:
        """Return the server that has a key. Raises NotServed."""
        for each in servers:
            if each.share.servers == 1:
                return each
            found = next((known for known in each.description.states if known.name == state), None)
            if found is None:
                # The server knows the right error.
                return each
            if each.share.has(runs_of(found.max_parallelism).of(key_group_of(key, found.max_parallelism))):
                return each
        raise NotServed(
            f"No living state server has the block of this key of '{state}'.",
            fix="Try again in a moment, or start another state server.",
        )

    @staticmethod
    def _complete(servers: list[_Registered]) -> list[_Registered]:
        """Return servers that have all key groups together. Raises NotServed."""
        for each in servers:
            if each.share.servers == 1:
                return [each]
        by_count: dict[int, dict[int, _Registered]] = {}
        for each in servers:
            shares = by_count.setdefault(each.share.servers, {})
            shares[each.share.first] = each
            if len(shares) == each.share.servers:
                return list(shares.values())
        raise NotServed(
            "The living state servers of the job do not have all of its state.",
            fix="Try again in a moment, or start another state server.",
        )

    # -- forwarding ------------------------------------------------------------------------------------------------

    def _answer(self, request: _Forwarded, seconds: float) -> bytes:
        servers = self._of(request.job)
        if isinstance(request, (Get, Entries)):
            return self._call(self._having(servers, request.state, request.key), request, seconds)
        complete = self._complete(servers)
        if len(complete) == 1:
            return self._call(complete[0], request, seconds)
        if isinstance(request, Describe):
            return encode(self._common(complete, request, seconds))
        if isinstance(request, GetMany):
            return self._many(complete, request, seconds)
        if isinstance(request, Hold):
            return self._hold(complete, request, seconds)
        if not isinstance(request, Release):
            raise BadRequest("A stream is not an action.", fix="Use a client of the version of the server.")
        for each, lease in zip(complete, request.lease.split(","), strict=False):
            self._call(each, msgspec.structs.replace(request, lease=lease), seconds)
        return b""

    def _call(self, server: _Registered, request: AnyRequest, seconds: float) -> bytes:
        with self._forgetting(server):
            return server.server.call(request, seconds)

    def _streamed(
        self, server: _Registered, request: AnyRequest, seconds: float
    ) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        with self._forgetting(server):
            return server.server.stream(request, seconds)

    @contextmanager
    def _forgetting(self, server: _Registered) -> Iterator[None]:
        """Forget a server that does not answer, so that the next attempt asks another. It can register again."""
        try:
            yield
        except Unreachable:
            servers = self._jobs.get(server.description.job_id, {})
            self._jobs[server.description.job_id] = {
                address: each for address, each in servers.items() if address != server.address
            }
            raise

    def _described(self, job: str) -> Description:
        return self._living(job)[0].description

    def _common(self, servers: list[_Registered], request: Request, seconds: float) -> Description:
        """Return what all servers can read."""
        ask = Describe(job=request.job, deadline_ms=request.deadline_ms)
        found = [_decode_description(answer) for answer in self._all(servers, [ask] * len(servers), seconds)]
        newest = min(found, key=lambda each: each.newest)
        return msgspec.structs.replace(newest, oldest=max(each.oldest for each in found), share=(0, 1))

    def _checkpoint(self, servers: list[_Registered], request: ReadRequest, seconds: float) -> int:
        """Return the checkpoint to read: that of the request, or the newest that all servers have."""
        if request.checkpoint is not None:
            return request.checkpoint
        until = self._clock() + seconds
        common = self._common(servers, request, seconds)
        while common.newest < (least := request.least_in(common.lineage)):
            if common.ended or self._clock() > until:
                raise CheckpointNotReached(
                    f"Checkpoint {least} is not complete on all servers: the newest one is {common.newest}.",
                    fix="Wait longer, or ask for an earlier one.",
                )
            self._sleep(_FIRST_PAUSE_S)
            common = self._common(servers, request, seconds)
        return common.newest

    def _many(self, servers: list[_Registered], request: GetMany, seconds: float) -> bytes:
        at = msgspec.structs.replace(request, checkpoint=self._checkpoint(servers, request, seconds))
        places: dict[int, list[int]] = {}
        for place, key in enumerate(request.keys):
            places.setdefault(servers.index(self._having(servers, request.state, key)), []).append(place)
        asked = [servers[index] for index in places]
        requests = [msgspec.structs.replace(at, keys=[request.keys[i] for i in each]) for each in places.values()]
        answers = [_decode_many(answer) for answer in self._all(asked, requests, seconds)]
        if not answers:
            return self._call(servers[0], at, seconds)
        found: dict[int, list[tuple[bytes, bytes]]] = {}
        for each, answer in zip(places.values(), answers, strict=True):
            found.update(zip(each, answer.parts, strict=True))
        return encode(msgspec.structs.replace(answers[0], parts=[found[i] for i in range(len(request.keys))]))

    def _hold(self, servers: list[_Registered], request: Hold, seconds: float) -> bytes:
        checkpoint = request.checkpoint
        if checkpoint is None and not request.lease:
            checkpoint = self._common(servers, request, seconds).newest
        leases = request.lease.split(",") if request.lease else [""] * len(servers)
        if len(leases) != len(servers):
            raise NotServed("The servers of the job have changed.", fix="Pin a checkpoint again.")
        requests = [msgspec.structs.replace(request, checkpoint=checkpoint, lease=lease) for lease in leases]
        held = [_decode_held(answer) for answer in self._all(servers, requests, seconds)]
        return encode(msgspec.structs.replace(held[0], lease=",".join(each.lease for each in held)))

    def _all(self, servers: list[_Registered], requests: Sequence[AnyRequest], seconds: float) -> list[bytes]:
        """Ask several servers at the same time."""
        return list(self._pool.map(lambda each, request: self._call(each, request, seconds), servers, requests))

    def _stream(self, request: Scan | Changes, seconds: float) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        servers = self._complete(self._of(request.job))
        if any(each.name == request.state and not each.keyed for each in servers[0].description.states):
            # Every server has all operator state.
            servers = servers[:1]
        limit = seconds + _SCAN_S
        if len(servers) == 1:
            return self._streamed(servers[0], request, limit)
        if isinstance(request, Scan):
            request = msgspec.structs.replace(request, checkpoint=self._checkpoint(servers, request, seconds))
            return _joined([self._streamed(each, request, limit) for each in servers])
        streams = [self._streamed(each, request, limit) for each in servers]
        if any(schema.metadata[RESET] == b"1" for schema, _ in streams):
            checkpoint = self._checkpoint(servers, request, seconds)
            complete = msgspec.structs.replace(request, since=None, checkpoint=checkpoint)
            streams = [self._streamed(each, complete, limit) for each in servers]
        return _joined(streams)


def _joined(
    streams: list[tuple[pa.Schema, Iterator[pa.RecordBatch]]],
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Return the streams one after the other. A server without rows does not know the type of the keys."""
    schema = next(
        (schema for schema, _ in streams if not any(field.type == pa.null() for field in schema)), streams[0][0]
    )
    batches = chain.from_iterable(each for _, each in streams)
    return schema, (batch if batch.schema == schema else batch.cast(schema) for batch in batches)
