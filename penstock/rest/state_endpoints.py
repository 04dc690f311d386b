"""Endpoints that read queryable state: the states of a job, their rows, one key, and the entries of a map.

They ask the proxy of the job as any client does, in separate threads: a proxy that hangs blocks nothing else. Values
are never unpickled.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from starlette.requests import Request

from penstock.cluster.gateway import Timeout
from penstock.common.json_text import to_json
from penstock.common.options.query import QUERYABLE_STATE
from penstock.common.options.service import WEB_STATE
from penstock.driver.job_snapshot import JobSnapshot
from penstock.query.division import BLOCKS
from penstock.query.errors import NotAllowed, NotEnabled, NotTrusted, ResultTooLarge, TooManyReads, Unreachable
from penstock.rest.bodies import truth, whole
from penstock.rest.endpoints import Endpoint
from penstock.rest.errors import BadRequest, Forbidden
from penstock.rest.service import Service
from penstock.rest.state_types import (
    StateColumn,
    StateEntries,
    StateMapEntry,
    StateRows,
    StateSchema,
    StateTable,
    StateTables,
    StateValue,
)
from penstock.rest.state_values import converted_key, json_key, json_value

if TYPE_CHECKING:
    from penstock.query.client import QueryableStateClient
    from penstock.query.protocol import Description
    from penstock.query.registry import QueryableState

T = TypeVar("T")

_STATES = "/penstock/v1/jobs/:jobid/states"
_AT = ("checkpoint", "at-least")
STATE_ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint("GET", _STATES, StateTables),
    Endpoint("GET", f"{_STATES}/:state", StateSchema, query=_AT),
    Endpoint("GET", f"{_STATES}/:state/rows", StateRows, query=("limit", "cursor", "keys-as-text", *_AT)),
    Endpoint("GET", f"{_STATES}/:state/value", StateValue, query=("key", "key-type", "window", *_AT)),
    Endpoint(
        "GET",
        f"{_STATES}/:state/entries",
        StateEntries,
        query=("key", "key-type", "window", "prefix", "start", "stop", "limit", "cursor", *_AT),
    ),
)

_THREADS = 8
_MOST_WAITING = 32
_PAGE, _LONGEST_PAGE = 100, 1000
_DEEPEST = 1_000_000
"""Rows of its block before a page, which are read and skipped."""
_MOST_BYTES = 4 << 20
"""Size of an answer."""
_FIRST_BYTES = 1 << 20
"""Size after which a page ends."""
_CLIENTS = 64
_PART = 0.7
"""Of `web.timeout`, the time that the proxy gets to try again. Its error says more than that of a late answer."""
_QUERY = "queryable-state."


class _Readers:
    """Threads and connections of one process for all its reads."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_THREADS, "penstock-rest-state")
        self._free = threading.BoundedSemaphore(_THREADS + _MOST_WAITING)
        self._clients: dict[tuple[Any, ...], QueryableStateClient] = {}
        self._lock = threading.Lock()

    async def run(self, read: Callable[[], T], timeout_s: float) -> T:
        """Run a read in a thread. Raises TooManyReads, Timeout."""
        if not self._free.acquire(blocking=False):
            raise TooManyReads(f"{_THREADS + _MOST_WAITING} reads of state are running.", fix="Try again in a moment.")
        future = self._pool.submit(read)
        future.add_done_callback(lambda _: self._free.release())
        try:
            async with asyncio.timeout(timeout_s):
                return await asyncio.wrap_future(future)
        except TimeoutError:
            raise Timeout("The state server of the job did not answer in time.", fix="Try again later.") from None

    def client(self, settings: Mapping[str, str], timeout_s: float) -> QueryableStateClient:
        """Return a client of the proxy with these settings. Raises Unreachable, NotAllowed."""
        # Arrow Flight takes time to load, and many services have no queryable state.
        from penstock.query.locating import connect_to_proxy

        found = {key: value for key, value in settings.items() if key.startswith(_QUERY)}
        place = (timeout_s, *sorted(found.items()))
        client = self._clients.get(place)
        if client is None:
            client = connect_to_proxy(found, timeout_s)
            with self._lock:
                if len(self._clients) >= _CLIENTS:
                    # Reads that use it go on; the connection closes with its last reference.
                    self._clients.pop(next(iter(self._clients)))
                self._clients[place] = client
        return client

    def forget(self, client: QueryableStateClient) -> None:
        """Connect again the next time: the proxy can have moved to another port."""
        with self._lock:
            self._clients = {place: each for place, each in self._clients.items() if each is not client}


_READERS = _Readers()


