"""Partitions, and where to start and stop reading them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from penstock.connectors.kafka.client import KafkaError
from penstock.errors import PenstockError


@dataclass(frozen=True, order=True)
class KafkaTopicPartition:
    topic: str
    partition: int

    @property
    def split(self) -> str:
        """The name of the split. No topic has a slash."""
        return f"{self.topic}/{self.partition}"

    @staticmethod
    def of_split(split: str) -> KafkaTopicPartition:
        topic, _, partition = split.rpartition("/")
        return KafkaTopicPartition(topic, int(partition))

    def __str__(self) -> str:
        return f"topic '{self.topic}', partition {self.partition}"


class KafkaOffsetResetStrategy(Enum):
    """Where to start where the wanted offset is not there."""

    LATEST = 0
    EARLIEST = 1
    NONE = 2


Offsets = dict[KafkaTopicPartition, int]


class Log(Protocol):
    """What a cluster knows of partitions."""

    def earliest(self, partitions: list[KafkaTopicPartition]) -> Offsets: ...
    def latest(self, partitions: list[KafkaTopicPartition]) -> Offsets: ...
    def at_time(self, partitions: list[KafkaTopicPartition], timestamp: int) -> Offsets: ...
    def committed(self, partitions: list[KafkaTopicPartition]) -> Offsets: ...


class KafkaOffsetsInitializer:
    """Says where to start or stop. Asked once, when a job starts without a checkpoint."""

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
        return KafkaOffsetsInitializer("earliest")

    @staticmethod
    def latest() -> KafkaOffsetsInitializer:
        return KafkaOffsetsInitializer("latest")

    @staticmethod
    def timestamp(timestamp: int) -> KafkaOffsetsInitializer:
        """The first record of this time, in milliseconds, or later; the end where there is none."""
        if type(timestamp) is not int or timestamp < 0:
            raise PenstockError(f"KafkaOffsetsInitializer.timestamp needs milliseconds since 1970, not {timestamp!r}.")
        return KafkaOffsetsInitializer("timestamp", timestamp=timestamp)

    @staticmethod
    def committed_offsets(
        offset_reset_strategy: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.NONE,
    ) -> KafkaOffsetsInitializer:
        """What the group has committed, or as the strategy says where it has not."""
        return KafkaOffsetsInitializer("committed", reset=offset_reset_strategy)

    @staticmethod
    def offsets(
        offsets: Offsets, offset_reset_strategy: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.EARLIEST
    ) -> KafkaOffsetsInitializer:
        """These; for other partitions, and where a partition has no such offset, as the strategy says."""
        for partition, offset in offsets.items():
            if not isinstance(partition, KafkaTopicPartition) or type(offset) is not int or offset < 0:
                raise PenstockError(
                    f"KafkaOffsetsInitializer.offsets needs {{KafkaTopicPartition('topic', 0): 42}}, not "
                    f"{{{partition!r}: {offset!r}}}."
                )
        return KafkaOffsetsInitializer("given", dict(offsets), reset=offset_reset_strategy)

    def resolve(self, log: Log, partitions: list[KafkaTopicPartition]) -> Offsets:
        """The offset of each partition."""
        if self.kind == "earliest":
            return log.earliest(partitions)
        if self.kind == "latest":
            return log.latest(partitions)
        if self.kind == "timestamp":
            return log.at_time(partitions, self._timestamp)
        wanted = log.committed(partitions) if self.kind == "committed" else self._offsets
        first, last = log.earliest(partitions), log.latest(partitions)
        return {
            partition: self._within(partition, wanted.get(partition), first[partition], last[partition])
            for partition in partitions
        }

    def stops(self, log: Log, partitions: list[KafkaTopicPartition], bounded: bool) -> Offsets:
        """As where to stop. A bounded source cannot wait for records, so it must stop at what is there."""
        if self.kind != "given":
            return self.resolve(log, partitions)
        if bounded:
            last = log.latest(partitions)
            for partition in partitions:
                stop = self._offsets.get(partition)
                if stop is None or stop > last[partition]:
                    problem = "no offset is given" if stop is None else f"it has no offset {stop} yet"
                    raise KafkaError(
                        f"KafkaSource cannot stop: {partition}: {problem}; the next one will be {last[partition]}.",
                        fix="Give set_bounded(...) an offset up to that for each partition, or use "
                        "set_unbounded(...), which waits for records.",
                    )
        return {partition: stop for partition, stop in self._offsets.items() if partition in partitions}

    def _within(self, partition: KafkaTopicPartition, wanted: int | None, first: int, last: int) -> int:
        if wanted is not None and first <= wanted <= last:
            return wanted
        if self._reset is KafkaOffsetResetStrategy.NONE:
            problem = "no offset is given" if self.kind == "given" else "the group has committed no offset"
            if wanted is not None:
                problem = f"offset {wanted} is not there: it holds {first} to {last}"
            raise KafkaError(
                f"KafkaSource cannot start: {partition}: {problem}.",
                fix="Give KafkaOffsetResetStrategy.EARLIEST or LATEST as the second choice.",
            )
        return first if self._reset is KafkaOffsetResetStrategy.EARLIEST else last
