"""Limits of what clients can ask of a proxy or a state server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.common.options.query import SERVER_THREADS
from penstock.query.errors import BadRequest, ResultTooLarge, TooManyReads

_WAIT_S = 1.0


class Turns:
    """Lets a limited number of requests run at the same time."""

    def __init__(self, most: int = SERVER_THREADS.default) -> None:
        self._most = most
        self._free = threading.Semaphore(most)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for a turn, for a second at most. Raises TooManyReads."""
        if not self._free.acquire(timeout=_WAIT_S):
            raise TooManyReads(
                f"{self._most} requests are running, and none of them ended within {_WAIT_S:g} s.",
                fix="Try again in a moment, or raise queryable-state.server.query-threads.",
            )
        try:
            yield
        finally:
            self._free.release()


def check_request(size: int, most: int) -> None:
    """Raise BadRequest for a request that is too large."""
    if size > most:
        raise BadRequest(
            f"The request has {size:,} bytes, but the limit is {most:,}.",
            fix="Ask for fewer keys at a time, or raise queryable-state.max-request-size.",
        )


def check_result(size: int, most: int) -> None:
    """Raise ResultTooLarge for an answer that is too large."""
    if size > most:
        raise ResultTooLarge(
            f"The answer has {size:,} bytes or more, but the limit is {most:,}.",
            fix="Ask for fewer keys, set a limit and continue at the cursor, or scan the state. The limit is "
            "queryable-state.max-result-size.",
        )