async def states(service: Service, request: Request) -> StateTables:
    """GET /penstock/v1/jobs/:jobid/states."""
    job = _job(service, request)

    def read(client: QueryableStateClient) -> StateTables:
        found = client.describe(job.id)
        return StateTables(
            job=found.job_id,
            oldest=found.oldest,
            newest=found.newest,
            ended=found.ended,
            states=[_table(each) for each in found.states],
        )

    return await _read(service, job, read)


async def schema(service: Service, request: Request) -> StateSchema:
    """GET /penstock/v1/jobs/:jobid/states/:state."""
    job, name, at = _job(service, request), request.path_params["state"], _moment(request)

    def read(client: QueryableStateClient) -> StateSchema:
        table = _table(_state(client.describe(job.id), name))
        stream, checkpoint = _scan(service, client, job, name, at)
        with stream:
            columns = [StateColumn(name=field.name, type=str(field.type)) for field in stream.schema]
        return StateSchema(checkpoint=checkpoint, state=table, columns=columns)

    return await _read(service, job, read)


async def rows(service: Service, request: Request) -> StateRows:
    """GET /penstock/v1/jobs/:jobid/states/:state/rows: pages of one checkpoint, in an order that does not change."""
    job, name, at = _job(service, request), request.path_params["state"], _moment(request)
    limit, as_text = _limit(request), truth(request, "keys-as-text") or False
    cursor, begin = _given(request, "cursor"), (0, 0)
    if cursor is not None:
        at["checkpoint"], *place = _numbers(cursor, 3)
        begin = (place[0], place[1])
    if begin[1] > _DEEPEST:
        raise BadRequest(
            f"A page begins within the first {_DEEPEST:,} rows of a block.",
            fix="Read the state as an Arrow stream: QueryableStateClient.scan.",
        )

    def read(client: QueryableStateClient) -> StateRows:
        keyed = _state(client.describe(job.id), name).keyed
        number = at["checkpoint"]
        if number is None and at["at_least"]:
            number = _scan(service, client, job, name, at)[1]
        found: list[dict[str, Any]] = []
        size = 0
        with client.pinned(job.id, number) as pinned:
            for block in range(begin[0], BLOCKS if keyed else 1):
                skipped = begin[1] if block == begin[0] else 0
                blocks = [block] if keyed else None
                stream = pinned.scan(name, keys_as_text=as_text, blocks=blocks, timeout=service.timeout_s)
                for place, row in enumerate(_rows_after(stream, skipped), skipped):
                    if len(found) == limit or size >= _FIRST_BYTES:
                        following = f"{pinned.checkpoint}-{block}-{place}"
                        return StateRows(checkpoint=pinned.checkpoint, rows=found, cursor=following)
                    found.append(_small({column: json_value(value) for column, value in row.items()}))
                    size += len(to_json(found[-1]))
            return StateRows(checkpoint=pinned.checkpoint, rows=found, cursor=None)

    return await _read(service, job, read)


async def value(service: Service, request: Request) -> StateValue:
    """GET /penstock/v1/jobs/:jobid/states/:state/value?key=…"""
    job, name, at = _job(service, request), request.path_params["state"], _moment(request)
    key, window = _key(request), _window(request)

    def read(client: QueryableStateClient) -> StateValue:
        state = _state(client.describe(job.id), name)
        found = client.read(job.id, name, _typed(request, state, key), window=window, **at)
        if state.kind == "map":
            shown: Any = [_entry(*each) for each in found.value.items()]
        else:
            shown = json_value(found.value)
        return _small(StateValue(checkpoint=found.checkpoint, value=shown))

    return await _read(service, job, read)


async def entries(service: Service, request: Request) -> StateEntries:
    """GET /penstock/v1/jobs/:jobid/states/:state/entries?key=…"""
    job, name, at = _job(service, request), request.path_params["state"], _moment(request)
    key, window, limit = _key(request), _window(request), _limit(request)
    bounds = {each: json_key(each, text) for each in ("prefix", "start", "stop") if (text := _given(request, each))}
    cursor = request.query_params.get("cursor")
    after: bytes | None = None
    if cursor is not None:
        at["checkpoint"], after = _entries_cursor(cursor)

    def read(client: QueryableStateClient) -> StateEntries:
        state = _state(client.describe(job.id), name)
        wanted = _typed(request, state, key)
        page = client.entries(job.id, name, wanted, **bounds, limit=limit, cursor=after, window=window, **at)
        following = None if page.cursor is None else f"{page.checkpoint}-{page.cursor.hex()}"
        shown = [_entry(*each) for each in page.entries.items()]
        return _small(StateEntries(checkpoint=page.checkpoint, entries=shown, cursor=following))

    return await _read(service, job, read)


