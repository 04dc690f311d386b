"""What the state servers of one job know of each other, through the directory of its checkpoints.

    servers/<server>-<beat>        what the server has

A server replaces its announcement at each beat by one with a new name, and objects never change. Each reader measures
with its own clock how long it has seen a name, so the clocks of different hosts do not matter.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable

import msgspec

from penstock.checkpoint.lineages import SharedStorage
from penstock.query.protocol import Announcement
from penstock.state.engines.base import EngineError
from penstock.state.engines.boot import boot_id
from penstock.state.storage import MissingObject, StorageError

_log = logging.getLogger(__name__)

_FOLDER = "servers/"
_NAME = re.compile(r"servers/([0-9a-f]{1,32})-(\d{1,18})")
_MOST_SERVERS = 64
_LARGEST = 4 << 20
_REMOVE_AFTER = 20
"""Timeouts after which others remove the announcement of a dead server."""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Announcement).decode


def this_host() -> str:
    """Return an id of this host, or container: processes with the same one share a loopback interface."""
    try:
        return f"{boot_id()}-{os.stat('/proc/self/ns/net').st_ino}"
    except (EngineError, OSError):
        return os.uname().nodename


class _Seen:
    """The announcements of one server, as this process has seen them."""

    def __init__(self) -> None:
        self.beat = -1
        self.since = 0.0
        self.announcement: Announcement | None = None


class Announcements:
    """The announcements below the directory of a job. Used by one thread at a time."""

    def __init__(
        self, root: SharedStorage, server: str, timeout_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`server`: the id of this server."""
        self._root = root
        self._server = server
        self._timeout_s = timeout_s
        self._clock = clock
        self._own: str | None = None
        self._seen: dict[str, _Seen] = {}
        self._looked = clock()

    def announce(self, announcement: Announcement) -> bool:
        """Replace the announcement of this server. Return whether it worked: storage can be read-only."""
        name = f"{_FOLDER}{self._server}-{announcement.beat}"
        try:
            self._root.write(name, _encode(announcement))
            former, self._own = self._own, name
            if former is not None:
                self._root.delete(former)
        except (StorageError, OSError) as error:
            _log.debug("Cannot announce a state server in %s: %s", self._root.where, error)
            return False
        return True

    def others(self) -> list[Announcement]:
        """Return what the other living servers announce, by id. Raises StorageError."""
        now = self._clock()
        found: dict[str, int] = {}
        for name in self._root.list(_FOLDER):
            match = _NAME.fullmatch(name)
            if match is not None and match[1] != self._server:
                found[match[1]] = max(int(match[2]), found.get(match[1], 0))
        if now - self._looked > self._timeout_s:
            # This process was stopped, or the storage did not answer. The others get the time to give a sign of life.
            for known in self._seen.values():
                known.since = now
        self._looked = now
        self._seen = {server: self._seen.get(server, _Seen()) for server in found}
        for server, beat in found.items():
            self._note(server, beat, now)
        living = [
            seen.announcement
            for _, seen in sorted(self._seen.items())
            if seen.announcement is not None and now - seen.since <= self._timeout_s
        ]
        return living[:_MOST_SERVERS]

    def _note(self, server: str, beat: int, now: float) -> None:
        seen = self._seen[server]
        name = f"{_FOLDER}{server}-{beat}"
        if seen.beat == beat:
            if now - seen.since > _REMOVE_AFTER * self._timeout_s:
                self._root.delete_all(self._root.list(f"{_FOLDER}{server}-"))
            return
        seen.beat, seen.since = beat, now
        try:
            announcement = _decode(self._root.read(name, _LARGEST))
        except MissingObject:
            # The next one is there already, and the last one known is good enough until then.
            return
        except (msgspec.DecodeError, StorageError) as error:
            _log.debug("Cannot read the announcement '%s' in %s: %s", name, self._root.where, error)
            return
        if announcement.server == server:
            seen.announcement = announcement

    def withdraw(self) -> None:
        """Remove the announcement of this server."""
        if self._own is not None:
            try:
                self._root.delete(self._own)
            except (StorageError, OSError):
                # The others see that it is not renewed.
                pass
            self._own = None
