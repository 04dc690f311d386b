"""Identification of the host's current boot: replicas are not synced, so those of an earlier boot are never opened."""

from __future__ import annotations

import os
from pathlib import Path

from penstock.state.engines.base import EngineError

__all__ = ["boot_id", "has_boot_id", "pid_namespace"]

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """Return the id of the host's current boot."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError as error:
        raise EngineError(
            f"Cannot read {_BOOT_ID}, without which a replica on disk cannot detect a crash of the host. Set "
            f"state.backend to memory on this system."
        ) from error


def has_boot_id() -> bool:
    """Return whether replicas can be stored on disk on this system."""
    return _BOOT_ID.exists()


_FIRST_NAMESPACE = 0xEFFFFFFC
"""Inode number of the host's initial PID namespace."""


def pid_namespace() -> str:
    """Return the id of this process's PID namespace, or an empty string outside of containers."""
    try:
        number = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return ""
    return "" if number == _FIRST_NAMESPACE else str(number)
