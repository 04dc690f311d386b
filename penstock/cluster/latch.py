"""The leader latch in ZooKeeper: each candidate adds an ephemeral, numbered node, and the first one leads.

kazoo's own lock recognizes its node by a prefix, also after its session was lost: it then takes the node of the lost
session, which is about to disappear, for its own. Here a node belongs to a turn, and counts only if the current session
owns it.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from penstock.cluster.zookeeper_client import Connection, kazoo

_NODE = re.compile(r"[0-9a-f]{16}-\d+-(\d{10})")
ADDRESS = re.compile(r"(https?://)?(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):\d{1,5}")


@dataclass(frozen=True)
class Standing:
    """The latch at one moment, as one candidate sees it."""

    own: str | None
    """The path of the candidate's node, if it is there and belongs to the session."""
    first: bool
    """Whether that node is the first one."""
    epoch: int
    """The transaction that created it: higher than that of every node before it."""
    leader: str | None
    """The address in the first node."""


class Latch:
    """One candidate. Its calls wait for the server, so a listener of kazoo must not make them."""

    def __init__(self, connection: Connection, address: str) -> None:
        self._connection = connection
        self._call = connection.call
        self._path = connection.settings.latch
        self._address = address
        self._candidate = secrets.token_hex(8)

    def enter(self, turn: int) -> None:
        """Add a node for this turn, unless it exists, and remove those of earlier turns."""
        prefix = f"{self._candidate}-{turn}-"
        entered = False
        for name in self._call("get_children", self._path):
            if name.startswith(prefix):
                entered = True
            elif name.startswith(f"{self._candidate}-"):
                self._remove(name)
        if not entered:
            self._call("create", f"{self._path}/{prefix}", self._address.encode(), ephemeral=True, sequence=True)

    def leave(self) -> None:
        """Remove all nodes of this candidate."""
        for name in self._call("get_children", self._path):
            if name.startswith(f"{self._candidate}-"):
                self._remove(name)

    def look(self, turn: int, on_change: Callable[[object], None]) -> Standing:
        """Return the standing of this turn's node. `on_change` is called once when a node is added or removed."""
        names = sorted(
            (name for name in self._call("get_children", self._path, watch=on_change) if _NODE.fullmatch(name)),
            key=lambda name: name[-10:],
        )
        own = next((name for name in names if name.startswith(f"{self._candidate}-{turn}-")), None)
        leader = self._address_in(names[0]) if names else None
        if own is None:
            return Standing(None, False, 0, leader)
        stat = self._call("exists", f"{self._path}/{own}")
        if stat is None or stat.ephemeralOwner != self._connection.session:
            return Standing(None, False, 0, leader)
        return Standing(f"{self._path}/{own}", own == names[0], int(stat.czxid), leader)

    def _address_in(self, name: str) -> str | None:
        with suppress(kazoo().exceptions.NoNodeError):
            text = self._call("get", f"{self._path}/{name}")[0].decode(errors="replace")
            if ADDRESS.fullmatch(text):
                return str(text)
        return None

    def _remove(self, name: str) -> None:
        with suppress(kazoo().exceptions.NoNodeError):
            self._call("delete", f"{self._path}/{name}")
