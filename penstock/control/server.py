"""A job's control point: a thread of its driver that listens, and one for each command that has come."""

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
"""A client that takes longer to say what it wants is not waited for."""
_ANSWER_S = 5.0
"""Nor one that takes longer to read the answer. At its end the process waits as long for answers to get out."""
_REQUEST_BYTES = 64 * 1024
_CLIENTS = 16
"""At a time; more are turned away, so that no crowd costs the job more than as many threads."""

_logger = logging.getLogger("penstock")


class ControlPoint:
    """Listens from when it is made until `close`. `answer` is called in threads of its own, several at a time.

    What it raises is the answer. Raises OSError or UnusableDirectory if the socket cannot be made.
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
        """Nobody finds the job any more. Commands under way are still answered. May be called again."""
        if self._closed.is_set():
            return
        self._closed.set()
        with suppress(OSError):
            os.unlink(self._path)
        # It ends the wait for a client, which closing does not.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._let_go()

    def _let_go(self) -> None:
        """A process may run many jobs: what is over is not to be remembered until its end."""
        if self._closed.is_set() and not self._at_work and not self._at_exit:
            atexit.unregister(self._last_words)

    def _last_words(self) -> None:
        """At the end of the process: the answer to a `stop` is due when the job, and so the program, is over."""
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
                # Closed, or the process has no descriptor to spare: then later, for it needs them more.
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
            # A client that is gone, or hangs, is nobody's loss: what it asked for is done all the same.
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
                problem=f"The job does not understand what it is asked: {error}.",
                fix="Use the `penstock` of the version that the job runs with.",
            )
        try:
            return self._answer(request)
        except PenstockError as error:
            return Refused(kind=type(error).__name__, problem=error.statement(), fix=error.fix)
        except Exception as error:  # whoever asked must hear of it; the job does not
            _logger.debug("A command failed.", exc_info=True)
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
                # Only now: a socket that is there and refuses is one that a dead driver left.
                os.rename(new, job_id + SUFFIX, src_dir_fd=folder, dst_dir_fd=folder)
            except OSError:
                os.unlink(new, dir_fd=folder)
                raise
    except BaseException:
        listener.close()
        raise
    return listener


def _line_from(client: socket.socket) -> bytes | None:
    """What was asked; None if nothing was, in time and with an end."""
    deadline = time.monotonic() + _REQUEST_S
    data = bytearray()
    while not data.endswith(b"\n"):
        client.settimeout(max(0.001, deadline - time.monotonic()))
        part = client.recv(4096)
        data += part
        if not part or len(data) > _REQUEST_BYTES or time.monotonic() > deadline:
            return None
    return bytes(data)
