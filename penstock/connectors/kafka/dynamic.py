"""``DynamicKafkaSource``: a Kafka source whose topics a metadata service names. The service describes one cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Self

from penstock.connectors.kafka.kafka_source import KafkaSource
from penstock.connectors.kafka.offsets import KafkaOffsetsInitializer
from penstock.connectors.kafka.records import KafkaRecordDeserializationSchema
from penstock.errors import PenstockError


class KafkaMetadataService:
    """Knows where the topics are. Use ``SingleClusterTopicMetadataService``."""


class SingleClusterTopicMetadataService(KafkaMetadataService):
    """A service for one cluster, where each stream is a topic.

    Args:
        kafka_cluster_id: A name of the cluster.
        properties: The properties of the client, with ``bootstrap.servers``.
    """

    def __init__(self, kafka_cluster_id: str, properties: Mapping[str, str]) -> None:
        self.kafka_cluster_id = kafka_cluster_id
        self.properties = dict(properties)


class KafkaStreamSubscriber:
    """Chooses streams. Use one of its subclasses."""


class KafkaStreamSetSubscriber(KafkaStreamSubscriber):
    """Chooses streams by name.

    Args:
        stream_ids: The names.
    """

    def __init__(self, stream_ids: Iterable[str]) -> None:
        self.stream_ids = tuple(sorted(stream_ids))


class StreamPatternSubscriber(KafkaStreamSubscriber):
    """Chooses streams whose name matches a regular expression.

    Args:
        stream_pattern: The expression.
    """

    def __init__(self, stream_pattern: str) -> None:
        self.stream_pattern = stream_pattern


class DynamicKafkaSource(KafkaSource):
    """A ``KafkaSource``. Create it with ``DynamicKafkaSource.builder()``."""

    @staticmethod
    def builder() -> DynamicKafkaSourceBuilder:  # type: ignore[override]
        """Return a builder."""
        return DynamicKafkaSourceBuilder()


class DynamicKafkaSourceBuilder:
    """Builds a ``KafkaSource`` from the metadata of a service. Streams, a service and a deserializer are required."""

    def __init__(self) -> None:
        self._builder = KafkaSource.builder()
        self._subscriber: KafkaStreamSubscriber | None = None
        self._service: KafkaMetadataService | None = None

    def set_stream_ids(self, stream_ids: Iterable[str]) -> Self:
        """Set the streams to read: topics, in the service of a single cluster."""
        return self.set_kafka_stream_subscriber(KafkaStreamSetSubscriber(stream_ids))

    def set_stream_pattern(self, stream_pattern: str) -> Self:
        """Read all streams whose full name matches a Python regular expression."""
        return self.set_kafka_stream_subscriber(StreamPatternSubscriber(stream_pattern))

    def set_kafka_stream_subscriber(self, kafka_stream_subscriber: KafkaStreamSubscriber) -> Self:
        """Set how streams are chosen."""
        self._subscriber = kafka_stream_subscriber
        return self

    def set_kafka_metadata_service(self, kafka_metadata_service: KafkaMetadataService) -> Self:
        """Set the service that knows where the streams are."""
        self._service = kafka_metadata_service
        return self

    def set_value_only_deserializer(self, deserialization_schema: Any) -> Self:
        """Set how the value of a message becomes a record."""
        self._builder.set_value_only_deserializer(deserialization_schema)
        return self

    def set_deserializer(self, deserializer: KafkaRecordDeserializationSchema) -> Self:
        """Set how a message becomes a record, if you need more than its value."""
        self._builder.set_deserializer(deserializer)
        return self

    def set_starting_offsets(self, starting_offsets_initializer: KafkaOffsetsInitializer) -> Self:
        """Set where to start if the job has no checkpoint."""
        self._builder.set_starting_offsets(starting_offsets_initializer)
        return self

    def set_bounded(self, stopping_offsets_initializer: KafkaOffsetsInitializer) -> Self:
        """Make the source bounded: read up to these offsets, resolved when the job starts, then end."""
        self._builder.set_bounded(stopping_offsets_initializer)
        return self

    def set_group_id(self, group_id: str) -> Self:
        """Set the group to which each checkpoint commits its offsets, for monitoring."""
        self._builder.set_group_id(group_id)
        return self

    def set_client_id_prefix(self, prefix: str) -> Self:
        """Set the client id shown in broker logs."""
        self._builder.set_client_id_prefix(prefix)
        return self

    def set_property(self, key: str, value: str) -> Self:
        """Set a property of the client."""
        self._builder.set_property(key, value)
        return self

    def set_properties(self, props: Mapping[str, str]) -> Self:
        """Set several properties of the client."""
        for key, value in props.items():
            self.set_property(key, value)
        return self

    def build(self) -> KafkaSource:
        """Return the source.

        Raises:
            PenstockError: A required setting is missing, or the service or the subscriber is another class.
        """
        if not isinstance(self._service, SingleClusterTopicMetadataService):
            raise PenstockError(
                "A DynamicKafkaSource needs a SingleClusterTopicMetadataService.",
                fix="Call set_kafka_metadata_service(...). For several clusters, use one source for each and ds.union.",
            )
        for key, value in self._service.properties.items():
            self._builder.set_property(key, value)
        match self._subscriber:
            case KafkaStreamSetSubscriber(stream_ids=topics):
                self._builder.set_topics(*topics)
            case StreamPatternSubscriber(stream_pattern=pattern):
                self._builder.set_topic_pattern(pattern)
            case _:
                raise PenstockError("A DynamicKafkaSource needs streams to read: set_stream_ids({'name'}).")
        return self._builder.build()
