"""Cluster queries of the planner: the partitions that exist, and the offsets they hold."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

from penstock.connectors.kafka.client import GROUP, KafkaClient, KafkaError, confluent_kafka, log
from penstock.connectors.kafka.offsets import KafkaTopicPartition, Offsets

_LATEST, _EARLIEST = -1, -2
"""Timestamps that denote the end and the start of a partition in Kafka's protocol."""


_PASSING = {
    "NOT_LEADER_FOR_PARTITION",
    "LEADER_NOT_AVAILABLE",
    "REPLICA_NOT_AVAILABLE",
    "FENCED_LEADER_EPOCH",
    "UNKNOWN_LEADER_EPOCH",
    "OFFSET_NOT_AVAILABLE",
    "REQUEST_TIMED_OUT",
    "_TRANSPORT",
}
"""Transient errors during a leader change. librdkafka retries fetches, but not offset queries."""
_PAUSE_S = 0.1


class Subscription(NamedTuple):
    """Topics to read: by name, by a pattern that matches the full name, or as partitions."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    partitions: tuple[KafkaTopicPartition, ...] = ()

    def holds(self, partition: KafkaTopicPartition) -> bool:
        if self.partitions:
            return partition in self.partitions
        return partition.topic in self.topics or bool(self.pattern and re.fullmatch(self.pattern, partition.topic))


class Cluster:
    """A client for metadata only. Queries the offsets of all partitions together, with one request per broker."""

    def __init__(self, client: KafkaClient, or_else: str = "") -> None:
        """`or_else`: an alternative to creating a missing topic, for the error message."""
        self._client = client
        self._or_else = or_else
        self._confluent = confluent_kafka()
        self._consumer = client.consumer(
            {
                "enable.auto.commit": False,
                # Otherwise a metadata request creates the topic, on brokers that allow it.
                "allow.auto.create.topics": False,
                "on_commit": self._committed,
            },
            GROUP,
        )

    def partitions(self, wanted: Subscription) -> list[KafkaTopicPartition]:
        """Return all partitions that exist now. Raises if a named topic or partition does not exist."""
        topics = wanted.topics or {partition.topic for partition in wanted.partitions}
        found: list[KafkaTopicPartition] = []
        if wanted.pattern:
            found = self._listed(topic for topic in self._metadata().values() if not topic.error)
        for topic in topics:
            metadata = self._metadata(topic)[topic]
            if metadata.error is not None:
                raise self._no_topic(topic, metadata.error)
            found += self._listed([metadata])
        for partition in wanted.partitions:
            if partition not in found:
                raise KafkaError(
                    f"{self._client.owner}: topic '{partition.topic}' at {self._client.servers} has no partition "
                    f"{partition.partition}: it has {sum(each.topic == partition.topic for each in found)} partitions.",
                    fix="Correct set_partitions(...).",
                )
        return sorted({partition for partition in found if wanted.holds(partition)})

    def earliest(self, partitions: list[KafkaTopicPartition]) -> Offsets:
        return self._offsets(partitions, _EARLIEST)

    def latest(self, partitions: list[KafkaTopicPartition]) -> Offsets:
        """Return the offset of the next record; for read_committed consumers, the offset they can read up to."""
        return self._offsets(partitions, _LATEST)

    def at_time(self, partitions: list[KafkaTopicPartition], timestamp: int) -> Offsets:
        found = self._offsets(partitions, timestamp)
        without = [partition for partition, offset in found.items() if offset < 0]
        return found | self.latest(without)

    def committed(self, partitions: list[KafkaTopicPartition]) -> Offsets:
        """Return the group's committed offsets, omitting partitions without one."""
        try:
            found = self._consumer.committed([self._named(each) for each in partitions], self._client.timeout)
        except self._confluent.KafkaException as error:
            raise self._client.failed("read the committed offsets of its group", error) from None
        return {KafkaTopicPartition(each.topic, each.partition): each.offset for each in found if each.offset >= 0}

    def commit(self, offsets: Offsets) -> None:
        """Commit offsets to the group without waiting: nothing depends on them."""
        named = [self._confluent.TopicPartition(at.topic, at.partition, offset) for at, offset in offsets.items()]
        if named:
            self._consumer.commit(offsets=named, asynchronous=True)
            self._consumer.poll(0)

    def close(self) -> None:
        self._consumer.close()

    def _offsets(self, partitions: list[KafkaTopicPartition], timestamp: int) -> Offsets:
        if not partitions:
            return {}
        asked = [self._named(each, timestamp) for each in partitions]
        deadline = time.monotonic() + self._client.timeout
        while True:
            found, problem = self._ask_for_offsets(asked)
            if problem is None:
                return {KafkaTopicPartition(each.topic, each.partition): each.offset for each in found}
            if problem.name() not in _PASSING or time.monotonic() > deadline:
                raise self._client.failed("look up the offsets of its partitions", problem)
            # poll() also serves the error callback.
            self._consumer.poll(_PAUSE_S)

    def _ask_for_offsets(self, asked: list[Any]) -> tuple[list[Any], Any]:
        """Return the brokers' answer and the first error in it, if any."""
        try:
            found = self._consumer.offsets_for_times(asked, timeout=self._client.timeout)
        except self._confluent.KafkaException as error:
            return [], error.args[0]
        wrong = next((each for each in found if each.error is not None), None)
        if wrong is not None and wrong.error.code() == self._confluent.KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise self._no_topic(wrong.topic, wrong.error)
        return found, None if wrong is None else wrong.error

    def _metadata(self, topic: str | None = None) -> Any:
        try:
            # list_topics() does not accept None for all topics.
            asked = () if topic is None else (topic,)
            return self._consumer.list_topics(*asked, timeout=self._client.timeout).topics
        except self._confluent.KafkaException as error:
            # Serves the error callback.
            self._consumer.poll(0)
            raise self._client.failed("list the topics", error) from None

    def _listed(self, topics: Iterable[Any]) -> list[KafkaTopicPartition]:
        return [KafkaTopicPartition(topic.topic, number) for topic in topics for number in topic.partitions]

    def _named(self, partition: KafkaTopicPartition, offset: int = -1001) -> Any:
        return self._confluent.TopicPartition(partition.topic, partition.partition, offset)

    def _no_topic(self, topic: str, error: Any) -> KafkaError:
        return KafkaError(
            f"{self._client.owner}: topic '{topic}' does not exist at {self._client.servers} ({error.str()}).",
            fix=f"Create it, or correct the name{self._or_else}.",
        )

    def _committed(self, error: Any, partitions: list[Any]) -> None:
        if error is not None:
            log.warning("%s could not commit offsets to its group: %s", self._client.owner, error.str())
