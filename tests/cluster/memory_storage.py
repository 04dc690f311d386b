"""A storage in memory for tests with many thousands of records: put-if-absent, without a disk."""

from typing import cast

from penstock.checkpoint.lineages import SharedStorage
from penstock.cluster.records import Records
from penstock.state.storage import AlreadyPublished, MissingObject


class MemoryStorage:
    """The part of a storage that `Records` uses."""

    where = "memory"

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def publish(self, name: str, data: bytes) -> None:
        if name in self.files:
            raise AlreadyPublished(name, self.where)
        self.files[name] = data

    def write(self, name: str, data: bytes) -> None:
        self.files[name] = data

    def read(self, name: str, at_most: int | None = None) -> bytes:
        if name not in self.files:
            raise MissingObject(name, self.where)
        return self.files[name]

    def exists(self, name: str) -> bool:
        return name in self.files

    def list(self, prefix: str) -> list[str]:
        return sorted(name for name in self.files if name.startswith(prefix))

    def delete(self, name: str) -> None:
        self.files.pop(name, None)


def records_in_memory() -> Records:
    return Records(cast(SharedStorage, MemoryStorage()))
