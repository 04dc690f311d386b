"""Checkpoint storage in a directory that counts what the driver does, and in which files of state are empty."""

from __future__ import annotations

import os
from collections import Counter
from typing import BinaryIO

import pyarrow as pa

from penstock.state.local_storage import LocalStorage


def digest_with(size: int, random: bytes) -> str:
    """Return the digest of a simulated file of state, which tells its size."""
    return f"{size:016x}{random[:8].hex()}"


def size_in(name: str) -> int:
    """Return the size of a simulated file of state."""
    return int(name.rpartition("/")[2][:16], 16)


class CountingStorage(LocalStorage):
    """Counts requests, listed names and bytes. Not synced: the disk's speed is not the subject."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        os.makedirs(root, exist_ok=True)
        super().__init__(root, synced=False)
        self.counts: Counter[str] = Counter()
        self._folders: set[str] = set()

    def put_empty(self, name: str) -> None:
        """Create a file as a task does, but without its contents."""
        folder, _, _ = name.rpartition("/")
        if folder not in self._folders:
            os.makedirs(os.path.join(self.root, folder), exist_ok=True)
            self._folders.add(folder)
        os.close(os.open(os.path.join(self.root, name), os.O_CREAT | os.O_WRONLY))
        self.counts["created"] += 1

    def publish(self, name: str, data: bytes) -> None:
        super().publish(name, data)
        self.counts["created"] += 1
        self.counts["manifest bytes"] += len(data)

    def write(self, name: str, data: bytes) -> None:
        super().write(name, data)
        self.counts["created"] += 1

    def write_file(self, name: str, file: BinaryIO) -> None:
        super().write_file(name, file)
        self.counts["created"] += 1

    def read(self, name: str, at_most: int | None = None) -> bytes:
        data = super().read(name, at_most)
        self.counts["bytes read"] += len(data)
        self.counts["manifest bytes read"] += len(data)
        return data

    def view(self, name: str) -> pa.Buffer:
        """Count the size of the file as read. A reader skips key groups in a local file, but not in a remote one."""
        self.counts["bytes read"] += size_in(name)
        return pa.py_buffer(b"")

    def list(self, prefix: str) -> list[str]:
        names = super().list(prefix)
        self.counts["listings"] += 1
        self.counts["listed"] += len(names)
        return names
