"""Redis Streams as a source: a split is a stream, and a position contains an entry id.

A position also counts the entries read so far. Ids are strictly increasing, so a range between two ids is unchanged if
and only if it still has the same number of entries. This is how a replay detects entries deleted in the meantime.
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
"""Entries per request. Measured with 60-byte entries: Redis counts 1000 of them in 2 ms."""

# Counts the entries after an id in the server, to avoid transferring them twice. Atomically checks that an entry up to
# that id still exists: streams are trimmed from the oldest entry, so in that case nothing after the id was trimmed.
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
    """A Redis stream does not exist, or its entries were deleted before they were read.

    Operator action: trim the stream less. To accept the loss, give the source a new uid.
    """

    retryable = False


class _Page(NamedTuple):
    """The entries after one id, up to another."""

    newest: str
    """The last id that the stream generated, whether or not the entry still exists."""
    rooted: bool
    """Whether an entry at or before the first id still exists."""
    entries: int
    last: str


class RedisStreamSource(Source):
    """Read the entries of one or several streams, each stream in order.

    Args:
        url: The server, as ``redis://[user[:password]@]host[:port][/database]``, ``rediss://...`` or ``unix:///path``.
        *streams: Keys of the streams.
        start: "beginning", "end", or an entry id after which to start (as in XREAD); for streams without a checkpoint.
        bounded: Read the entries that exist when the job starts, then end.
        decode: Function of a ``RedisEntry``, such as ``json_field("order")``. By default records are dicts of text.
        wait_for_streams: Wait for a stream that does not exist, instead of failing.
        missing: "fail" if entries were deleted before a checkpoint holds them; "skip" to log a warning and continue.
        trim: Delete entries once a checkpoint holds them (XTRIM MINID), except the last one.
        password: Password of the server, instead of in the URL.
        retry_for: How long to retry while the server is unavailable.
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
            raise PenstockError("RedisStreamSource needs distinct stream keys: RedisStreamSource(url, 'orders').")
        first = start if start in ("beginning", "end") else checked_id(str(start))
        if first is None:
            raise PenstockError(
                f"RedisStreamSource: start must be 'beginning', 'end' or an entry id such as '1700000000000-0', "
                f"not {start!r}."
            )
        if missing not in ("fail", "skip"):
            raise PenstockError(f"RedisStreamSource: missing must be 'fail' or 'skip', not {missing!r}.")
        if bounded and wait_for_streams:
            raise PenstockError(
                "RedisStreamSource: wait_for_streams needs an unbounded source; remove it or bounded=True."
            )
        self._streams = streams
        self._first = first
        self._decode = decode or RedisEntry.text
        self._wait = wait_for_streams
        self._skips = missing == "skip"
        self._trims = trim
        self.bounded = bounded
        self.replayable = not self._skips
        self.why = (
            "it skips entries that were deleted before they were read (missing='skip')"
            if self._skips
            else "a Redis stream keeps its entries, and the job fails if entries are deleted before they are read"
        )
        self._counted: dict[str, tuple[str, int]] = {}
        """By stream, in the planner: the id up to which `backlog` has counted, and the number of entries so far."""

    def __repr__(self) -> str:
        return f"RedisStreamSource({self._server.name}, {', '.join(self._streams)})"

    # -- in the planner --------------------------------------------------------------------------------------------

    def start(self, parallelism: int) -> Positions:
        return {stream: self._beginning(stream) for stream in self._streams}

    def advance(self, positions: Positions, limit: int | None) -> Positions:
        """Return the next positions. Streams share the limit evenly, and unused shares go to the others."""
        hungry = [stream for stream in self._streams if stream in positions]
        ahead = {**positions, **{stream: self._fitted(stream, positions[stream]) for stream in hungry}}
        while hungry and limit != 0:
            share = None if limit is None else -(-limit // len(hungry))
            fed, hungry = hungry, []
            # Streams with the fewest entries read go first, so each gets a turn if the limit is below their number.
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
                # New in the program: log its start position in this epoch and read from the next one on.
                ahead[stream] = self._beginning(stream)
        return ahead

    def backlog(self, positions: Positions) -> int | None:
        """Return the number of entries after ``positions``. Each entry is counted only once over all calls."""
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
        """Return the start: {"id": read after this, "read": entries so far, "rooted": see _Page, "until": last id}."""
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
        """Convert the position of a bounded source for an unbounded one, and vice versa."""
        if self.bounded == ("until" in position):
            return position
        if not self.bounded:
            return {key: value for key, value in position.items() if key != "until"}
        page = self._page(stream, position["id"], "+", 1)
        if page is None:
            raise self._absent(stream)
        return {**position, "until": page.newest}

    def _further(self, stream: str, position: dict[str, Any], share: int | None) -> dict[str, Any]:
        """Return the position after at most `share` more entries."""
        last, read, until = position["id"], position["read"], position.get("until", "+")
        if until == last:
            return position
        for page in self._pages(stream, last, until, share, rooted=position["rooted"]):
            last, read = page.last or last, read + page.entries
            if page.entries == 0 and position["rooted"] and not page.rooted:
                # Skipped, see _miss. Continue after the missing entries, to warn only once.
                return {**position, "id": page.newest, "rooted": False}
        if read == position["read"] and until == "+":
            return position
        if until != "+" and (share is None or read - position["read"] < share):
            # The last entry itself can have been deleted.
            last = until
        return {**position, "id": last, "read": read, "rooted": position["rooted"] or read > position["read"]}

    def _pages(self, stream: str, after: str, until: str, limit: int | None, rooted: bool = False) -> Iterable[_Page]:
        """Count the entries after an id, page by page; `rooted`: an entry up to that id must still exist."""
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
                # Ignore entries added while counting, or this might never end.
                target = page.newest
                if ordered(target) <= ordered(after):
                    return
            yield page
            if page.entries < size:
                return
            limit = None if limit is None else limit - page.entries
            after, rooted = page.last, True

    def _page(self, stream: str, after: str, until: str, size: int) -> _Page | None:
        """Return a page, or None if the stream does not exist."""
        answer = self._server.ask(
            lambda client: client.register_script(_COUNT)(keys=[stream], args=[after, until, size]), _about(stream)
        )
        if answer[0] == 0:
            return None
        return _Page(answer[1].decode(), bool(answer[2]), answer[3], answer[4].decode())

    def _check_rooted(self, stream: str, after: str, page: _Page) -> None:
        if ordered(page.newest) < ordered(after):
            raise EntriesMissing(
                f"The Redis stream '{stream}' at {self._server.name} was read up to {after}, but its last id is only "
                f"{page.newest}: it was recreated, or the server lost data.",
                fix="Restore the server's data, or start over by giving the source another uid.",
            )
        if not page.rooted and page.newest != after:
            self._miss(
                f"The Redis stream '{stream}' at {self._server.name} was read up to {after}, but no entry up to there "
                f"exists any more: the stream was trimmed beyond this id, so unread entries might be lost.",
                "Trim the stream less (MAXLEN, MINID), and always keep the last entry that was read.",
            )

    def _absent(self, stream: str) -> PenstockError:
        return EntriesMissing(
            f"The Redis stream '{stream}' does not exist at {self._server.name}.",
            fix="Correct the key, or let the source wait for the stream: wait_for_streams=True.",
        )

    def _miss(self, problem: str, fix: str) -> None:
        if not self._skips:
            raise EntriesMissing(problem, fix=f"{fix} To continue without the missing entries, set missing='skip'.")
        _logger.warning("%s Continuing without them (missing='skip').", problem)

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
                    f"The Redis stream '{split}' at {self._server.name} has only {found} of the {wanted} entries to "
                    f"read after {start['id']} up to {end['id']}: the others were deleted.",
                    "Trim the stream less (MAXLEN, MINID): entries outside a checkpoint can be read again.",
                )
                return
            for entry_id, fields in page:
                after = entry_id.decode()
                entry = RedisEntry(split, after, fields)
                try:
                    record = self._decode(entry)
                except Exception as error:  # the user's function can raise anything
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
