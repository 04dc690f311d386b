"""DynamicKafkaSource: a KafkaSource whose topics are called streams, and whose cluster a metadata service names."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.common.serialization import DeserializationSchema
from penstock.connectors.kafka.kafka_source import KafkaSource, KafkaSourceBuilder
from penstock.connectors.kafka.offsets import KafkaOffsetsInitializer
from penstock.connectors.kafka.records import KafkaRecordDeserializationSchema
from penstock.errors import PenstockError

_INTERVAL = "stream-metadata-discovery-interval-ms"
_THRESHOLD = "stream-metadata-discovery-failure-threshold"


class KafkaMetadataService:
    """The base class of metadata services, which map streams to clusters and topics."""


class SingleClusterTopicMetadataService(KafkaMetadataService):
    """A metadata service for one cluster, in which the id of a stream is a topic.

    Args:
        kafka_cluster_id: A name for the cluster.
        properties: The properties of its clients, with ``bootstrap.servers``.
    """

    def __init__(self, kafka_cluster_id: str, properties: dict[str, str]) -> None:
        self.kafka_cluster_id = kafka_cluster_id
        self.properties = dict(properties)


class KafkaStreamSubscriber:
    """The base class of subscribers, which choose streams."""


class KafkaStreamSetSubscriber(KafkaStreamSubscriber):
    """A subscriber that chooses streams by their ids."""

    def __init__(self, stream_ids: Iterable[str]) -> None:
        self.stream_ids = frozenset(stream_ids)


class StreamPatternSubscriber(KafkaStreamSubscriber):
    """A subscriber that chooses streams whose full id matches a Python regular expression."""

    def __init__(self, stream_pattern: str) -> None:
        self.stream_pattern = stream_pattern


class DynamicKafkaSource:
    """Read streams of Kafka. Create one with ``DynamicKafkaSource.builder()``; the result is a ``KafkaSource``."""

    @staticmethod
    def builder() -> DynamicKafkaSourceBuilder:
        """Return a builder."""
        return DynamicKafkaSourceBuilder()


class DynamicKafkaSourceBuilder:
    """Builder of a source. Streams, a metadata service and a deserializer are required."""

    def __init__(self) -> None:
        self._builder = KafkaSourceBuilder()
        self._properties: dict[str, str] = {}
        self._service: SingleClusterTopicMetadataService | None = None

    def set_stream_ids(self, stream_ids: Iterable[str]) -> DynamicKafkaSourceBuilder:
        """Set the streams to read. Their topics must exist when the job starts."""
        self._builder.set_topics(*sorted(stream_ids))
        return self

    def set_stream_pattern(self, stream_pattern: str) -> DynamicKafkaSourceBuilder:
        """Read all streams whose full id matches a Python regular expression, including those created later."""
        self._builder.set_topic_pattern(stream_pattern)
        return self

    def set_kafka_stream_subscriber(self, kafka_stream_subscriber: KafkaStreamSubscriber) -> DynamicKafkaSourceBuilder:
        """Set what chooses the streams: a ``KafkaStreamSetSubscriber`` or a ``StreamPatternSubscriber``."""
        if isinstance(kafka_stream_subscriber, KafkaStreamSetSubscriber):
            return self.set_stream_ids(kafka_stream_subscriber.stream_ids)
        if isinstance(kafka_stream_subscriber, StreamPatternSubscriber):
            return self.set_stream_pattern(kafka_stream_subscriber.stream_pattern)
        raise PenstockError(
            f"A DynamicKafkaSource cannot use a subscriber of type {type(kafka_stream_subscriber).__name__}.",
            fix="Pass a KafkaStreamSetSubscriber or a StreamPatternSubscriber.",
        )

    def set_kafka_metadata_service(self, kafka_metadata_service: KafkaMetadataService) -> DynamicKafkaSourceBuilder:
        """Set what maps streams to topics: a ``SingleClusterTopicMetadataService``."""
        if not isinstance(kafka_metadata_service, SingleClusterTopicMetadataService):
            raise PenstockError(
                f"A DynamicKafkaSource cannot use a metadata service of type {type(kafka_metadata_service).__name__}.",
                fix="Pass a SingleClusterTopicMetadataService. For several clusters, unite one KafkaSource for each "
                "with ds.union(...).",
            )
        self._service = kafka_metadata_service
        return self

    def set_deserializer(self, deserializer: KafkaRecordDeserializationSchema) -> DynamicKafkaSourceBuilder:
        """Set how a message becomes a record."""
        self._builder.set_deserializer(deserializer)
        return self

    def set_value_only_deserializer(self, deserialization_schema: DeserializationSchema) -> DynamicKafkaSourceBuilder:
        """Set how the value of a message becomes a record."""
        self._builder.set_value_only_deserializer(deserialization_schema)
        return self

    def set_starting_offsets(self, starting_offsets_initializer: KafkaOffsetsInitializer) -> DynamicKafkaSourceBuilder:
        """Set where to start if the job has no checkpoint. The default is the earliest offset."""
        self._builder.set_starting_offsets(starting_offsets_initializer)
        return self

    def set_bounded(self, stopping_offsets_initializer: KafkaOffsetsInitializer) -> DynamicKafkaSourceBuilder:
        """Make the source bounded: read up to these offsets, resolved when the job starts, then end."""
        self._builder.set_bounded(stopping_offsets_initializer)
        return self

    def set_properties(self, props: dict[str, str]) -> DynamicKafkaSourceBuilder:
        """Set several properties."""
        self._properties |= props
        return self

    def set_property(self, key: str, value: str) -> DynamicKafkaSourceBuilder:
        """Set a property of the client; it takes precedence over the one of the metadata service."""
        self._properties[key] = value
        return self

    def set_group_id(self, group_id: str) -> DynamicKafkaSourceBuilder:
        """Set the group to which each checkpoint commits its offsets, for monitoring."""
        return self.set_property("group.id", group_id)

    def set_client_id_prefix(self, prefix: str) -> DynamicKafkaSourceBuilder:
        """Set the client id shown in broker logs."""
        return self.set_property("client.id", prefix)

    def build(self) -> KafkaSource:
        """Return the source.

        Raises:
            PenstockError: A required setting is missing, or librdkafka rejects the properties.
        """
        if self._service is None:
            raise PenstockError(
                "A DynamicKafkaSource needs a metadata service.",
                fix="Call set_kafka_metadata_service(SingleClusterTopicMetadataService(name, properties)).",
            )
        for key, value in (self._service.properties | self._properties).items():
            if key == _INTERVAL:
                self._builder.set_property("partition.discovery.interval.ms", value)
            elif key != _THRESHOLD:
                self._builder.set_property(key, value)
        return self._builder.build()
