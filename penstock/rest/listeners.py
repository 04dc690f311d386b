"""Finds out which user of this host is behind a connection to a loopback address.

While a service is down, any user can listen on its port. A request would tell that user the token of the service.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_LISTENS = "0A"
_ROOT = 0

_Address = tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, int]


class _Row(NamedTuple):
    local: _Address
    peer: _Address
    state: str
    uid: int


def foreign_user(connection: socket.socket, trusted: Collection[int] = ()) -> int | None:
    """Return the id of the user at the other end of a TCP connection within this host, if it is not to be trusted.

    Trusted are this user, root, and the users in `trusted`. Call it before anything secret is sent. Listening sockets
    count as well, because a connection that is not accepted yet has no user. Without Linux, nothing is known.
    """
    ours, theirs = _address(*connection.getsockname()[:2]), _address(*connection.getpeername()[:2])
    if not theirs[0].is_loopback:
        return None
    rows = list(_rows(theirs[1]))
    listening = [row for row in rows if row.state == _LISTENS]
    # The kernel prefers the socket with the exact address.
    behind = [row for row in listening if row.local == theirs] or [
        row for row in listening if row.local[0].is_unspecified
    ]
    behind += [row for row in rows if row.local == theirs and row.peer == ours]
    known = {_ROOT, os.getuid(), *trusted}
    return next((row.uid for row in behind if row.uid not in known), None)


def _rows(port: int) -> Iterator[_Row]:
    """Yield the TCP sockets of this host with this local port."""
    wanted = f":{port:04X}"
    for table in _TABLES:
        try:
            lines = table.read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[1].endswith(wanted):
                yield _Row(_decoded(fields[1]), _decoded(fields[2]), fields[3], int(fields[7]))


def _decoded(field: str) -> _Address:
    """Decode an address: hexadecimal words, each in the byte order of the host."""
    digits, _, port = field.partition(":")
    words = [int(digits[at : at + 8], 16).to_bytes(4, sys.byteorder) for at in range(0, len(digits), 8)]
    return _plain(ipaddress.ip_address(b"".join(words))), int(port, 16)


def _address(host: str, port: int) -> _Address:
    return _plain(ipaddress.ip_address(host.partition("%")[0])), port


def _plain(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Return an IPv4 address that IPv6 wraps as such."""
    return getattr(address, "ipv4_mapped", None) or address
