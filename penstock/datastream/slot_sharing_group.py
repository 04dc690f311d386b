"""Slot sharing groups and their resources. The plan shows the name; Spark assigns cores and memory to tasks."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import total_ordering

from penstock.absent import explain_absent
from penstock.errors import PenstockError

__all__ = ["MemorySize", "SlotSharingGroup"]

_UNITS = (("tb", 40), ("gb", 30), ("mb", 20), ("kb", 10))


@total_ordering
class MemorySize:
    """A number of bytes.

    Args:
        bytes_size: The number of bytes.

    Raises:
        ValueError: If the number is negative.
    """

    def __init__(self, bytes_size: int) -> None:
        if bytes_size < 0:
            raise ValueError(f"A memory size must not be negative, but is {bytes_size} bytes.")
        self._bytes = bytes_size

    @staticmethod
    def of_mebi_bytes(mebi_bytes: int) -> MemorySize:
        """Return a size in MiB."""
        return MemorySize(bytes_size=mebi_bytes << 20)

    def get_bytes(self) -> int:
        """Return the size in bytes."""
        return self._bytes

    def get_kibi_bytes(self) -> int:
        """Return the size in KiB, rounded down."""
        return self._bytes >> 10

    def get_mebi_bytes(self) -> int:
        """Return the size in MiB, rounded down."""
        return self._bytes >> 20

    def get_gibi_bytes(self) -> int:
        """Return the size in GiB, rounded down."""
        return self._bytes >> 30

    def get_tebi_bytes(self) -> int:
        """Return the size in TiB, rounded down."""
        return self._bytes >> 40

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MemorySize) and self._bytes == other._bytes

    def __lt__(self, other: MemorySize) -> bool:
        if not isinstance(other, MemorySize):
            raise TypeError(f"A MemorySize can only be compared with another one, not with {other!r}.")
        return self._bytes < other._bytes

    def __hash__(self) -> int:
        return hash((MemorySize, self._bytes))

    def __str__(self) -> str:
        for unit, bits in _UNITS:
            if self._bytes and self._bytes % (1 << bits) == 0:
                return f"{self._bytes >> bits} {unit}"
        return f"{self._bytes} bytes"

    def __repr__(self) -> str:
        return f"MemorySize(bytes_size={self._bytes})"


@dataclass(frozen=True, kw_only=True)
class SlotSharingGroup:
    """A named group of operators with its resources. Create one with ``SlotSharingGroup.builder(name)``."""

    name: str
    cpu_cores: float | None = None
    task_heap_memory: MemorySize | None = None
    task_off_heap_memory: MemorySize | None = None
    managed_memory: MemorySize | None = None
    external_resources: dict[str, float] = field(default_factory=dict, hash=False)

    @staticmethod
    def builder(name: str) -> SlotSharingGroup.Builder:
        """Return a builder of a group.

        Args:
            name: The name of the group.
        """
        return SlotSharingGroup.Builder(name)

    def get_name(self) -> str:
        """Return the name of the group."""
        return self.name

    def get_cpu_cores(self) -> float | None:
        """Return the number of cores, or None if the group has no resources."""
        return self.cpu_cores

    def get_task_heap_memory(self) -> MemorySize | None:
        """Return the heap memory, or None if the group has no resources."""
        return self.task_heap_memory

    def get_task_off_heap_memory(self) -> MemorySize | None:
        """Return the off-heap memory, or None if the group has no resources."""
        return self.task_off_heap_memory

    def get_managed_memory(self) -> MemorySize | None:
        """Return the managed memory, or None if the group has no resources."""
        return self.managed_memory

    def get_external_resources(self) -> dict[str, float]:
        """Return the amounts of other resources, by name."""
        return dict(self.external_resources)

    class Builder:
        """Builds a ``SlotSharingGroup``."""

        def __init__(self, name: str) -> None:
            self._name = name
            self._cores: float | None = None
            self._heap: MemorySize | None = None
            self._off_heap: MemorySize | None = None
            self._managed: MemorySize | None = None
            self._external: dict[str, float] = {}

        def set_cpu_cores(self, cpu_cores: float) -> SlotSharingGroup.Builder:
            """Set the number of cores."""
            if cpu_cores <= 0:
                raise PenstockError(f"The cores of a slot sharing group must be positive, but are {cpu_cores}.")
            self._cores = float(cpu_cores)
            return self

        def set_task_heap_memory(self, task_heap_memory: MemorySize) -> SlotSharingGroup.Builder:
            """Set the heap memory."""
            if not task_heap_memory.get_bytes():
                raise PenstockError("The heap memory of a slot sharing group must be positive.")
            self._heap = task_heap_memory
            return self

        def set_task_heap_memory_mb(self, task_heap_memory_mb: int) -> SlotSharingGroup.Builder:
            """Set the heap memory in MiB."""
            return self.set_task_heap_memory(MemorySize.of_mebi_bytes(task_heap_memory_mb))

        def set_task_off_heap_memory(self, task_off_heap_memory: MemorySize) -> SlotSharingGroup.Builder:
            """Set the off-heap memory."""
            self._off_heap = task_off_heap_memory
            return self

        def set_task_off_heap_memory_mb(self, task_off_heap_memory_mb: int) -> SlotSharingGroup.Builder:
            """Set the off-heap memory in MiB."""
            return self.set_task_off_heap_memory(MemorySize.of_mebi_bytes(task_off_heap_memory_mb))

        def set_managed_memory(self, managed_memory: MemorySize) -> SlotSharingGroup.Builder:
            """Set the managed memory."""
            self._managed = managed_memory
            return self

        def set_managed_memory_mb(self, managed_memory_mb: int) -> SlotSharingGroup.Builder:
            """Set the managed memory in MiB."""
            return self.set_managed_memory(MemorySize.of_mebi_bytes(managed_memory_mb))

        def set_external_resource(self, name: str, value: float) -> SlotSharingGroup.Builder:
            """Set the amount of another resource, replacing an earlier one of this name."""
            self._external[name] = float(value)
            return self

        def build(self) -> SlotSharingGroup:
            """Return the group.

            Raises:
                PenstockError: If the group has resources, but not both cores and heap memory.
            """
            given = (self._cores, self._heap, self._off_heap, self._managed)
            if not self._external and given == (None, None, None, None):
                return SlotSharingGroup(name=self._name)
            if self._cores is None or self._heap is None:
                raise PenstockError(
                    f"Slot sharing group '{self._name}' has resources, but not both cores and heap memory.",
                    fix="Call set_cpu_cores and set_task_heap_memory_mb, or neither.",
                )
            none = MemorySize(bytes_size=0)
            return SlotSharingGroup(
                name=self._name,
                cpu_cores=self._cores,
                task_heap_memory=self._heap,
                task_off_heap_memory=self._off_heap or none,
                managed_memory=self._managed or none,
                external_resources=dict(self._external),
            )


explain_absent(__name__)
