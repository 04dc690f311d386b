"""Ports for servers that come back to the same one."""

from __future__ import annotations

import random
import socket

_PORTS = range(20_000, 32_000)
"""Below those that the system gives to outgoing connections: one of these could take it while the server is down."""


def free_port() -> int:
    while True:
        port = random.choice(_PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
