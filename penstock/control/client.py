"""The client of a control point: lists the jobs on this host and sends requests to them."""

from __future__ import annotations

import os
import socket
import struct
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from penstock.control.place import SUFFIX, address, opened
from penstock.driver.control_messages import (
    Answer,
    Describe,
    Description,
    Done,
    Refused,
    Request,
    decode_answer,
    encode,
)
from penstock.errors import PenstockError

_CONNECT_S = 2.0
_DESCRIBE_S = 2.0
"""A description needs no waiting. A job that takes longer is suspended, or its host is."""
_AT_ONCE = 16


class JobNotFound(PenstockError):
    """No job, or more than one, matches. Operator action: pass an ID from `penstock list`."""


class NoAnswer(PenstockError):
    """The job's process did not answer, or ended before it did. Operator action: check whether it runs."""


class RefusedByJob(PenstockError):
    """The job refused the request. The message is the job's. Operator action: follow the message."""

    def __init__(self, refused: Refused) -> None:
        super().__init__(refused.problem, fix=refused.fix)
        self.kind = refused.kind

    def headline(self) -> str:
        return f"{self.kind}: {self.problem}"


@dataclass(frozen=True)
class Running:
    """A job with a live driver."""

    id: str
    pid: int
    description: Description | None
    """None if the job does not answer."""

    def __str__(self) -> str:
        if self.description is None:
            return f"{self.id} (process {self.pid}, does not answer)"
        return f"{self.id} ('{self.description.name}')"


def running_jobs(directory: str) -> list[Running]:
    """Return this user's jobs, oldest first. Removes the sockets of killed drivers."""
    try:
        with opened(directory) as folder:
            ids = [name.removesuffix(SUFFIX) for name in os.listdir(folder) if name.endswith(SUFFIX)]
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                found = [each for each in pool.map(partial(_look_at, folder), ids) if each is not None]
    except FileNotFoundError:
        return []
    return sorted(found, key=lambda each: (each.description.started if each.description else 0, each.id))


def ask(directory: str, job: Running, request: Request) -> Done:
    """Send a request and wait for its completion, without a time limit. Raises RefusedByJob or NoAnswer."""
    if job.description is None:
        raise NoAnswer(
            f"Job {job.id} does not answer, but its process {job.pid} is alive. It might be suspended or overloaded.",
            fix=f"Try again, or check what process {job.pid} is doing.",
        )
    try:
        with opened(directory) as folder, _connected(folder, job.id) as connection:
            answer = _answer(connection, request)
    except (OSError, ValueError) as error:
        raise NoAnswer(
            f"Job {job} ended before it answered: {error}",
            fix="Check the output of its program. If you requested a savepoint, `penstock savepoint list` shows "
            "whether it was made.",
        ) from None
    if isinstance(answer, Refused):
        raise RefusedByJob(answer)
    assert isinstance(answer, Done)
    return answer


def _look_at(folder: int, job_id: str) -> Running | None:
    pid = 0
    try:
        with _connected(folder, job_id) as connection:
            pid = _process_behind(connection)
            connection.settimeout(_DESCRIBE_S)
            answer = _answer(connection, Describe())
            return Running(job_id, pid, answer if isinstance(answer, Description) else None)
    except ConnectionRefusedError:
        # No process has this socket open, and none will, because IDs are never reused.
        with suppress(FileNotFoundError):
            os.unlink(job_id + SUFFIX, dir_fd=folder)
        return None
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return Running(job_id, pid, None) if _exists(folder, job_id) else None


def _exists(folder: int, job_id: str) -> bool:
    """Return whether the job is still running."""
    try:
        os.stat(job_id + SUFFIX, dir_fd=folder)
    except FileNotFoundError:
        return False
    return True


def _connected(folder: int, job_id: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(_CONNECT_S)
        connection.connect(address(folder, job_id + SUFFIX))
        connection.settimeout(None)
    except BaseException:
        connection.close()
        raise
    return connection


def _answer(connection: socket.socket, request: Request) -> Answer:
    connection.sendall(encode(request) + b"\n")
    data = bytearray()
    while not data.endswith(b"\n"):
        part = connection.recv(64 * 1024)
        if not part:
            raise ConnectionError("the job closed the connection")
        data += part
    answer: Answer = decode_answer(bytes(data))
    return answer


def _process_behind(connection: socket.socket) -> int:
    """Return the process ID as the kernel knows it, which works even if the process does not answer."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", credentials)[0])
