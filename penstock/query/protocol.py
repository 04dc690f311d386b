"""What clients, proxies and state servers send to each other, as msgpack in Arrow Flight actions and tickets.

Every field has a type that msgspec checks, and nothing that arrives is ever evaluated or unpickled.
"""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.errors import PenstockError
from penstock.query.errors import BY_CODE, BadRequest, QueryError
from penstock.query.reads import Change, MapRange
from penstock.query.registry import QueryableState
from penstock.query.stored import Parts

_LONGEST_WAIT_MS = 600_000
LONGEST_LEASE_MS = 600_000


class Request(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True, tag_field="read"):
    """A request about one job."""

    job: str
    """The id or the name of the job."""
    deadline_ms: int = 5_000
    """How long to try, and to wait for a checkpoint."""

    def __post_init__(self) -> None:
        if not 0 <= self.deadline_ms <= _LONGEST_WAIT_MS:
            raise ValueError(f"a deadline is at most {_LONGEST_WAIT_MS} ms")


class ReadRequest(Request, kw_only=True, frozen=True):
    """A read of one state at one checkpoint."""

    state: str
    checkpoint: int | None = None
    """None for the newest one."""
    lineage: str = ""
    """That of `checkpoint`; empty for the current one."""
    at_least: int = 0
    """The checkpoint that the newest one must have reached."""
    seen: int = 0
    """The last checkpoint that the client has seen in the lineage `seen_in`: numbers of two lineages do not compare."""
    seen_in: str = ""

    def least_in(self, lineage: str) -> int:
        """Return the checkpoint that the newest one of a lineage must have reached."""
        return max(self.at_least, self.seen if self.seen_in == lineage else 0)


class Get(ReadRequest, kw_only=True, frozen=True, tag="get"):
    """Read one key."""

    key: bytes
    window: bytes = b""


class GetMany(ReadRequest, kw_only=True, frozen=True, tag="get-many"):
    """Read many keys at one checkpoint."""

    keys: list[bytes]
    window: bytes = b""


class Entries(ReadRequest, kw_only=True, frozen=True, tag="entries"):
    """Read entries of the map of a key."""

    key: bytes
    wanted: MapRange
    window: bytes = b""


class Scan(ReadRequest, kw_only=True, frozen=True, tag="scan"):
    """Read a complete state, as a stream of record batches."""

    keys_as_text: bool = False
    keys: list[bytes] | None = None
    """Only these keys; None for all."""
    blocks: list[int] | None = None
    """The blocks to read; None for all."""


class Changes(ReadRequest, kw_only=True, frozen=True, tag="changes"):
    """Read the changes of the checkpoint after `since`, as a stream of `Change`."""

    since: int | None = None
    """None for the complete state of the newest checkpoint, or of `checkpoint`."""
    blocks: list[int] | None = None
    """The blocks to read, for a state server; None for all."""


class Describe(Request, kw_only=True, frozen=True, tag="describe"):
    """Return the readable checkpoints of a job and its queryable states."""

    at_least: int = 0
    """The checkpoint that the newest one must have reached."""
    seen: int = 0
    seen_in: str = ""
    """As in reads."""

    def least_in(self, lineage: str) -> int:
        """Return the checkpoint that the newest one of a lineage must have reached."""
        return max(self.at_least, self.seen if self.seen_in == lineage else 0)


class Hold(Request, kw_only=True, frozen=True, tag="hold"):
    """Keep a checkpoint readable."""

    checkpoint: int | None = None
    """None for the newest one."""
    seen: int = 0
    seen_in: str = ""
    """As in reads."""
    lease_ms: int = 60_000
    lease: str = ""
    """The lease to renew; empty for a new one."""

    def least_in(self, lineage: str) -> int:
        """Return the checkpoint that the newest one of a lineage must have reached."""
        return self.seen if self.seen_in == lineage else 0


class Release(Request, kw_only=True, frozen=True, tag="release"):
    """Give up a lease."""

    lease: str


class Jobs(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True, tag_field="read", tag="jobs"):
    """Return the jobs that are served."""