def _job(service: Service, request: Request) -> JobSnapshot:
    """Return the job in the path. Raises UnknownJob, Forbidden, NotEnabled."""
    if not WEB_STATE.read(service.gateway.settings):
        raise Forbidden(f"This service shows no state of jobs, because {WEB_STATE.key} is false.")
    job = service.gateway.job(request.path_params["jobid"])
    if job.configuration and not QUERYABLE_STATE.read(job.configuration):
        raise NotEnabled(
            f"Job {job.id} runs without queryable state.",
            fix=f"Set {QUERYABLE_STATE.key} to true and start the job again.",
        )
    return job


async def _read(service: Service, job: JobSnapshot, read: Callable[[QueryableStateClient], T]) -> T:
    settings = {**service.gateway.settings, **job.configuration}

    def with_client() -> T:
        client = _READERS.client(settings, _PART * service.timeout_s)
        try:
            return read(client)
        except (Unreachable, NotAllowed, NotTrusted):
            _READERS.forget(client)
            raise

    return await _READERS.run(with_client, service.timeout_s)


def _state(description: Description, name: str) -> QueryableState:
    from penstock.query.registry import named_state

    return named_state({each.name: each for each in description.states}, name, description.newest)


def _table(state: QueryableState) -> StateTable:
    return StateTable(
        name=state.name,
        uid=state.uid,
        operator=state.operator,
        state=state.state,
        kind=state.kind,
        type=state.type,
        key_type=state.key_type,
        ttl_ms=state.ttl_ms,
    )


def _scan(
    service: Service, client: QueryableStateClient, job: JobSnapshot, name: str, at: dict[str, Any]
) -> tuple[Any, int]:
    from penstock.query.protocol import CHECKPOINT

    stream = client.scan(job.id, name, timeout=service.timeout_s, **at)
    return stream, int(stream.schema.metadata[CHECKPOINT])


def _rows_after(stream: Any, skipped: int) -> Iterator[dict[str, Any]]:
    for batch in stream:
        if skipped >= batch.num_rows:
            skipped -= batch.num_rows
            continue
        # A batch can have thousands of rows, of which the page shows a few.
        for row in range(skipped, batch.num_rows):
            yield {name: column[row].as_py() for name, column in zip(batch.schema.names, batch.columns)}
        skipped = 0


def _entry(key: Any, value: Any) -> StateMapEntry:
    return StateMapEntry(key=json_value(key), value=json_value(value))


def _small(answer: T) -> T:
    """Return the answer. Raises ResultTooLarge."""
    size = len(to_json(answer))
    if size > _MOST_BYTES:
        raise ResultTooLarge(
            f"The answer has {size:,} bytes, but the limit is {_MOST_BYTES:,}.",
            fix="Set a smaller limit, read a map by its entries, or use QueryableStateClient.",
        )
    return answer


# -- parameters ------------------------------------------------------------------------------------------------------


def _given(request: Request, name: str) -> str | None:
    return request.query_params.get(name)


def _key(request: Request) -> Any:
    text = _given(request, "key")
    if text is None:
        raise BadRequest(
            "The query parameter 'key' is missing.",
            fix=f"Pass the key as JSON, such as key={quote(chr(34) + 'ann' + chr(34))} or key=5.",
        )
    return json_key("key", text)


def _typed(request: Request, state: QueryableState, key: Any) -> Any:
    return converted_key(key, _given(request, "key-type") or state.key_type)


def _moment(request: Request) -> dict[str, Any]:
    return {"checkpoint": whole(request, "checkpoint"), "at_least": whole(request, "at-least") or 0}


def _limit(request: Request) -> int:
    limit = whole(request, "limit") or _PAGE
    if limit > _LONGEST_PAGE:
        raise BadRequest(f"A page has at most {_LONGEST_PAGE:,} elements.", fix="Continue with the cursor of the page.")
    return limit


def _window(request: Request) -> Any:
    text = _given(request, "window")
    if text is None:
        return None
    try:
        numbers = [int(part) for part in text.split(",")]
        if len(numbers) <= 2 and all(-(1 << 63) <= each < 1 << 63 for each in numbers):
            return numbers[0] if len(numbers) == 1 else tuple(numbers)
    except ValueError:
        pass
    raise BadRequest(
        "The query parameter 'window' is not a window.",
        fix="Pass its start and end in milliseconds, such as window=0,1000, or the number of a count window.",
    )


def _numbers(cursor: str, count: int) -> list[int]:
    parts = cursor.split("-")
    if len(parts) != count or not all(part.isascii() and part.isdecimal() and len(part) < 16 for part in parts):
        raise _bad_cursor()
    return [int(part) for part in parts]


def _entries_cursor(text: str) -> tuple[int, bytes]:
    checkpoint, _, last = text.partition("-")
    try:
        return _numbers(checkpoint, 1)[0], bytes.fromhex(last)
    except ValueError:
        raise _bad_cursor() from None


def _bad_cursor() -> BadRequest:
    return BadRequest("The query parameter 'cursor' is not a cursor.", fix="Pass the cursor of the page before.")
