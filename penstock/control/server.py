"""A job's control point: one listening thread in the driver, and one thread per command."""

from __future__ import annotations

import atexit
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

from penstock.control.place import SUFFIX, address, opened
from penstock.driver.control_messages import Answer, Follow, Refused, Request, decode_request, encode
from penstock.errors import PenstockError

_REQUEST_S = 5.0
"""Maximum time for a client to send its request."""
_ANSWER_S = 5.0
"""Maximum time for a client to read the answer, and for pending answers when the process exits."""
_REQUEST_BYTES = 64 * 1024
_FOLLOW_S = 1.0
"""How often a client that follows the job learns of changes."""
_HEARTBEAT_S = 5.0
"""How often such a client hears from a job that does not change."""
_CLIENTS = 16
"""Maximum number of concurrent clients. More are turned away, which bounds the number of threads."""

_logger = logging.getLogger("penstock")


class ControlPoint:
    """Listens from construction until `close`. Calls `answer` concurrently from its own threads.

    `name` is the job id, and the attempt for a job of a cluster: an attempt must not take the place of another. A
    client that sends `Follow` gets an answer after each change, and a last one at the close.

    An exception from `answer` becomes the answer. Raises OSError or UnusableDirectory if the socket cannot be created.
    """

    def __init__(self, directory: str, name: str, answer: Callable[[Request], Answer]) -> None:
        self._answer = answer
        self._path = os.path.join(directory, name + SUFFIX)
        self._closed = threading.Event()
        self._news = threading.Condition()
        self._notified = 0
        """How often `notify` was called."""
        self._places = threading.BoundedSemaphore(_CLIENTS)
        self._at_work: set[threading.Thread] = set()
        """Threads that have a request and owe an answer."""
        self._at_exit = False
        self._listener = _listening(directory, name)
        self._file = _identity(self._path)
        threading.Thread(target=self._listen, name="penstock-control", daemon=True).start()
        atexit.register(self._last_words)

    def close(self) -> None:
        """Remove the socket. Commands in progress are still answered. Can be called repeatedly."""
        if self._closed.is_set():
            return
        self._closed.set()
        self.notify()
        with suppress(OSError):
            if _identity(self._path) == self._file:
                os.unlink(self._path)
        # Unlike `close`, `shutdown` ends a pending `accept`.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._let_go()

    def notify(self) -> None:
        """Send an answer now to clients that follow the job, if it has changed. Can be called from any thread."""
        with self._news:
            self._notified += 1
            self._news.notify_all()

    def _let_go(self) -> None:
        """Drop the exit handler, because a process can run many jobs and must not keep finished ones."""
        if self._closed.is_set() and not self._at_work and not self._at_exit:
            atexit.unregister(self._last_words)

    def _last_words(self) -> None:
        """Send pending answers when the process exits: a `stop` is answered when the job, and so the program, ends."""
        self._at_exit = True
        self.close()
        deadline = time.monotonic() + _ANSWER_S
        for thread in list(self._at_work):
            thread.join(max(0.0, deadline - time.monotonic()))

    def _listen(self) -> None:
        while not self._closed.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                # Closed, or out of file descriptors. Wait, because the process needs them more.
                self._closed.wait(1)
                continue
            if not self._places.acquire(blocking=False):
                client.close()
                continue
            try:
                threading.Thread(target=self._serve, args=[client], name="penstock-command", daemon=True).start()
            except RuntimeError:  # no thread to spare
                client.close()
                self._places.release()

    def _serve(self, client: socket.socket) -> None:
        this = threading.current_thread()
        try:
            # A client that disconnects or hangs is harmless; its request is executed anyway.
            with client, suppress(OSError):
                line = _line_from(client)
                if line is not None:
                    self._at_work.add(this)
                    client.settimeout(_ANSWER_S)
                    for answer in self._answers_to(line):
                        client.sendall(answer)
        finally:
            self._at_work.discard(this)
            self._let_go()
            self._places.release()

    def _answers_to(self, line: bytes) -> Iterator[bytes]:
        try:
            request = decode_request(line)
        except ValueError as error:
            yield _line(
                Refused(
                    kind="BadRequest",
                    problem=f"The job cannot decode the request: {error}.",
                    fix="Use the `penstock` command of the job's version.",
                )
            )
            return
        if isinstance(request, Follow):
            yield from self._changes(request)
        else:
            yield _line(self._answer_to(request))

    def _changes(self, request: Follow) -> Iterator[bytes]:
        """Yield the answer after each change, and at least every few seconds, until the control point is closed."""
        sent, sent_at, notified, closed = b"", 0.0, -1, False
        while not closed:
            notified = self._await_news(notified)
            closed = self._closed.is_set()
            line, now = _line(self._answer_to(request)), time.monotonic()
            if line != sent or closed or now - sent_at >= _HEARTBEAT_S:
                sent, sent_at = line, now
                yield line

    def _await_news(self, notified: int) -> int:
        """Wait until `notify` is called again, but not longer than a period. Return how often it has been called."""
        with self._news:
            self._news.wait_for(lambda: self._notified != notified, _FOLLOW_S)
            return self._notified

    def _answer_to(self, request: Request) -> Answer:
        try:
            return self._answer(request)
        except PenstockError as error:
            return Refused(kind=type(error).__name__, problem=error.statement(), fix=error.fix)
        except Exception as error:  # the client must see it; the job is not affected
            _logger.debug("Command failed.", exc_info=True)
            return Refused(kind=type(error).__name__, problem=str(error))


def _line(answer: Answer) -> bytes:
    return encode(answer) + b"\n"


def _identity(path: str) -> tuple[int, int]:
    """Return the file at this path: its device and inode."""
    found = os.lstat(path)
    return found.st_dev, found.st_ino


def _listening(directory: str, name: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with opened(directory, create=True) as folder:
            new = f".{name}"
            listener.bind(address(folder, new))
            try:
                os.chmod(new, 0o600, dir_fd=folder)
                listener.listen(_CLIENTS)
                # Only now: an existing socket that refuses connections belongs to a dead driver.
                os.rename(new, name + SUFFIX, src_dir_fd=folder, dst_dir_fd=folder)
            except OSError:
                os.unlink(new, dir_fd=folder)
                raise
    except BaseException:
        listener.close()
        raise
    return listener


def _line_from(client: socket.socket) -> bytes | None:
    """Return the request line, or None if the client did not send a complete one in time."""
    deadline = time.monotonic() + _REQUEST_S
    data = bytearray()
    while not data.endswith(b"\n"):
        client.settimeout(max(0.001, deadline - time.monotonic()))
        part = client.recv(4096)
        data += part
        if not part or len(data) > _REQUEST_BYTES or time.monotonic() > deadline:
            return None
    return bytes(data)