class Description(msgspec.Struct, kw_only=True, frozen=True):
    """The answer to `Describe`."""

    job_id: str
    job_name: str
    lineage: str
    """Where the checkpoints are: numbers of two lineages do not compare."""
    oldest: int
    newest: int
    ended: bool
    timestamp: int
    """The processing time of the newest checkpoint, in milliseconds."""
    states: list[QueryableState]
    blocks: dict[int, int] = {}
    """The blocks of the job that a server has, each with its oldest readable checkpoint."""


class Announcement(msgspec.Struct, kw_only=True, frozen=True):
    """What a state server tells the others about itself and one job."""

    server: str
    """Its id, hexadecimal."""
    beat: int
    """Grows with each announcement."""
    address: str
    reach: str
    """The host where the address is valid; empty for everywhere."""
    wanted: list[int]
    """The blocks that it has or is about to build."""
    leaving: bool = False
    """Whether it is about to end."""
    description: Description


class Register(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True, tag_field="read", tag="register"):
    """A state server tells a proxy what it serves. It repeats this every second."""

    address: str
    jobs: list[Description]
    others: list[Announcement] = []
    """The other servers of these jobs that the host of the proxy can reach."""


class Found(msgspec.Struct, kw_only=True, frozen=True):
    """The answer to `Get`."""

    checkpoint: int
    lineage: str
    kind: str
    type: str
    parts: Parts


class FoundMany(msgspec.Struct, kw_only=True, frozen=True):
    """The answer to `GetMany`, in the order of the keys."""

    checkpoint: int
    lineage: str
    kind: str
    type: str
    parts: list[Parts]


class FoundEntries(msgspec.Struct, kw_only=True, frozen=True):
    """The answer to `Entries`."""

    checkpoint: int
    lineage: str
    kind: str
    type: str
    parts: Parts
    cursor: bytes | None


class Held(msgspec.Struct, kw_only=True, frozen=True):
    """The answer to `Hold`."""

    checkpoint: int
    lineage: str
    lease: str


class Failure(msgspec.Struct, kw_only=True, frozen=True):
    """An error, as it travels."""

    code: str
    problem: str
    fix: str


AnyRequest = Get | GetMany | Entries | Scan | Changes | Describe | Hold | Release | Jobs | Register
STREAMS = (Scan, Changes)
"""Requests whose answers are streams."""
CHECKPOINT, LINEAGE, RESET = b"penstock.checkpoint", b"penstock.lineage", b"penstock.reset"
KIND, TYPE = b"penstock.kind", b"penstock.type"
TIMESTAMP = b"penstock.timestamp"
"""Metadata of streams. `TIMESTAMP` is the processing time of the checkpoint."""

encode = msgspec.msgpack.Encoder().encode
_decode_request = msgspec.msgpack.Decoder(AnyRequest).decode
decode_changes = msgspec.msgpack.Decoder(list[Change]).decode
decode_failure = msgspec.msgpack.Decoder(Failure).decode


def decode_request(data: Any) -> AnyRequest:
    """Return a request. Raises BadRequest."""
    try:
        request: AnyRequest = _decode_request(data)
        return request
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise BadRequest(
            f"The request cannot be decoded: {error}.", fix="Use a client of the version of the server."
        ) from None


def encode_failure(error: BaseException) -> bytes:
    """Return an error for the client. An unexpected one sends only its type."""
    if isinstance(error, QueryError):
        failure = Failure(code=error.code, problem=error.statement(), fix=error.fix)
    elif isinstance(error, PenstockError):
        failure = Failure(code=QueryError.code, problem=error.statement(), fix=error.fix)
    else:
        problem = f"The server failed with {type(error).__name__}."
        failure = Failure(code=QueryError.code, problem=problem, fix="The log of the server has the details.")
    return encode(failure)


def error_of(failure: Failure) -> QueryError:
    """Return the error that a server has sent."""
    return BY_CODE.get(failure.code, QueryError)(failure.problem, fix=failure.fix)
