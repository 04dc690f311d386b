"""Addresses that only this host can reach, and those that stand for all addresses of a host."""

from __future__ import annotations

import ipaddress

WILDCARDS = frozenset({"0.0.0.0", "::", "[::]"})


def is_loopback(address: str) -> bool:
    """Return whether an address or name can be reached from this host only."""
    if address.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(address.strip("[]")).is_loopback
    except ValueError:
        return False
