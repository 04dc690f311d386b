"""Partitions, and the offsets at which to start and stop reading them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from penstock.connectors.kafka.client import KafkaError
from penstock.errors import PenstockError


@dataclass(frozen=True, order=True)
class KafkaTopicPartition:
    """A partition of a topic."""

    topic: str
    partition: int

    @property
    def split(self) -> str:
        """Return the split name. Topic names cannot contain a slash."""
        return f"{self.topic}/{self.partition}"

    @staticmethod
    def of_split(split: str) -> KafkaTopicPartition:
        """Return the partition of a split name."""
        topic, _, partition = split.rpartition("/")
        return KafkaTopicPartition(topic, int(partition))

    def __str__(self) -> str:
        return f"topic '{self.topic}', partition {self.partition}"


class KafkaOffsetResetStrategy(Enum):
    """Where to start if the requested offset does not exist. NONE fails the job."""

    LATEST = 0
    EARLIEST = 1
    NONE = 2


Offsets = dict[KafkaTopicPartition, int]


class Log(Protocol):
    """Offset queries of a cluster."""

    def earliest(self, partitions: list[KafkaTopicPartition]) -> Offsets: ...
    def latest(self, partitions: list[KafkaTopicPartition]) -> Offsets: ...
    def at_time(self, partitions: list[KafkaTopicPartition], timestamp: int) -> Offsets: ...
    def committed(self, partitions: list[KafkaTopicPartition]) -> Offsets: ...


class KafkaOffsetsInitializer:
    """Where to start or stop reading. Resolved once, when a job starts without a checkpoint."""

    def __init__(
        self,
        kind: str,
        offsets: Offsets | None = None,
        timestamp: int = 0,
        reset: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.NONE,
    ) -> None:
        self.kind = kind
        self._offsets = offsets or {}
        self._timestamp = timestamp
        self._reset = reset

    @staticmethod
    def earliest() -> KafkaOffsetsInitializer:
        """Use the earliest offsets."""
        return KafkaOffsetsInitializer("earliest")

    @staticmethod
    def latest() -> KafkaOffsetsInitializer:
        """Use the latest offsets: the end of each partition."""
        return KafkaOffsetsInitializer("latest")

    @staticmethod
    def timestamp(timestamp: int) -> KafkaOffsetsInitializer:
        """Use the first record at or after ``timestamp`` (in milliseconds), or the end if no such record exists."""
        if type(timestamp) is not int or timestamp < 0:
            raise PenstockError(f"KafkaOffsetsInitializer.timestamp needs milliseconds since 1970, not {timestamp!r}.")
        return KafkaOffsetsInitializer("timestamp", timestamp=timestamp)

    @staticmethod
    def committed_offsets(
        offset_reset_strategy: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.NONE,
    ) -> KafkaOffsetsInitializer:
        """Use the group's committed offsets, or ``offset_reset_strategy`` for partitions without one."""
        return KafkaOffsetsInitializer("committed", reset=offset_reset_strategy)

    @staticmethod
    def offsets(
        offsets: Offsets, offset_reset_strategy: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.EARLIEST
    ) -> KafkaOffsetsInitializer:
        """Use the given offsets, and the group's committed offsets for other partitions.

        ``offset_reset_strategy`` is for partitions that have neither, and for nonexistent offsets.
        """
        for partition, offset in offsets.items():
            if not isinstance(partition, KafkaTopicPartition) or type(offset) is not int or offset < 0:
                raise PenstockError(
                    f"KafkaOffsetsInitializer.offsets needs {{KafkaTopicPartition('topic', 0): 42}}, not "
                    f"{{{partition!r}: {offset!r}}}."
                )
        return KafkaOffsetsInitializer("given", dict(offsets), reset=offset_reset_strategy)

    def resolve(self, log: Log, partitions: list[KafkaTopicPartition]) -> Offsets:
        """Return the offset of each partition."""
        if self.kind == "earliest":
            return log.earliest(partitions)
        if self.kind == "latest":
            return log.latest(partitions)
        if self.kind == "timestamp":
            return log.at_time(partitions, self._timestamp)
        others = [partition for partition in partitions if partition not in self._offsets]
        wanted = (log.committed(others) if others else {}) | self._offsets
        first, last = log.earliest(partitions), log.latest(partitions)
        return {
            partition: self._within(partition, wanted.get(partition), first[partition], last[partition])
            for partition in partitions
        }

    def stops(self, log: Log, partitions: list[KafkaTopicPartition], bounded: bool) -> Offsets:
        """Return the offsets at which to stop. A bounded source does not wait, so these offsets must exist."""
        if self.kind != "given":
            return self.resolve(log, partitions)
        if bounded:
            last = log.latest(partitions)
            for partition in partitions:
                stop = self._offsets.get(partition)
                if stop is None or stop > last[partition]:
                    problem = "no offset is given" if stop is None else f"offset {stop} does not exist yet"
                    raise KafkaError(
                        f"KafkaSource cannot stop: {partition}: {problem}; the next one will be {last[partition]}.",
                        fix="Pass set_bounded(...) an offset up to that for each partition, or use "
                        "set_unbounded(...), which waits for records.",
                    )
        return {partition: stop for partition, stop in self._offsets.items() if partition in partitions}

    def _within(self, partition: KafkaTopicPartition, wanted: int | None, first: int, last: int) -> int:
        if wanted is not None and first <= wanted <= last:
            return wanted
        if self._reset is KafkaOffsetResetStrategy.NONE:
            problem = "no offset is given" if self.kind == "given" else "the group has no committed offset"
            if wanted is not None:
                problem = f"offset {wanted} does not exist: the partition holds {first} to {last}"
            raise KafkaError(
                f"KafkaSource cannot start: {partition}: {problem}.",
                fix="Pass KafkaOffsetResetStrategy.EARLIEST or LATEST as the fallback.",
            )
        return first if self._reset is KafkaOffsetResetStrategy.EARLIEST else last
