"""Lines of text from a socket, for experiments: a socket is not replayable.

The planner holds the connection. The position of an epoch contains its lines, so they are logged before the epoch runs
and replayed with it. Lines that were received but are not yet part of a position are lost with the planner.
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
"""Text per epoch. Positions are stored in manifests, and Spark keeps a few hundred of them in memory."""
_LINE_BYTES = 16 << 20
_GLANCE_S = 0.02
"""How long `advance` waits for data. Spark waits half as long between two calls."""
_CONNECT_S = 5
_RETRY_S = 1.0
"""Time between connection attempts, as in Flink."""

_logger = logging.getLogger("penstock")


class SocketFailed(PenstockError):
    """A socket source cannot connect, its connection broke, or it received no delimiter.

    Operator action: start the server before the job, and check host, port and delimiter.
    """


class SocketTextSource(Source[str]):
    """Created by `env.socket_text_stream`. Ends when the peer closes the connection and does not return.

    `max_retry`: seconds for which a lost or refused connection is retried; negative for no limit.
    A position is {"line": lines so far, "lines": the epoch's lines, "ended": whether these are the last lines}.
    """

    bounded = False
    may_end = True
    replayable = False
    why = "a socket sends each line once: lines outside a checkpoint are lost if the driver dies or the job restarts"

    def __init__(self, host: str, port: int, delimiter: str = "\n", max_retry: int = 0) -> None:
        if not isinstance(host, str) or not host:
            raise PenstockError(f"socket_text_stream needs a host name, not {host!r}.")
        if type(port) is not int or not 0 < port < 65536:
            raise PenstockError(f"socket_text_stream: port must be an int from 1 to 65535, not {port!r}.")
        if not isinstance(delimiter, str) or not delimiter:
            raise PenstockError(f"socket_text_stream: delimiter must be a non-empty string, not {delimiter!r}.")
        if type(max_retry) is not int:
            raise PenstockError(f"socket_text_stream: max_retry must be an int (seconds), not {max_retry!r}.")
        self._address = host, port
        self._name = f"{host}:{port}"
        self._delimiter = delimiter.encode()
        self._max_retry = max_retry
        self._connection: socket.socket | None = None
        self._attempts = 0
        self._next_attempt = 0.0
        self._had_connection = False
        self._closed = False
        """Whether no more data will be read."""
        self._rest = b""
        """Data after the last delimiter."""
        self._first = 0
        self._lines: deque[str] = deque()
        """Lines from index `_first` on, kept until planning the next epoch shows that they are logged."""

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_connection": None}

    # -- in the planner --------------------------------------------------------------------------------------------

    def start(self, parallelism: int) -> Positions:
        return {self._name: {"line": 0, "lines": [], "ended": False}}

    def advance(self, positions: Positions, limit: int | None) -> Positions:
        # The restored positions can be those of another address.
        position = positions.get(self._name) or self.start(1)[self._name]
        if position["ended"]:
            return positions
        if not self._first <= position["line"] <= self._first + len(self._lines):
            # The position comes from an earlier planner; the lines that it had received after it are lost.
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
        """Receive at most one epoch of data. The rest stays in the socket buffer, which slows the sender down."""
        taken = sum(map(len, self._lines))
        while taken < _EPOCH_BYTES and (limit is None or len(self._lines) < limit):
            if self._connection is None and not self._connected():
                return
            assert self._connection is not None
            # select() does not support descriptors above 1023.
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
                        fix="Lines in flight are lost. To reconnect automatically, set max_retry=10.",
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
                    fix="Check the delimiter of socket_text_stream.",
                )

    def _end_of_connection(self) -> None:
        self.close()
        if self._rest:
            self._lines.append(self._text(self._rest))
            self._rest = b""
        self._attempts, self._next_attempt = 0, monotonic() + _RETRY_S
        self._closed = self._max_retry == 0
        if not self._closed:
            _logger.warning("The connection to %s was closed; trying to reconnect.", self._name)

    def _connected(self) -> bool:
        """Connect if it is time to try, and return whether a connection exists. Counts attempts since the last loss."""
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
                # The peer has not returned.
                self._closed = True
                return False
            raise SocketFailed(
                f"Cannot connect to {self._name}: {error}.",
                fix="Start the server first (nc -lk 9999), or let the source wait for it: max_retry=60.",
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
