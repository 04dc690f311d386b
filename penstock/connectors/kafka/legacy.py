"""``FlinkKafkaConsumer`` and ``FlinkKafkaProducer``, built from the source and the sink that replace them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Self

from penstock.common.serialization import DeserializationSchema, SerializationSchema
from penstock.common.without_effect import note
from penstock.connectors.delivery import DeliveryGuarantee
from penstock.connectors.kafka.kafka_sink import KafkaSink
from penstock.connectors.kafka.kafka_source import KafkaSource
from penstock.connectors.kafka.offsets import KafkaOffsetResetStrategy, KafkaOffsetsInitializer
from penstock.connectors.kafka.serializing import KafkaRecordSerializationSchema
from penstock.errors import PenstockError

_RESET = {"earliest": KafkaOffsetResetStrategy.EARLIEST, "none": KafkaOffsetResetStrategy.NONE}


class FlinkKafkaConsumer:
    """A Kafka source of PyFlink 1, for ``env.add_source``. Use ``KafkaSource`` in new programs.

    Args:
        topics: A topic, or several.
        deserialization_schema: How the value of a message becomes a record.
        properties: The properties of the client, with ``bootstrap.servers``.
    """

    def __init__(
        self,
        topics: str | Sequence[str],
        deserialization_schema: DeserializationSchema,
        properties: Mapping[str, str],
    ) -> None:
        self._topics = (topics,) if isinstance(topics, str) else tuple(topics)
        self._schema = deserialization_schema
        self._properties = dict(properties)
        reset = str(self._properties.get("auto.offset.reset", "latest"))
        # By default, the consumer starts from the group's offsets.
        self._starting = KafkaOffsetsInitializer.committed_offsets(_RESET.get(reset, KafkaOffsetResetStrategy.LATEST))
        if "group.id" not in self._properties:
            at_start = reset == "earliest"
            self._starting = KafkaOffsetsInitializer.earliest() if at_start else KafkaOffsetsInitializer.latest()

    def set_commit_offsets_on_checkpoints(self, commit_on_checkpoints: bool) -> Self:
        """Set whether each checkpoint commits its offsets to the group, for monitoring."""
        self._properties["commit.offsets.on.checkpoint"] = str(commit_on_checkpoints).lower()
        return self

    def set_start_from_earliest(self) -> Self:
        """Start from the earliest offsets if the job has no checkpoint."""
        return self._start(KafkaOffsetsInitializer.earliest())

    def set_start_from_latest(self) -> Self:
        """Start from the latest offsets if the job has no checkpoint."""
        return self._start(KafkaOffsetsInitializer.latest())

    def set_start_from_timestamp(self, startup_offsets_timestamp: int) -> Self:
        """Start from the first record at or after a time in milliseconds, if the job has no checkpoint."""
        return self._start(KafkaOffsetsInitializer.timestamp(startup_offsets_timestamp))

    def set_start_from_group_offsets(self) -> Self:
        """Start from the group's offsets if the job has no checkpoint. This is the default."""
        reset = _RESET.get(str(self._properties.get("auto.offset.reset")), KafkaOffsetResetStrategy.LATEST)
        return self._start(KafkaOffsetsInitializer.committed_offsets(reset))

    def disable_filter_restored_partitions_with_subscribed_topics(self) -> Self:
        """Accept the call without effect: partitions outside the subscription are not read."""
        name = "FlinkKafkaConsumer.disable_filter_restored_partitions_with_subscribed_topics"
        note(name, "partitions outside the subscription keep their position and are not read")
        return self

    def get_produced_type(self) -> Any:
        """Return the type of the records, if the schema declares one."""
        return getattr(self._schema, "produced_type", None)

    def to_source(self) -> KafkaSource:
        """Return the source that reads the same records."""
        builder = KafkaSource.builder().set_topics(*self._topics).set_properties(self._properties)
        return builder.set_value_only_deserializer(self._schema).set_starting_offsets(self._starting).build()

    def _start(self, offsets: KafkaOffsetsInitializer) -> Self:
        self._starting = offsets
        return self


class Semantic(Enum):
    """The guarantee of a ``FlinkKafkaProducer``."""

    EXACTLY_ONCE = 0
    AT_LEAST_ONCE = 1
    NONE = 2


class FlinkKafkaProducer:
    """A Kafka sink of PyFlink 1, for ``ds.add_sink``. Use ``KafkaSink`` in new programs.

    Args:
        topic: The topic to write to.
        serialization_schema: How a record becomes the value of a message.
        producer_config: The properties of the client, with ``bootstrap.servers``.
        kafka_producer_pool_size: Has no effect: each task has one producer.
        semantic: The guarantee. EXACTLY_ONCE needs the property ``transactional.id``, unique to the job.
    """

    def __init__(
        self,
        topic: str,
        serialization_schema: SerializationSchema,
        producer_config: Mapping[str, str],
        kafka_producer_pool_size: int = 5,
        semantic: Semantic = Semantic.AT_LEAST_ONCE,
    ) -> None:
        self._topic = topic
        self._schema = serialization_schema
        self._properties = dict(producer_config)
        self._semantic = semantic

    def set_log_failures_only(self, log_failures_only: bool) -> None:
        """Accept False, the default: a message that is not delivered fails the job.

        Raises:
            PenstockError: For True, which would lose messages.
        """
        if log_failures_only:
            raise PenstockError(
                "FlinkKafkaProducer cannot log failures and continue, because it would lose messages.",
                fix="Remove set_log_failures_only(True).",
            )

    def set_flush_on_checkpoint(self, flush_on_checkpoint: bool) -> None:
        """Accept the call without effect: every checkpoint waits for the messages before it."""
        if not flush_on_checkpoint:
            note("FlinkKafkaProducer.set_flush_on_checkpoint", "every checkpoint waits for the messages before it")

    def set_write_timestamp_to_kafka(self, write_timestamp_to_kafka: bool) -> None:
        """Accept False, the default: messages have the time of the broker or producer.

        Raises:
            PenstockError: For True.
        """
        if write_timestamp_to_kafka:
            raise PenstockError(
                "FlinkKafkaProducer cannot write event time as the time of messages.",
                fix="Remove set_write_timestamp_to_kafka(True), and write the time into the record.",
            )

    def ignore_failures_after_transaction_timeout(self) -> Self:
        """Accept the call without effect: after a restart, transactions are finished or started again."""
        name = "FlinkKafkaProducer.ignore_failures_after_transaction_timeout"
        note(name, "a transaction that timed out is written again from the write-ahead log")
        return self

    def to_sink(self) -> KafkaSink:
        """Return the sink that writes the same messages."""
        schema = KafkaRecordSerializationSchema.builder().set_topic(self._topic)
        builder = KafkaSink.builder().set_record_serializer(schema.set_value_serialization_schema(self._schema).build())
        for name, value in self._properties.items():
            if name == "transactional.id":
                builder.set_transactional_id_prefix(value)
            else:
                builder.set_property(name, value)
        return builder.set_delivery_guarantee(DeliveryGuarantee[self._semantic.name]).build()
