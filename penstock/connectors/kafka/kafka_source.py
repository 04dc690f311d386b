"""KafkaSource: a split is a partition, and a position is the next offset to read.

The range of an epoch ends where the partition ended when the epoch was planned. Kafka retains records, so the range can
be read again. Offsets have gaps: at the end of transactions, and in compacted topics.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from copy import copy
from typing import Any

from penstock.connectors.kafka.client import KafkaClient, KafkaError
from penstock.connectors.kafka.cluster import Cluster, Subscription
from penstock.connectors.kafka.java_properties import to_librdkafka
from penstock.connectors.kafka.offsets import KafkaOffsetsInitializer, KafkaTopicPartition, Offsets
from penstock.connectors.kafka.reader import PartitionReader, offset_gone
from penstock.connectors.kafka.records import KafkaRecordDeserializationSchema
from penstock.connectors.source import Positions, Source
from penstock.errors import PenstockError
from penstock.runtime.moment import Timestamped

_NO_TIME = 0, 0
"""The (type, value) that confluent returns for a message without a timestamp."""
_DISCOVERY_MS = 300_000
"""Interval at which an unbounded source looks for new partitions; the default of Flink."""


class KafkaSource(Source):
    """Read records from Kafka topics. Create one with ``KafkaSource.builder()``.

    A position is [next offset, offset to stop at or None]. A partition discovered while the job runs is first read from
    None, which yields nothing; its position afterwards is its start when it was discovered.
    """

    replayable = True
    why = "Kafka retains the records; every checkpoint stores the offsets, and it reads again from there"
    gives_time = True
    """Records carry their Kafka timestamp, in jobs that use event time."""

    def __init__(
        self,
        client: KafkaClient,
        subscription: Subscription,
        deserializer: KafkaRecordDeserializationSchema,
        starting: KafkaOffsetsInitializer,
        stopping: KafkaOffsetsInitializer | None,
        bounded: bool,
        commits: bool,
        discovery_ms: int,
    ) -> None:
        self.bounded = bounded
        self._client = client
        self._subscription = subscription
        self._deserializer = deserializer
        self._starting = starting
        self._stopping = stopping
        self._commits = commits
        self._discovery_s = discovery_ms / 1000
        self._connected: Cluster | None = None
        self._reader: PartitionReader | None = None
        self._looked: float | None = None
        self._ends: Offsets = {}
        """Offset of the next record of each partition, as of the last query."""

    @property
    def produced_type(self) -> Any:
        """The type of the records, if the deserializer declares one."""
        return self._deserializer.produced_type

    @staticmethod
    def builder() -> KafkaSourceBuilder:
        """Return a builder."""
        return KafkaSourceBuilder()

    # -- in the planner --------------------------------------------------------------------------------------------

    def start(self, parallelism: int) -> Positions:
        partitions = self._look()
        if self.bounded and not partitions:
            raise KafkaError(
                f"KafkaSource: no topic at {self._client.servers} matches '{self._subscription.pattern}'.",
                fix="Correct set_topic_pattern(...), or remove set_bounded(...) to wait for a matching topic.",
            )
        starts = self._starting.resolve(self._cluster, partitions)
        stops = {} if self._stopping is None else self._stopping.stops(self._cluster, partitions, self.bounded)
        return {at.split: [starts[at], stops.get(at)] for at in partitions}

    def advance(self, positions: Positions, limit: int | None) -> Positions:
        new = {}
        if self._looked is None or (not self.bounded and time.monotonic() - self._looked >= self._discovery_s > 0):
            found = self._look()
            if not self.bounded:
                new = self._cluster.earliest([at for at in found if at.split not in positions])
        waiting = self._waiting(positions)
        taken = waiting if limit is None else share(limit, waiting)
        ahead = {split: [offset + taken.get(split, 0), stop] for split, (offset, stop) in positions.items()}
        return ahead | {at.split: [offset, None] for at, offset in new.items()}

    def backlog(self, positions: Positions) -> int:
        """Return the number of offsets between ``positions`` and the end of the partitions at the last query."""
        if not self._ends:
            self._waiting(positions)
        ends = {at.split: end for at, end in self._ends.items()}
        return sum(_left(position, ends.get(split, 0)) for split, position in positions.items())

    def commit(self, positions: Positions) -> None:
        """Commit offsets to the group, for monitoring only: a job resumes from its own checkpoint."""
        if self._commits:
            offsets = {KafkaTopicPartition.of_split(split): offset for split, (offset, _) in positions.items()}
            self._cluster.commit(offsets)

    # -- in the tasks ----------------------------------------------------------------------------------------------

    def read(self, split: str, start: Any, end: Any) -> Iterable[Any]:
        if start is None:
            return ()
        return self._decoded(KafkaTopicPartition.of_split(split), start[0], end[0])

    def _decoded(self, partition: KafkaTopicPartition, start: int, end: int) -> Iterator[Any]:
        if self._reader is None:
            if self.letters is not None:
                # Show the name that the user gave the source.
                self._client.owner = self.letters.who
            self._reader = PartitionReader(self._client)
        decode, timed = self._deserializer.from_message, self.gives_time
        typed = self.produced_type is not None
        for message in self._reader.read(partition, start, end):
            try:
                value = decode(message)
            except Exception as error:
                # User code: any exception means that the record cannot be decoded.
                yield self.unreadable(partition.split, f"offset {message.offset()}", message.value() or b"", error)
                continue
            if value is None and typed:
                continue
            kind, timestamp = message.timestamp() if timed else _NO_TIME
            yield Timestamped(value, timestamp) if kind else value

    def without_time(self) -> KafkaSource:
        other = copy(self)
        other.gives_time = False
        return other

    def ends(self, split: str, position: Any) -> bool:
        offset, stop = position
        return stop is not None and offset >= stop

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
        if self._connected is not None:
            self._connected.close()
        self._connected = self._reader = self._looked = None

    # -- internal --------------------------------------------------------------------------------------------------

    @property
    def _cluster(self) -> Cluster:
        if self._connected is None:
            or_else = "; set_topic_pattern(...) waits for topics that do not exist yet"
            self._connected = Cluster(self._client, or_else)
        return self._connected

    def _look(self) -> list[KafkaTopicPartition]:
        """Return the existing partitions. Raises if a topic does not exist."""
        found = self._cluster.partitions(self._subscription)
        self._looked = time.monotonic()
        return found

    def _waiting(self, positions: Positions) -> dict[str, int]:
        """Return the number of unread offsets by split. Splits no longer subscribed to keep their position."""
        places = {KafkaTopicPartition.of_split(split): position for split, position in positions.items()}
        asked = [at for at, (offset, stop) in places.items() if stop is None or offset < stop]
        self._ends = self._cluster.latest([at for at in asked if self._subscription.holds(at)])
        waiting = {}
        for at, end in self._ends.items():
            offset = places[at][0]
            if end < offset:
                first = self._cluster.earliest([at])[at]
                raise offset_gone("KafkaSource", at, offset, first, end)
            waiting[at.split] = _left(places[at], end)
        return waiting

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_connected": None, "_reader": None, "_looked": None, "_ends": {}}


def _left(position: tuple[int, int | None], end: int) -> int:
    """Return the number of offsets up to `end`, or up to where the source stops."""
    offset, stop = position
    return max(0, (end if stop is None else min(end, stop)) - offset)


def share(limit: int, waiting: dict[str, int]) -> dict[str, int]:
    """Distribute `limit` over splits in proportion to their backlog, with at least one each if the limit allows."""
    total = sum(waiting.values())
    if total <= limit:
        return waiting
    some = {split: count for split, count in waiting.items() if count}
    least = 1 if limit >= len(some) else 0
    rest, shares, before = limit - least * len(some), {}, 0
    spread = total - least * len(some)
    for split, count in some.items():
        # Differences of running sums, so that rounding errors cancel out.
        after = before + count - least
        shares[split] = least + rest * after // spread - rest * before // spread
        before = after
    return shares


class KafkaSourceBuilder:
    """Builder of a ``KafkaSource``. Servers, topics and a deserializer are required."""

    def __init__(self) -> None:
        self._properties: dict[str, str] = {}
        self._subscription: Subscription | None = None
        self._deserializer: KafkaRecordDeserializationSchema | None = None
        self._starting = KafkaOffsetsInitializer.earliest()
        self._stopping: KafkaOffsetsInitializer | None = None
        self._bounded = False

    def set_bootstrap_servers(self, bootstrap_servers: str) -> KafkaSourceBuilder:
        """Set the brokers to connect to, as ``host:port,...``."""
        return self.set_property("bootstrap.servers", bootstrap_servers)

    def set_group_id(self, group_id: str) -> KafkaSourceBuilder:
        """Set the group to which each checkpoint commits its offsets, for monitoring."""
        return self.set_property("group.id", group_id)

    def set_client_id_prefix(self, prefix: str) -> KafkaSourceBuilder:
        """Set the client id shown in broker logs."""
        return self.set_property("client.id", prefix)

    def set_topics(self, *topics: str) -> KafkaSourceBuilder:
        """Set the topics to read. They must exist when the job starts."""
        return self._subscribe(Subscription(topics=topics), topics)

    def set_topic_pattern(self, topic_pattern: str) -> KafkaSourceBuilder:
        """Read all topics whose full name matches a Python regular expression, including topics created later."""
        return self._subscribe(Subscription(pattern=topic_pattern), (topic_pattern,))

    def set_partitions(self, partitions: set[KafkaTopicPartition]) -> KafkaSourceBuilder:
        """Set the partitions to read."""
        return self._subscribe(Subscription(partitions=tuple(sorted(partitions))), tuple(partitions))

    def set_starting_offsets(self, starting_offsets_initializer: KafkaOffsetsInitializer) -> KafkaSourceBuilder:
        """Set where to start if the job has no checkpoint. The default is the earliest offset."""
        self._starting = starting_offsets_initializer
        return self

    def set_bounded(self, stopping_offsets_initializer: KafkaOffsetsInitializer) -> KafkaSourceBuilder:
        """Make the source bounded: read up to these offsets, resolved when the job starts, then end."""
        self._stopping, self._bounded = stopping_offsets_initializer, True
        return self

    def set_unbounded(self, stopping_offsets_initializer: KafkaOffsetsInitializer) -> KafkaSourceBuilder:
        """Stop reading at these offsets, but keep the job running."""
        self._stopping, self._bounded = stopping_offsets_initializer, False
        return self

    def set_value_only_deserializer(self, deserialization_schema: Any) -> KafkaSourceBuilder:
        """Set how the value of a message becomes a record."""
        return self.set_deserializer(KafkaRecordDeserializationSchema.value_only(deserialization_schema))

    def set_deserializer(self, record_deserializer: KafkaRecordDeserializationSchema) -> KafkaSourceBuilder:
        """Set how a message becomes a record, if you need more than its value.

        Args:
            record_deserializer: ``KafkaRecordDeserializationSchema.records(...)`` or your own subclass.
        """
        if not isinstance(record_deserializer, KafkaRecordDeserializationSchema):
            raise PenstockError(
                f"set_deserializer needs a KafkaRecordDeserializationSchema, not {type(record_deserializer).__name__}; "
                f"for values only, use set_value_only_deserializer(SimpleStringSchema())."
            )
        self._deserializer = record_deserializer
        return self

    def set_property(self, key: str, value: str) -> KafkaSourceBuilder:
        """Set a property of librdkafka or of the Java client, or one of Flink's.

        Properties of the Java client get librdkafka's names. Flink's are ``partition.discovery.interval.ms`` and
        ``commit.offsets.on.checkpoint``.
        """
        self._properties[key] = str(value)
        return self

    def set_properties(self, props: dict[str, str]) -> KafkaSourceBuilder:
        """Set several properties."""
        for key, value in props.items():
            self.set_property(key, value)
        return self

    def build(self) -> KafkaSource:
        """Return the source.

        Raises:
            PenstockError: A required setting is missing, or librdkafka rejects the properties.
        """
        properties = {name: value for name, value in self._properties.items() if name not in _OURS}
        subscription, deserializer = self._subscription, self._deserializer
        if "bootstrap.servers" not in properties:
            raise PenstockError("A KafkaSource needs servers: set_bootstrap_servers('host:9092').")
        if subscription is None:
            raise PenstockError("A KafkaSource needs topics to read: set_topics('name').")
        if deserializer is None:
            raise PenstockError(
                "A KafkaSource needs a deserializer: set_value_only_deserializer(SimpleStringSchema())."
            )
        grouped = "group.id" in properties
        if not grouped and "committed" in (self._starting.kind, self._stopping and self._stopping.kind):
            raise PenstockError("KafkaOffsetsInitializer.committed_offsets() needs a group: set_group_id('name').")
        client = KafkaClient("KafkaSource", to_librdkafka("KafkaSource", properties, consumer=True))
        client.check("Consumer")
        return KafkaSource(
            client,
            subscription,
            deserializer,
            self._starting,
            self._stopping,
            self._bounded,
            commits=grouped and self._properties.get("commit.offsets.on.checkpoint", "true").lower() == "true",
            discovery_ms=int(
                next((self._properties[name] for name in _DISCOVERY if name in self._properties), _DISCOVERY_MS)
            ),
        )

    def _subscribe(self, subscription: Subscription, named: tuple[Any, ...]) -> KafkaSourceBuilder:
        if self._subscription is not None:
            raise PenstockError("A KafkaSource reads topics, a pattern or partitions: set only one of them.")
        if not named:
            raise PenstockError("A KafkaSource needs at least one topic or partition.")
        self._subscription = subscription
        return self


_DISCOVERY = ("partition.discovery.interval.ms", "flink.partition-discovery.interval-millis")
"""The name of the property in Flink, and its name in FlinkKafkaConsumer."""
_OURS = {
    *_DISCOVERY,
    "commit.offsets.on.checkpoint",
    "register.consumer.metrics",
    "key.deserializer",
    "value.deserializer",
    "auto.offset.reset",
    "enable.auto.commit",
}
"""Properties of Flink, or decided by the source, which are not passed to librdkafka."""
