"""KafkaSource: a split is a partition, a position the offset that comes next.

The end of an epoch's range is what the partition held when it was planned; it is read again as often as need be, for
Kafka keeps what was read. Offsets have gaps where transactions end and where a topic is compacted.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from copy import copy
from typing import Any

from penstock.connectors.kafka.client import KafkaClient, KafkaError
from penstock.connectors.kafka.cluster import Cluster, Subscription
from penstock.connectors.kafka.offsets import KafkaOffsetsInitializer, KafkaTopicPartition, Offsets
from penstock.connectors.kafka.reader import PartitionReader, offset_gone
from penstock.connectors.kafka.records import KafkaRecordDeserializationSchema
from penstock.connectors.source import Positions, Source
from penstock.errors import PenstockError
from penstock.runtime.moment import Timestamped

_NO_TIME = 0, 0
"""As confluent's messages say it."""
_DISCOVERY_MS = 300_000
"""As in Flink: how often a source that goes on looks for new partitions."""


class KafkaSource(Source):
    """Made by `KafkaSource.builder()`. A position is [next offset, offset to stop at or None].

    A split that is found while the job runs is first read from None: that reads nothing, and from then on its position
    is where it began when it was found.
    """

    replayable = True
    why = "Kafka keeps the records; its offsets are in every checkpoint, and it reads again from there"
    gives_time = True
    """Records have the time that Kafka has for them, in jobs that use it."""

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
        """Where the next record would be, when that was last asked."""

    @staticmethod
    def builder() -> KafkaSourceBuilder:
        return KafkaSourceBuilder()

    # -- in the planner --------------------------------------------------------------------------------------------

    def start(self, parallelism: int) -> Positions:
        partitions = self._look()
        if self.bounded and not partitions:
            raise KafkaError(
                f"KafkaSource: no topic at {self._client.servers} matches '{self._subscription.pattern}'.",
                fix="Correct set_topic_pattern(...), or leave set_bounded(...) out: then the source waits for one.",
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
        """How many offsets lie between these positions and what the partitions held when they were last asked."""
        if not self._ends:
            self._waiting(positions)
        ends = {at.split: end for at, end in self._ends.items()}
        return sum(_left(position, ends.get(split, 0)) for split, position in positions.items())

    def commit(self, positions: Positions) -> None:
        """For those who watch the group: a job goes on from its own checkpoint, not from this."""
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
                # By the name that the user gave it.
                self._client.owner = self.letters.who
            self._reader = PartitionReader(self._client)
        decode, timed = self._deserializer.from_message, self.gives_time
        for message in self._reader.read(partition, start, end):
            try:
                value = decode(message)
            except Exception as error:
                # Whatever a deserializer raises, the record is what it does not take.
                yield self.unreadable(partition.split, f"offset {message.offset()}", message.value() or b"", error)
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

    # -- inside ----------------------------------------------------------------------------------------------------

    @property
    def _cluster(self) -> Cluster:
        if self._connected is None:
            or_else = "; set_topic_pattern(...) waits for topics that do not exist yet"
            self._connected = Cluster(self._client, or_else)
        return self._connected

    def _look(self) -> list[KafkaTopicPartition]:
        """Which partitions there are. Raises for a topic that does not exist."""
        found = self._cluster.partitions(self._subscription)
        self._looked = time.monotonic()
        return found

    def _waiting(self, positions: Positions) -> dict[str, int]:
        """By split, how many offsets there are that were not read. What is subscribed to no more stays where it is."""
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
    """How many offsets there are to read up to `end`, or to where the source stops."""
    offset, stop = position
    return max(0, (end if stop is None else min(end, stop)) - offset)


def share(limit: int, waiting: dict[str, int]) -> dict[str, int]:
    """At most `limit`, to each split by what waits there; at least one to each, where the limit is enough for that."""
    total = sum(waiting.values())
    if total <= limit:
        return waiting
    some = {split: count for split, count in waiting.items() if count}
    least = 1 if limit >= len(some) else 0
    rest, shares, before = limit - least * len(some), {}, 0
    spread = total - least * len(some)
    for split, count in some.items():
        # Of running sums, so that nothing is lost by rounding.
        after = before + count - least
        shares[split] = least + rest * after // spread - rest * before // spread
        before = after
    return shares


class KafkaSourceBuilder:
    """Servers, what to read and a deserializer are needed; `build` says what is missing."""

    def __init__(self) -> None:
        self._properties: dict[str, str] = {}
        self._subscription: Subscription | None = None
        self._deserializer: KafkaRecordDeserializationSchema | None = None
        self._starting = KafkaOffsetsInitializer.earliest()
        self._stopping: KafkaOffsetsInitializer | None = None
        self._bounded = False

    def set_bootstrap_servers(self, bootstrap_servers: str) -> KafkaSourceBuilder:
        return self.set_property("bootstrap.servers", bootstrap_servers)

    def set_group_id(self, group_id: str) -> KafkaSourceBuilder:
        """Offsets are committed to this group with every checkpoint, for those who watch it."""
        return self.set_property("group.id", group_id)

    def set_client_id_prefix(self, prefix: str) -> KafkaSourceBuilder:
        return self.set_property("client.id", prefix)

    def set_topics(self, *topics: str) -> KafkaSourceBuilder:
        """All must exist when the job starts."""
        return self._subscribe(Subscription(topics=topics), topics)

    def set_topic_pattern(self, topic_pattern: str) -> KafkaSourceBuilder:
        """Topics whose whole name matches, also those that appear later. A regular expression of Python's."""
        return self._subscribe(Subscription(pattern=topic_pattern), (topic_pattern,))

    def set_partitions(self, partitions: set[KafkaTopicPartition]) -> KafkaSourceBuilder:
        return self._subscribe(Subscription(partitions=tuple(sorted(partitions))), tuple(partitions))

    def set_starting_offsets(self, starting_offsets_initializer: KafkaOffsetsInitializer) -> KafkaSourceBuilder:
        """Where to begin when there is no checkpoint; without this, at the earliest."""
        self._starting = starting_offsets_initializer
        return self

    def set_bounded(self, stopping_offsets_initializer: KafkaOffsetsInitializer) -> KafkaSourceBuilder:
        """Read up to these offsets, as they are found when the job starts, and end."""
        self._stopping, self._bounded = stopping_offsets_initializer, True
        return self

    def set_unbounded(self, stopping_offsets_initializer: KafkaOffsetsInitializer) -> KafkaSourceBuilder:
        """Read up to these offsets and no further, but let the job go on."""
        self._stopping, self._bounded = stopping_offsets_initializer, False
        return self

    def set_value_only_deserializer(self, deserialization_schema: Any) -> KafkaSourceBuilder:
        return self.set_deserializer(KafkaRecordDeserializationSchema.value_only(deserialization_schema))

    def set_deserializer(self, record_deserializer: KafkaRecordDeserializationSchema) -> KafkaSourceBuilder:
        """For more than values: KafkaRecordDeserializationSchema.records(...) or one of your own."""
        if not isinstance(record_deserializer, KafkaRecordDeserializationSchema):
            raise PenstockError(
                f"set_deserializer needs a KafkaRecordDeserializationSchema, not {type(record_deserializer).__name__}; "
                f"for values only there is set_value_only_deserializer(SimpleStringSchema())."
            )
        self._deserializer = record_deserializer
        return self

    def set_property(self, key: str, value: str) -> KafkaSourceBuilder:
        """A property of librdkafka, or partition.discovery.interval.ms or commit.offsets.on.checkpoint of Flink."""
        self._properties[key] = str(value)
        return self

    def set_properties(self, props: dict[str, str]) -> KafkaSourceBuilder:
        for key, value in props.items():
            self.set_property(key, value)
        return self

    def build(self) -> KafkaSource:
        properties = {name: value for name, value in self._properties.items() if name not in _OURS}
        subscription, deserializer = self._subscription, self._deserializer
        if "bootstrap.servers" not in properties:
            raise PenstockError("A KafkaSource needs servers: set_bootstrap_servers('host:9092').")
        if subscription is None:
            raise PenstockError("A KafkaSource needs to know what to read: set_topics('name').")
        if deserializer is None:
            raise PenstockError(
                "A KafkaSource needs a deserializer: set_value_only_deserializer(SimpleStringSchema())."
            )
        grouped = "group.id" in properties
        if not grouped and "committed" in (self._starting.kind, self._stopping and self._stopping.kind):
            raise PenstockError("KafkaOffsetsInitializer.committed_offsets() needs a group: set_group_id('name').")
        client = KafkaClient("KafkaSource", properties)
        client.check("Consumer")
        return KafkaSource(
            client,
            subscription,
            deserializer,
            self._starting,
            self._stopping,
            self._bounded,
            commits=grouped and self._properties.get("commit.offsets.on.checkpoint", "true").lower() == "true",
            discovery_ms=int(self._properties.get("partition.discovery.interval.ms", _DISCOVERY_MS)),
        )

    def _subscribe(self, subscription: Subscription, named: tuple[Any, ...]) -> KafkaSourceBuilder:
        if self._subscription is not None:
            raise PenstockError("A KafkaSource reads either topics, or a pattern, or partitions: set one of them.")
        if not named:
            raise PenstockError("A KafkaSource needs at least one topic or partition.")
        self._subscription = subscription
        return self


_OURS = {
    "partition.discovery.interval.ms",
    "commit.offsets.on.checkpoint",
    "register.consumer.metrics",
    "key.deserializer",
    "value.deserializer",
    "auto.offset.reset",
    "enable.auto.commit",
}
"""Properties that are Flink's or that the source decides: librdkafka does not hear of them."""
