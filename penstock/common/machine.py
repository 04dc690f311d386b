"""Facts about this machine."""

from __future__ import annotations

import os


def cores() -> int:
    """Return the number of cores of this machine."""
    return os.cpu_count() or 1


def physical_memory() -> int:
    """Return the memory of this machine in bytes, or 0 if the operating system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return 0
