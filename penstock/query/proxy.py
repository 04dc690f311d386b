"""The proxy of a host: finds the state server that has a key, and asks it again until a deadline.

Servers of this process answer directly, others over connections. The servers of the host register, and tell what those
of other hosts have announced. A server of which nothing more is heard is forgotten.
"""

from __future__ import annotations

import threading
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
from penstock.query.division import ALL_BLOCKS, BLOCKS
from penstock.query.errors import (
    BadRequest,
    CheckpointGone,
    CheckpointNotReached,
    NotServed,
    QueryError,
    UnknownJob,
    Unreachable,
)
from penstock.query.follower import runs_of
from penstock.query.limits import Turns, check_result
from penstock.query.protocol import (
    LINEAGE,
    RESET,
    Announcement,
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
_SLICE_S, _ANSWER_S = 1.0, 2.0
"""How long a server waits for a checkpoint before the proxy looks again for servers, and how long it can be silent."""
_KEYS_PER_S = 10_000
"""Keys that the slowest server reads in a second."""
_MARGIN_S = 0.5
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
    """A server and one job, as the server or another one has described it."""

    address: str
    server: Server
    description: Description
    seen: float
    beat: int
    """Of the announcement that it is from; -1 if the server itself has registered."""


class _Part(NamedTuple):
    """A server, and the blocks that it is asked for."""

    registered: _Registered
    blocks: list[int]


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
        self._registered: dict[tuple[str, str], _Registered] = {}
        """By address, and id of the job there."""
        self._failed: dict[str, int] = {}
        """The last announcement of servers that did not answer."""
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(16, "penstock-query-proxy")

    def register(
        self,
        address: str,
        descriptions: list[Description],
        others: Sequence[Announcement] = (),
        server: Server | None = None,
    ) -> None:
        """Note what a server has at present.

        Args:
            address: Its address.
            descriptions: Its jobs.
            others: What the other servers of these jobs have announced.
            server: The server itself, if it is in this process.
        """
        now = self._clock()
        with self._lock:
            self._failed.pop(address, None)
            for description in descriptions:
                self._note(address, description, now, -1, server)
            for each in others:
                known = self._registered.get((each.address, each.description.job_id))
                itself = known is not None and known.beat < 0 and now - known.seen < _FORGET_S
                if not itself and each.beat > self._failed.get(each.address, -1):
                    self._failed.pop(each.address, None)
                    self._note(each.address, each.description, now, each.beat, None)

    def _note(self, address: str, description: Description, now: float, beat: int, server: Server | None) -> None:
        if server is None:
            server = self._servers.get(address) or self._connect(address)
        self._servers[address] = server
        self._registered[address, description.job_id] = _Registered(address, server, description, now, beat)

    def answer(self, request: AnyRequest) -> bytes:
        """Return the encoded answer to a request. Raises QueryError."""
        if isinstance(request, Register):
            self.register(request.address, request.jobs, request.others)
            return b""
        if isinstance(request, Jobs):
            return encode(self._jobs())
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
        named = getattr(request, "checkpoint", None) is not None
        while True:
            began = self._clock()
            seconds = max(until - began, 0.001)
            try:
                return attempt(seconds)
            except CheckpointNotReached:
                # A server waits for a slice of the time only, and not at all after the end of the job.
                if self._clock() - began < _SLICE_S or self._clock() >= until:
                    raise
                continue
            except QueryError as error:
                starting = isinstance(error, UnknownJob) and began - self._started < _FORGET_S
                passed = isinstance(error, CheckpointGone) and not named and not isinstance(request, Hold)
                if not (error.again or starting or passed) or self._clock() + pause >= until:
                    raise
            self._sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    # -- finding servers -------------------------------------------------------------------------------------------

    def _living(self) -> list[_Registered]:
        now = self._clock()
        return [each for each in list(self._registered.values()) if now - each.seen < _FORGET_S]

    def _jobs(self) -> list[Description]:
        """Return one description for each job."""
        groups: dict[str, list[_Registered]] = {}
        for each in self._living():
            groups.setdefault(each.description.lineage or f"id {each.description.job_id}", []).append(each)
        found = [max(group, key=lambda each: each.description.newest).description for group in groups.values()]
        by_id: dict[str, Description] = {}
        for description in sorted(found, key=lambda each: each.lineage):
            by_id[description.job_id] = description
        return list(by_id.values())

    def _of(self, named: str) -> list[_Registered]:
        """Return the living servers of a job. Raises UnknownJob, NotServed."""
        known = list(self._registered.values())
        matching = [each for each in known if each.description.job_id == named] or [
            each for each in known if each.description.job_name == named
        ]
        if not matching:
            names = sorted({each.description.job_name for each in known})
            raise UnknownJob(
                f"No job '{named}' is served on this host, only {', '.join(names) or 'none'}.",
                fix="Check its id with penstock list, and whether it runs with queryable-state.enable.",
            )
        living = self._living()
        # Earlier runs of the job have other ids. Lineages sort by time.
        last = max(
            (each for each in matching if each in living), key=lambda each: each.description.lineage, default=None
        )
        job = (last or matching[0]).description.job_id
        # A server that was started by hand can have another id for the job.
        lineages = {each.description.lineage for each in matching if each.description.job_id == job} - {""}
        living = [each for each in living if each.description.job_id == job or each.description.lineage in lineages]
        if not living:
            raise NotServed(
                f"The state servers of job '{named}' have not been heard of for {_FORGET_S:g} s.",
                fix="Check whether the job runs, or start a state server.",
            )
        return living

    def _having(self, servers: list[_Registered], request: Get | Entries) -> _Registered:
        """Return a server that has a key. Raises NotServed."""
        block = _block(servers, request.state, request.key)
        if block is None:
            # The server knows the right error.
            return servers[0]
        return _best(servers, block, request.checkpoint, f"the block of this key of '{request.state}'")

    @staticmethod
    def _parts(servers: list[_Registered], checkpoint: int | None = None) -> list[_Part]:
        """Divide all blocks among servers. Raises NotServed."""
        complete = [each for each in servers if _reads_all(each, checkpoint)]
        if complete:
            newest = max(complete, key=lambda each: each.description.newest)
            return [_Part(newest, sorted(ALL_BLOCKS))]
        parts: dict[str, _Part] = {}
        for block in sorted(ALL_BLOCKS):
            found = _best(servers, block, checkpoint, "all blocks of the job")
            parts.setdefault(found.address, _Part(found, [])).blocks.append(block)
        return list(parts.values())

    # -- forwarding ------------------------------------------------------------------------------------------------

    def _answer(self, request: _Forwarded, seconds: float) -> bytes:
        servers = self._of(request.job)
        if isinstance(request, (Get, Entries)):
            return self._call(self._having(servers, request), request, seconds)
        if isinstance(request, Describe):
            return encode(self._common(self._parts(servers), request, seconds))
        if isinstance(request, GetMany):
            return self._many(servers, request, seconds)
        if isinstance(request, Hold):
            return self._hold(servers, request, seconds)
        if not isinstance(request, Release):
            raise BadRequest("A stream is not an action.", fix="Use a client of the version of the server.")
        leases = _leases(request.lease)[1]
        for each in servers:
            if each.address in leases:
                self._call(each, msgspec.structs.replace(request, lease=leases[each.address]), seconds)
        return b""

    def _call(self, server: _Registered, request: _Forwarded, seconds: float) -> bytes:
        """Ask a server, for a part of the time: if it is stopped, another one will soon have its blocks."""
        slice_ms = int(min(seconds, _SLICE_S) * 1000)
        asked = msgspec.structs.replace(request, job=server.description.job_id, deadline_ms=slice_ms)
        patience = _ANSWER_S + (len(request.keys) / _KEYS_PER_S if isinstance(request, GetMany) else 0)
        with self._forgetting(server):
            return server.server.call(asked, min(seconds + _MARGIN_S, patience))

    def _streamed(self, part: _Part, request: Scan | Changes) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        server = part.registered
        blocks = [block for block in part.blocks if request.blocks is None or block in request.blocks]
        asked = msgspec.structs.replace(request, job=server.description.job_id, blocks=blocks, deadline_ms=1000)
        with self._forgetting(server):
            return server.server.stream(asked, _SCAN_S)

    @contextmanager
    def _forgetting(self, server: _Registered) -> Iterator[None]:
        """Forget a server that does not answer, so that the next attempt asks another. It can register again."""
        try:
            yield
        except Unreachable:
            with self._lock:
                self._failed[server.address] = max(server.beat, 0)
                self._registered = {
                    place: each for place, each in self._registered.items() if each.address != server.address
                }
            raise

    def _common(self, parts: list[_Part], request: Request, seconds: float) -> Description:
        """Return what all servers can read, once they have the checkpoint that the request waits for.

        Raises CheckpointNotReached, NotServed.
        """
        ask = _awaiting(request)
        answers = self._all([part.registered for part in parts], [ask] * len(parts), seconds)
        found = [_decode_description(answer) for answer in answers]
        if len({each.lineage for each in found}) > 1:
            raise NotServed("The job has started again, and not all state servers follow it yet.", fix="Try again.")
        newest = min(found, key=lambda each: each.newest)
        blocks = {block: each.blocks[block] for each in found for block in each.blocks}
        oldest = max((each.oldest for each in found), default=0)
        return msgspec.structs.replace(newest, oldest=oldest, blocks=blocks)

    def _checkpoint(self, parts: list[_Part], request: ReadRequest, seconds: float) -> int:
        """Return the checkpoint to read: that of the request, or the newest that all servers have."""
        common = self._common(parts, request, seconds)
        return common.newest if request.checkpoint is None else request.checkpoint

    def _many(self, servers: list[_Registered], request: GetMany, seconds: float) -> bytes:
        complete = [each for each in servers if _reads_all(each, request.checkpoint)]
        if complete:
            # To locate each key would take as long as to read it.
            return self._call(max(complete, key=lambda each: each.description.newest), request, seconds)
        places: dict[str, list[int]] = {}
        found: dict[str, _Registered] = {}
        by_block: dict[int, _Registered] = {}
        for place, key in enumerate(request.keys):
            block = _block(servers, request.state, key)
            if block is None:
                return self._call(servers[0], request, seconds)
            server = by_block.get(block)
            if server is None:
                server = _best(servers, block, request.checkpoint, f"the block of a key of '{request.state}'")
                by_block[block] = server
            found[server.address] = server
            places.setdefault(server.address, []).append(place)
        if len(found) < 2:
            return self._call(next(iter(found.values()), servers[0]), request, seconds)
        asked = [found[address] for address in places]
        checkpoint = self._checkpoint([_Part(each, []) for each in asked], request, seconds)
        requests = [
            msgspec.structs.replace(request, checkpoint=checkpoint, keys=[request.keys[i] for i in each])
            for each in places.values()
        ]
        answers = [_decode_many(answer) for answer in self._all(asked, requests, seconds)]
        parts: dict[int, list[tuple[bytes, bytes]]] = {}
        for each, answer in zip(places.values(), answers, strict=True):
            parts.update(zip(each, answer.parts, strict=True))
        return encode(msgspec.structs.replace(answers[0], parts=[parts[i] for i in range(len(request.keys))]))

    def _hold(self, servers: list[_Registered], request: Hold, seconds: float) -> bytes:
        """Hold a checkpoint at all servers, or renew the lease: also at servers that have got blocks since."""
        checkpoint, leases = request.checkpoint, dict[str, str]()
        if request.lease:
            checkpoint, leases = _leases(request.lease)
        elif checkpoint is None:
            checkpoint = self._common(self._parts(servers), request, seconds).newest
        holding = {part.registered.address: part.registered for part in self._parts(servers, checkpoint)}
        # Those that have given up their blocks can still be needed for others.
        holding |= {each.address: each for each in servers if each.address in leases}
        requests = [
            msgspec.structs.replace(
                request,
                checkpoint=None if address in leases else checkpoint,
                lease=leases.get(address, ""),
            )
            for address in holding
        ]
        held = [_decode_held(answer) for answer in self._all([*holding.values()], requests, seconds)]
        if len({each.lineage for each in held}) > 1:
            raise NotServed("The job has started again, and not all state servers follow it yet.", fix="Try again.")
        pairs = (f"{address}={each.lease}" for address, each in zip(holding, held, strict=True))
        return encode(msgspec.structs.replace(held[0], lease=",".join([str(checkpoint), *pairs])))

    def _all(self, servers: list[_Registered], requests: Sequence[_Forwarded], seconds: float) -> list[bytes]:
        """Ask several servers at the same time."""
        if len(servers) == 1:
            return [self._call(servers[0], requests[0], seconds)]
        return list(self._pool.map(lambda each, request: self._call(each, request, seconds), servers, requests))

    def _stream(self, request: Scan | Changes, seconds: float) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        servers = self._of(request.job)
        since = request.since if isinstance(request, Changes) else None
        parts = self._parts(servers, request.checkpoint if since is None else since)
        if any(each.name == request.state and not each.keyed for each in servers[0].description.states):
            # Every server has all operator state.
            parts = parts[:1]
        elif request.blocks is not None:
            parts = [part for part in parts if not set(part.blocks).isdisjoint(request.blocks)] or parts[:1]
        # This also finds a server that does not answer: a stream could wait for it for a long time.
        checkpoint = self._checkpoint(parts, request, seconds)
        if isinstance(request, Scan) or since is None:
            return self._joined(parts, msgspec.structs.replace(request, checkpoint=checkpoint))
        streams = self._streams(parts, request)
        if any(schema.metadata[RESET] == b"1" for schema, _ in streams):
            complete = msgspec.structs.replace(request, since=None, checkpoint=checkpoint)
            return self._joined(parts, complete)
        return _joined(streams)

    def _joined(self, parts: list[_Part], request: Scan | Changes) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        return _joined(self._streams(parts, request))

    def _streams(self, parts: list[_Part], request: Scan | Changes) -> list[tuple[pa.Schema, Iterator[pa.RecordBatch]]]:
        streams = [self._streamed(part, request) for part in parts]
        if len({(schema.metadata or {}).get(LINEAGE) for schema, _ in streams}) > 1:
            raise NotServed("The job has started again, and not all state servers follow it yet.", fix="Try again.")
        return streams


def _awaiting(request: Request) -> Describe:
    """Return the request that waits for the checkpoint that a read needs."""
    ask = Describe(job=request.job)
    if isinstance(request, Changes) and request.since is not None:
        # Of another lineage, the number says nothing, and the complete state comes next.
        if not request.seen_in:
            return msgspec.structs.replace(ask, at_least=request.since + 1)
        return msgspec.structs.replace(ask, seen=request.since + 1, seen_in=request.seen_in)
    if isinstance(request, Hold):
        return msgspec.structs.replace(
            ask, at_least=request.checkpoint or 0, seen=request.seen, seen_in=request.seen_in
        )
    if isinstance(request, (ReadRequest, Describe)):
        least = max(request.at_least, getattr(request, "checkpoint", None) or 0)
        return msgspec.structs.replace(ask, at_least=least, seen=request.seen, seen_in=request.seen_in)
    return ask


def _block(servers: list[_Registered], state: str, key: bytes) -> int | None:
    """Return the block of a key, or None if no server knows the state."""
    for each in servers:
        for known in each.description.states:
            if known.name == state and known.keyed:
                return runs_of(known.max_parallelism).of(key_group_of(key, known.max_parallelism))
    return None


def _reads_all(server: _Registered, checkpoint: int | None) -> bool:
    blocks = server.description.blocks
    return len(blocks) == BLOCKS and (checkpoint is None or max(blocks.values()) <= checkpoint)


def _best(servers: list[_Registered], block: int, checkpoint: int | None, what: str) -> _Registered:
    """Return the server to ask for a block: one that has the checkpoint, and of those the one that shall keep it."""
    having = [each for each in servers if block in each.description.blocks]
    if not having:
        raise NotServed(
            f"No living state server has {what}.", fix="Try again in a moment, or start another state server."
        )
    readable = [each for each in having if checkpoint is None or each.description.blocks[block] <= checkpoint]
    return min(readable or having, key=lambda each: (len(each.description.blocks), each.address))


def _leases(lease: str) -> tuple[int, dict[str, str]]:
    """Return the checkpoint of a lease, and the lease at each server by its address. Raises BadRequest."""
    number, *pairs = lease.split(",")
    try:
        return int(number), dict(pair.rsplit("=", 1) for pair in pairs)
    except ValueError:
        raise BadRequest("The lease cannot be decoded.", fix="Pass the lease that the proxy returned last.") from None


def _joined(
    streams: list[tuple[pa.Schema, Iterator[pa.RecordBatch]]],
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Return the streams one after the other. A server without rows does not know the type of the keys."""
    schema = next(
        (schema for schema, _ in streams if not any(field.type == pa.null() for field in schema)), streams[0][0]
    )
    batches = chain.from_iterable(each for _, each in streams)
    return schema, (batch if batch.schema == schema else batch.cast(schema) for batch in batches)
