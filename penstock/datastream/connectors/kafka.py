"""Where PyFlink programs import Kafka from."""

from penstock.absent import explain_absent
from penstock.connectors.kafka.kafka_source import KafkaSource, KafkaSourceBuilder
from penstock.connectors.kafka.offsets import KafkaOffsetResetStrategy, KafkaOffsetsInitializer, KafkaTopicPartition
from penstock.connectors.kafka.records import KafkaRecord, KafkaRecordDeserializationSchema

__all__ = [
    "KafkaOffsetResetStrategy",
    "KafkaOffsetsInitializer",
    "KafkaRecord",
    "KafkaRecordDeserializationSchema",
    "KafkaSource",
    "KafkaSourceBuilder",
    "KafkaTopicPartition",
]

explain_absent(__name__)
