"""Facts about this machine."""

from __future__ import annotations

import os


def cores() -> int:
    """Return the number of cores of this machine."""
    return os.cpu_count() or 1


def resident_memory() -> int:
    """Return the memory of this process in bytes, or 0 if the operating system does not tell."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, IndexError):
        return 0


def disk_space(directory: str) -> tuple[int, int]:
    """Return the size of a directory's file system and what this user can still write, in bytes; 0 if unknown.

    A directory that does not exist yet stands for the nearest one above it.
    """
    while True:
        try:
            found = os.statvfs(directory)
        except FileNotFoundError:
            above = os.path.dirname(os.path.abspath(directory))
            if above == directory:
                return 0, 0
            directory = above
        except OSError:
            return 0, 0
        else:
            return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize


def physical_memory() -> int:
    """Return the memory of this machine in bytes, or 0 if the operating system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return 0
