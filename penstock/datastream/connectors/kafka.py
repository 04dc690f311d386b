"""The Kafka source and sink, in PyFlink's module."""

from penstock.absent import explain_absent

# Programs import it from here, because PyFlink's module imports it.
from penstock.connectors.delivery import DeliveryGuarantee as DeliveryGuarantee
from penstock.connectors.kafka.kafka_sink import KafkaSink, KafkaSinkBuilder
from penstock.connectors.kafka.kafka_source import KafkaSource, KafkaSourceBuilder
from penstock.connectors.kafka.legacy import FlinkKafkaConsumer, FlinkKafkaProducer, Semantic
from penstock.connectors.kafka.offsets import KafkaOffsetResetStrategy, KafkaOffsetsInitializer, KafkaTopicPartition
from penstock.connectors.kafka.records import KafkaRecord, KafkaRecordDeserializationSchema
from penstock.connectors.kafka.serializing import (
    KafkaRecordSerializationSchema,
    KafkaRecordSerializationSchemaBuilder,
    KafkaTopicSelector,
)

__all__ = [
    "FlinkKafkaConsumer",
    "FlinkKafkaProducer",
    "KafkaOffsetResetStrategy",
    "KafkaOffsetsInitializer",
    "KafkaRecord",
    "KafkaRecordDeserializationSchema",
    "KafkaRecordSerializationSchema",
    "KafkaRecordSerializationSchemaBuilder",
    "KafkaSink",
    "KafkaSinkBuilder",
    "KafkaSource",
    "KafkaSourceBuilder",
    "KafkaTopicPartition",
    "KafkaTopicSelector",
    "Semantic",
]

explain_absent(__name__)
