"""Which boot of the host this is: replicas are not synced, so those of an earlier boot are never opened."""

from __future__ import annotations

import os
from pathlib import Path

from penstock.state.engines.base import EngineError

__all__ = ["boot_id", "has_boot_id", "pid_namespace"]

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    try:
        return _BOOT_ID.read_text().strip()
    except OSError as error:
        raise EngineError(
            f"Cannot read {_BOOT_ID}, without which a replica on disk cannot know whether it survived a crash of "
            f"the host. Use the Memory backend on this system."
        ) from error


def has_boot_id() -> bool:
    """Whether replicas can be on disk here."""
    return _BOOT_ID.exists()


_FIRST_NAMESPACE = 0xEFFFFFFC
"""The kernel's number for the PID namespace that a host starts with."""


def pid_namespace() -> str:
    """What names this process's PID namespace among those of the host; empty outside of containers."""
    try:
        number = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return ""
    return "" if number == _FIRST_NAMESPACE else str(number)
