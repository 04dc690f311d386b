"""The audit log: one JSON line for every action, with who asked for it, on which job, and its outcome.

Arguments, bodies and query strings are not logged: they can contain secrets.
"""

from __future__ import annotations

import logging
import os
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path

import msgspec

from penstock.common.wall_clock import now_ms

_log = logging.getLogger(__name__)


class _Entry(msgspec.Struct, kw_only=True, frozen=True):
    at: int
    """In milliseconds since 1970."""
    peer: str
    action: str
    """Method and path, with the names of parameters instead of their values."""
    job: str
    outcome: int
    """The status of the answer."""


class AuditLog:
    """A rotating file that only this user can read."""

    def __init__(self, path: Path, max_bytes: int, files: int) -> None:
        self._handler = _PrivateHandler(path, maxBytes=max_bytes, backupCount=files, encoding="utf-8")

    def write(self, client: tuple[str, int] | None, action: str, job: str, outcome: int) -> None:
        """Append a line. A failure, such as a full disk, is logged and does not affect the request."""
        peer = f"{client[0]}:{client[1]}" if client else ""
        entry = _Entry(at=now_ms(), peer=peer, action=action, job=job, outcome=outcome)
        line = msgspec.json.encode(entry).decode()
        self._handler.emit(logging.LogRecord("audit", logging.INFO, "", 0, line, (), None))

    def close(self) -> None:
        """Close the file."""
        self._handler.close()


class _PrivateHandler(RotatingFileHandler):
    def _open(self) -> TextIOWrapper:
        descriptor = os.open(self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        return open(descriptor, "a", encoding=self.encoding)

    def handleError(self, record: logging.LogRecord) -> None:
        _log.exception("Could not write to the audit log %s.", self.baseFilename)
