"""Lines of text from a socket, for trying things out: whoever sends them does not send them again.

The planner holds the connection. The lines of an epoch are in its position: so they are logged before it runs, and come
again with it; nothing that was read from the socket and is in no position outlives the planner.
"""

from __future__ import annotations

import logging
import select
import socket
from collections import deque
from collections.abc import Iterable
from time import monotonic
from typing import Any

from penstock.connectors.source import Positions, Source
from penstock.errors import PenstockError

_EPOCH_BYTES = 512 << 10
"""Text of one epoch: positions are in manifests, and Spark keeps a few hundred of them in memory."""
_LINE_BYTES = 16 << 20
_GLANCE_S = 0.02
"""How long `advance` looks whether something comes: between two looks Spark waits half as long."""
_CONNECT_S = 5
_RETRY_S = 1.0
"""Between two attempts to connect, as in Flink."""

_logger = logging.getLogger("penstock")


class SocketFailed(PenstockError):
    """Nobody listens, or the connection broke."""


class SocketTextSource(Source[str]):
    """Made by `env.socket_text_stream`. Ends when the other side closes the connection and does not come back.

    `max_retry`: how many seconds a connection that ended, or cannot be made, is tried; below 0: without end.
    A position is {"line": lines so far, "lines": those of the epoch that ends here, "ended": whether it is the last}.
    """

    bounded = False
    may_end = True
    replayable = False
    why = "a socket gives its lines once: those in no checkpoint are lost when the driver dies or the job restarts"

    def __init__(self, host: str, port: int, delimiter: str = "\n", max_retry: int = 0) -> None:
        if not isinstance(host, str) or not host:
            raise PenstockError(f"socket_text_stream needs the name of a host, not {host!r}.")
        if type(port) is not int or not 0 < port < 65536:
            raise PenstockError(f"socket_text_stream: a port is a whole number from 1 to 65535, not {port!r}.")
        if not isinstance(delimiter, str) or not delimiter:
            raise PenstockError(f"socket_text_stream: the delimiter is text of at least one sign, not {delimiter!r}.")
        if type(max_retry) is not int:
            raise PenstockError(f"socket_text_stream: max_retry is a whole number of seconds, not {max_retry!r}.")
        self._address = host, port
        self._name = f"{host}:{port}"
        self._delimiter = delimiter.encode()
        self._max_retry = max_retry
        self._connection: socket.socket | None = None
        self._attempts = 0
        self._next_attempt = 0.0
        self._had_connection = False
        self._closed = False
        """Whether nothing more will be read."""
        self._rest = b""
        """What came behind the last delimiter."""
        self._first = 0
        self._lines: deque[str] = deque()
        """Lines from number `_first` on: kept until the next epoch is planned, which shows that these are logged."""

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_connection": None}

    # -- in the planner --------------------------------------------------------------------------------------------

    def start(self, parallelism: int) -> Positions:
        return {self._name: {"line": 0, "lines": [], "ended": False}}

    def advance(self, positions: Positions, limit: int | None) -> Positions:
        # Another program may have read from another address.
        position = positions.get(self._name) or self.start(1)[self._name]
        if position["ended"]:
            return positions
        if not self._first <= position["line"] <= self._first + len(self._lines):
            # Of a planner before this one; what that had read beyond is gone.
            self._first = position["line"]
            self._lines.clear()
        while self._first < position["line"]:
            self._first += 1
            self._lines.popleft()
        if not self._lines or (not self._closed and (limit is None or len(self._lines) < limit)):
            self._receive(limit)
        lines: list[str] = []
        size = 0
        for line in self._lines:
            if size > _EPOCH_BYTES or (limit is not None and len(lines) >= limit):
                break
            lines.append(line)
            size += len(line) + 1
        ended = self._closed and len(lines) == len(self._lines)
        if not lines and not ended:
            return positions
        return {self._name: {"line": position["line"] + len(lines), "lines": lines, "ended": ended}}

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _receive(self, limit: int | None) -> None:
        """Take what has come: enough for an epoch, and the rest stays with the system, so that the sender waits."""
        taken = sum(map(len, self._lines))
        while taken < _EPOCH_BYTES and (limit is None or len(self._lines) < limit):
            if self._connection is None and not self._connected():
                return
            assert self._connection is not None
            # Not select(), which knows no descriptor above 1023.
            glance = select.poll()
            glance.register(self._connection, select.POLLIN)
            if not glance.poll(0 if taken else _GLANCE_S * 1000):
                return
            try:
                data = self._connection.recv(64 << 10)
            except OSError as error:
                data = b""
                if self._max_retry == 0:
                    raise SocketFailed(
                        f"The connection to {self._name} broke: {error}.",
                        fix="Lines on their way are lost. Let the source connect again by itself: max_retry=10.",
                    ) from None
            if not data:
                self._end_of_connection()
                continue
            taken += len(data)
            *lines, self._rest = (self._rest + data).split(self._delimiter)
            self._lines.extend(map(self._text, lines))
            if len(self._rest) > _LINE_BYTES:
                raise SocketFailed(
                    f"{self._name} sent {len(self._rest):,} bytes without the delimiter {self._delimiter.decode()!r}.",
                    fix="Correct the delimiter.",
                )

    def _end_of_connection(self) -> None:
        self.close()
        if self._rest:
            self._lines.append(self._text(self._rest))
            self._rest = b""
        self._attempts, self._next_attempt = 0, monotonic() + _RETRY_S
        self._closed = self._max_retry == 0
        if not self._closed:
            _logger.warning("The connection to %s has ended; the source tries to connect again.", self._name)

    def _connected(self) -> bool:
        """Whether there is a connection now. The attempts are counted from the loss of the last one."""
        if self._closed or monotonic() < self._next_attempt:
            return False
        try:
            self._connection = socket.create_connection(self._address, _CONNECT_S)
        except OSError as error:
            self._attempts += 1
            self._next_attempt = monotonic() + _RETRY_S
            if self._max_retry < 0 or self._attempts <= self._max_retry:
                return False
            if self._had_connection:
                # It has not come back.
                self._closed = True
                return False
            raise SocketFailed(
                f"Nobody can be reached at {self._name}: {error}.",
                fix="Start what sends the lines first (nc -lk 9999), or let the source wait for it: max_retry=60.",
            ) from None
        self._connection.setblocking(False)
        self._attempts = 0
        self._had_connection = True
        return True

    def _text(self, line: bytes) -> str:
        text = line.decode(errors="replace")
        return text.removesuffix("\r") if self._delimiter == b"\n" else text

    # -- in the tasks ----------------------------------------------------------------------------------------------

    def read(self, split: str, start: Any, end: Any) -> Iterable[Any]:
        yield from end["lines"]

    def ends(self, split: str, position: Any) -> bool:
        return bool(position["ended"])
