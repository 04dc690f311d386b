"""A job's control point: one listening thread in the driver, and one thread per command."""

from __future__ import annotations

import atexit
import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import msgspec

from penstock.control.place import SUFFIX, address, opened
from penstock.driver.control_messages import Answer, Refused, Request, decode_request, encode
from penstock.errors import PenstockError

_REQUEST_S = 5.0
"""Maximum time for a client to send its request."""
_ANSWER_S = 5.0
"""Maximum time for a client to read the answer, and for pending answers when the process exits."""
_REQUEST_BYTES = 64 * 1024
_CLIENTS = 16
"""Maximum number of concurrent clients. More are turned away, which bounds the number of threads."""

_logger = logging.getLogger("penstock")


class ControlPoint:
    """Listens from construction until `close`. Calls `answer` concurrently from its own threads.

    An exception from `answer` becomes the answer. Raises OSError or UnusableDirectory if the socket cannot be created.
    """

    def __init__(self, directory: str, job_id: str, answer: Callable[[Request], Answer]) -> None:
        self._answer = answer
        self._path = os.path.join(directory, job_id + SUFFIX)
        self._closed = threading.Event()
        self._places = threading.BoundedSemaphore(_CLIENTS)
        self._at_work: set[threading.Thread] = set()
        """Threads that have a request and owe an answer."""
        self._at_exit = False
        self._listener = _listening(directory, job_id)
        threading.Thread(target=self._listen, name="penstock-control", daemon=True).start()
        atexit.register(self._last_words)

    def close(self) -> None:
        """Remove the socket. Commands in progress are still answered. Can be called repeatedly."""
        if self._closed.is_set():
            return
        self._closed.set()
        with suppress(OSError):
            os.unlink(self._path)
        # Unlike `close`, `shutdown` ends a pending `accept`.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._let_go()

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
                    answer = encode(self._answer_to(line)) + b"\n"
                    client.settimeout(_ANSWER_S)
                    client.sendall(answer)
        finally:
            self._at_work.discard(this)
            self._let_go()
            self._places.release()

    def _answer_to(self, line: bytes) -> Answer:
        try:
            request = decode_request(line)
        except msgspec.MsgspecError as error:
            return Refused(
                kind="BadRequest",
                problem=f"The job cannot decode the request: {error}.",
                fix="Use the `penstock` command of the job's version.",
            )
        try:
            return self._answer(request)
        except PenstockError as error:
            return Refused(kind=type(error).__name__, problem=error.statement(), fix=error.fix)
        except Exception as error:  # the client must see it; the job is not affected
            _logger.debug("Command failed.", exc_info=True)
            return Refused(kind=type(error).__name__, problem=str(error))


def _listening(directory: str, job_id: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with opened(directory, create=True) as folder:
            new = f".{job_id}"
            listener.bind(address(folder, new))
            try:
                os.chmod(new, 0o600, dir_fd=folder)
                listener.listen(_CLIENTS)
                # Only now: an existing socket that refuses connections belongs to a dead driver.
                os.rename(new, job_id + SUFFIX, src_dir_fd=folder, dst_dir_fd=folder)
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
