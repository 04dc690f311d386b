"""Redis Streams as a source: a split for each stream, positions that are entry ids.

A position counts the entries read so far as well. Ids only grow, so the entries between two ids are the same ones
whenever there are as many of them: whoever reads a range again finds out what was deleted meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

from penstock.connectors.redis.entries import RedisEntry, checked_id, ordered
from penstock.connectors.redis.server import DEFAULT_RETRY, RedisEndpoint, RetryTime
from penstock.connectors.source import Positions, Source
from penstock.errors import PenstockError

_PAGE = 1000
"""Entries asked for at a time. Measured with entries of 60 bytes: Redis counts 1000 of them in 2 ms."""

# What follows an id, counted in the server, so that it is not sent twice; and, at the same moment, whether anything up
# to that id is left: trimming goes from the oldest on, so if it is, nothing after it was trimmed.
_COUNT = """
if redis.call('EXISTS', KEYS[1]) == 0 then return {0} end
local facts = {}
local info = redis.call('XINFO', 'STREAM', KEYS[1])
for i = 1, #info, 2 do facts[info[i]] = info[i + 1] end
local before = redis.call('XREVRANGE', KEYS[1], ARGV[1], '-', 'COUNT', 1)
local page = redis.call('XRANGE', KEYS[1], '(' .. ARGV[1], ARGV[2], 'COUNT', ARGV[3])
return {1, facts['last-generated-id'], #before, #page, #page > 0 and page[#page][1] or ''}
"""

_logger = logging.getLogger("penstock")


class EntriesMissing(PenstockError):
    """Entries that were to be read are not there any more."""

    retryable = False


class _Page(NamedTuple):
    """What follows an id, up to another."""

    newest: str
    """The last id that the stream gave, whether the entry is still there or not."""
    rooted: bool
    """Whether an entry up to the first id is left."""
    entries: int
    last: str


class RedisStreamSource(Source):
    """The entries of one or several streams; each stream is read in order.

    `start`: "beginning", "end", or an id, after which reading begins (as with XREAD); for streams no checkpoint knows.
    `bounded`: read what is there when the job starts, then end.
    `decode`: a function of a `RedisEntry`, such as `json_field("order")`; without it records are dicts of text.
    `wait_for_streams`: whether a stream that does not exist is waited for; else it is an error.
    `missing`: "fail" if entries were deleted before they were read for good; "skip" to warn and go on without them.
    `trim`: delete what has been read when a checkpoint holds it (XTRIM MINID), the last entry read excepted.
    `retry_for`: how long a server that cannot be reached is tried.
    """

    def __init__(
        self,
        url: str,
        *streams: str,
        start: str = "beginning",
        bounded: bool = False,
        decode: Callable[[RedisEntry], Any] | None = None,
        wait_for_streams: bool = False,
        missing: str = "fail",
        trim: bool = False,
        password: str | None = None,
        retry_for: RetryTime = DEFAULT_RETRY,
    ) -> None:
        names = ", ".join(f"'{stream}'" for stream in streams)
        self._server = RedisEndpoint(f"RedisStreamSource of {names}", url, password, retry_for)
        if not streams or len(set(streams)) < len(streams) or not all(isinstance(name, str) for name in streams):
            raise PenstockError("RedisStreamSource needs keys of streams, each once: RedisStreamSource(url, 'orders').")
        first = start if start in ("beginning", "end") else checked_id(str(start))
        if first is None:
            raise PenstockError(
                f"RedisStreamSource: start must be 'beginning', 'end' or the id of an entry such as "
                f"'1700000000000-0', not {start!r}."
            )
        if missing not in ("fail", "skip"):
            raise PenstockError(f"RedisStreamSource: missing must be 'fail' or 'skip', not {missing!r}.")
        if bounded and wait_for_streams:
            raise PenstockError("RedisStreamSource: a bounded one reads what is there; leave wait_for_streams out.")
        self._streams = streams
        self._first = first
        self._decode = decode or RedisEntry.text
        self._wait = wait_for_streams
        self._skips = missing == "skip"
        self._trims = trim
        self.bounded = bounded
        self.replayable = not self._skips
        self.why = (
            "entries that were deleted before they were read are passed over (missing='skip')"
            if self._skips
            else "a Redis stream keeps its entries, and entries that are gone when they are to be read fail the job"
        )
        self._counted: dict[str, tuple[str, int]] = {}
        """In the planner, by stream: up to which id entries were counted for `backlog`, and how many those were."""

    def __repr__(self) -> str:
        return f"RedisStreamSource({self._server.name}, {', '.join(self._streams)})"

    # -- in the planner --------------------------------------------------------------------------------------------

    def start(self, parallelism: int) -> Positions:
        return {stream: self._beginning(stream) for stream in self._streams}

    def advance(self, positions: Positions, limit: int | None) -> Positions:
        """Streams share the limit evenly; what some leave of it, the others may have."""
        hungry = [stream for stream in self._streams if stream in positions]
        ahead = {**positions, **{stream: self._fitted(stream, positions[stream]) for stream in hungry}}
        while hungry and limit != 0:
            share = None if limit is None else -(-limit // len(hungry))
            fed, hungry = hungry, []
            # Those of which least was read go first: where the limit is smaller than their number, all have a turn.
            for stream in sorted(fed, key=lambda stream: ahead[stream]["read"]):
                part = share if limit is None else min(share or 0, limit)
                if part == 0:
                    break
                before, ahead[stream] = ahead[stream]["read"], self._further(stream, ahead[stream], part)
                if limit is not None:
                    taken = ahead[stream]["read"] - before
                    limit -= taken
                    hungry += [stream] if taken == part else []
        for stream in self._streams:
            if stream not in positions:
                # New in the program: read from the next epoch on, when it is logged where it begins.
                ahead[stream] = self._beginning(stream)
        return ahead

    def backlog(self, positions: Positions) -> int | None:
        """How many entries follow these positions. Each is counted once, however often this is asked."""
        total = 0
        for stream in self._streams:
            position = positions.get(stream)
            if position is None:
                return None
            last, read = max(
                (position["id"], position["read"]), self._counted.get(stream, ("0-0", 0)), key=lambda at: ordered(at[0])
            )
            for page in self._pages(stream, last, position.get("until", "+"), None):
                last, read = page.last or last, read + page.entries
            self._counted[stream] = last, read
            total += read - position["read"]
        return total

    def commit(self, positions: Positions) -> None:
        if self._trims:
            for stream, position in positions.items():
                if position["read"] and stream in self._streams:
                    self._server.ask(partial(_trim, stream, position["id"]), _about(stream))

    def _beginning(self, stream: str) -> dict[str, Any]:
        """Where reading begins: {"id": after this, "read": entries so far, "rooted": see _Page, "until": last id}."""
        page = self._page(stream, "0-0" if self._first in ("beginning", "end") else self._first, "+", 1)
        position: dict[str, Any] = {"id": "0-0", "read": 0, "rooted": False}
        if page is None:
            if not self._wait:
                raise self._absent(stream)
            return position if self._first in ("beginning", "end") else {**position, "id": self._first}
        if self._first == "end":
            position["id"] = page.newest
            position["rooted"] = page.entries > 0
        elif self._first != "beginning":
            position["id"] = self._first
            position["rooted"] = page.rooted
        if self.bounded:
            position["until"] = page.newest
        return position

    def _fitted(self, stream: str, position: dict[str, Any]) -> dict[str, Any]:
        """The position, if the source was bounded when it was made and is not now, or the other way round."""
        if self.bounded == ("until" in position):
            return position
        if not self.bounded:
            return {key: value for key, value in position.items() if key != "until"}
        page = self._page(stream, position["id"], "+", 1)
        if page is None:
            raise self._absent(stream)
        return {**position, "until": page.newest}

    def _further(self, stream: str, position: dict[str, Any], share: int | None) -> dict[str, Any]:
        """The position after at most `share` more entries."""
        last, read, until = position["id"], position["read"], position.get("until", "+")
        if until == last:
            return position
        for page in self._pages(stream, last, until, share, rooted=position["rooted"]):
            last, read = page.last or last, read + page.entries
            if page.entries == 0 and position["rooted"] and not page.rooted:
                # Passed over: see _miss. Not to be told of it again, reading goes on behind what is gone.
                return {**position, "id": page.newest, "rooted": False}
        if read == position["read"] and until == "+":
            return position
        if until != "+" and (share is None or read - position["read"] < share):
            # The last entry itself may have been deleted.
            last = until
        return {**position, "id": last, "read": read, "rooted": position["rooted"] or read > position["read"]}

    def _pages(self, stream: str, after: str, until: str, limit: int | None, rooted: bool = False) -> Iterable[_Page]:
        """What there is now after an id, counted page by page; `rooted`: an entry up to that id must be left."""
        target = None
        while limit is None or limit > 0:
            size = _PAGE if limit is None else min(_PAGE, limit)
            page = self._page(stream, after, target or until, size)
            if page is None:
                if rooted or not self._wait:
                    raise self._absent(stream)
                return
            if rooted:
                self._check_rooted(stream, after, page)
            if target is None and until == "+":
                # Not what is added while this counts: that might never end.
                target = page.newest
                if ordered(target) <= ordered(after):
                    return
            yield page
            if page.entries < size:
                return
            limit = None if limit is None else limit - page.entries
            after, rooted = page.last, True

    def _page(self, stream: str, after: str, until: str, size: int) -> _Page | None:
        """None where there is no such stream."""
        answer = self._server.ask(
            lambda client: client.register_script(_COUNT)(keys=[stream], args=[after, until, size]), _about(stream)
        )
        if answer[0] == 0:
            return None
        return _Page(answer[1].decode(), bool(answer[2]), answer[3], answer[4].decode())

    def _check_rooted(self, stream: str, after: str, page: _Page) -> None:
        if ordered(page.newest) < ordered(after):
            raise EntriesMissing(
                f"The Redis stream '{stream}' at {self._server.name} was read up to {after}, but it only ever went to "
                f"{page.newest}: it is another stream, or the server lost what it had.",
                fix="Restore the server's data, or begin anew: give the source another uid.",
            )
        if not page.rooted and page.newest != after:
            self._miss(
                f"The Redis stream '{stream}' at {self._server.name} was read up to {after}, and nothing up to there "
                f"is left: it was trimmed at least so far, so entries that were never read may be gone.",
                "Keep more of the stream (MAXLEN, MINID), and always the last entry that was read.",
            )

    def _absent(self, stream: str) -> PenstockError:
        return EntriesMissing(
            f"There is no Redis stream '{stream}' at {self._server.name}.",
            fix="Correct the key, or let the source wait for a stream that is still to come: wait_for_streams=True.",
        )

    def _miss(self, problem: str, fix: str) -> None:
        if not self._skips:
            raise EntriesMissing(problem, fix=f"{fix} To go on without what is missing: missing='skip'.")
        _logger.warning("%s The job goes on without them (missing='skip').", problem)

    # -- in the tasks ----------------------------------------------------------------------------------------------

    def read(self, split: str, start: Any, end: Any) -> Iterable[Any]:
        if start is None:
            return
        wanted, found, after = end["read"] - start["read"], 0, start["id"]
        while found < wanted:
            size = min(_PAGE, wanted - found)
            page = self._server.ask(partial(_entries, split, after, end["id"], size), _about(split))
            if not page:
                self._miss(
                    f"Of the Redis stream '{split}' at {self._server.name} {wanted} entries after {start['id']} up to "
                    f"{end['id']} were to be read, and {found} are left: the others were deleted meanwhile.",
                    "Keep more of the stream (MAXLEN, MINID): what no checkpoint holds may be read again.",
                )
                return
            for entry_id, fields in page:
                after = entry_id.decode()
                entry = RedisEntry(split, after, fields)
                try:
                    record = self._decode(entry)
                except Exception as error:  # the user's function may raise anything
                    record = self.unreadable(split, f"entry {after}", entry.shown(), f"{type(error).__name__}: {error}")
                yield record
            found += len(page)

    def ends(self, split: str, position: Any) -> bool:
        return position is not None and position["id"] == position.get("until")

    def close(self) -> None:
        self._server.close()


def _entries(stream: str, after: str, until: str, size: int, client: Any) -> Any:
    return client.xrange(stream, f"({after}", until, count=size)


def _trim(stream: str, to: str, client: Any) -> Any:
    return client.xtrim(stream, minid=to, approximate=True)


def _about(stream: str) -> str:
    return f"the stream '{stream}'"
