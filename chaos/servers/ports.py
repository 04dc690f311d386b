"""Ports for servers that restart on the same port."""

from __future__ import annotations

import random
import socket

_PORTS = range(20_000, 32_000)
"""Below the ephemeral ports, which outgoing connections could take while the server is down."""
_given: set[int] = set()


def free_port() -> int:
    """Return a port that nothing listens on, and another one with each call: servers listen some time later."""
    while True:
        port = random.choice(_PORTS)
        if port in _given:
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        _given.add(port)
        return port
