"""Ports for servers that restart on the same port."""

from __future__ import annotations

import random
import socket

_PORTS = range(20_000, 32_000)
"""Below the ephemeral ports, which outgoing connections could take while the server is down."""


def free_port() -> int:
    while True:
        port = random.choice(_PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
