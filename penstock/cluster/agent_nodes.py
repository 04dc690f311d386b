"""The nodes of living Dispatchers in ZooKeeper, also of those that have withdrawn: the host and the address of each.

A node has the name of the session that owns it. The node of a lost session, which disappears later, has another name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

import msgspec

from penstock.cluster.latch import ADDRESS
from penstock.cluster.zookeeper_client import Connection, kazoo


class _Content(msgspec.Struct, frozen=True, kw_only=True):
    host: str
    address: str


class AgentNodes:
    """The node of one Dispatcher, and a view of the others. Its calls wait for the server."""

    def __init__(self, connection: Connection, host: str, address: str) -> None:
        self._connection = connection
        self._path = connection.settings.agents
        self._own = _Content(host=host, address=address)
        self._known: dict[str, _Content | None] = {}
        """The contents of nodes by name; None if it is not understood. They never change."""

    def refresh(self, on_change: Callable[[object], None]) -> Mapping[str, tuple[str, ...]]:
        """Make the node of this session unless it exists. Return the addresses of all other Dispatchers by host.

        `on_change` is called once when a node is added or removed.
        """
        own = f"{self._connection.session or 0:016x}"
        names = self._connection.call("get_children", self._path, watch=on_change)
        if own not in names:
            with suppress(kazoo().exceptions.NodeExistsError):
                content = msgspec.json.encode(self._own)
                self._connection.call("create", f"{self._path}/{own}", content, ephemeral=True)
        self._known = {name: self._known[name] if name in self._known else self._read(name) for name in names}
        found: dict[str, set[str]] = {}
        for each in self._known.values():
            if each is not None and each.address != self._own.address:
                found.setdefault(each.host, set()).add(each.address)
        return {host: tuple(sorted(addresses)) for host, addresses in found.items()}

    def _read(self, name: str) -> _Content | None:
        with suppress(kazoo().exceptions.NoNodeError, msgspec.MsgspecError):
            content = msgspec.json.decode(self._connection.call("get", f"{self._path}/{name}")[0], type=_Content)
            return content if ADDRESS.fullmatch(content.address) else None
        return None
