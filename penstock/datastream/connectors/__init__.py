"""Sources and sinks, and the interfaces for writing your own."""

from penstock.absent import explain_absent
from penstock.connectors.dead_letters import DeadLetter
from penstock.connectors.driver_sinks import DiscardingSink, PrintSink
from penstock.connectors.generic_write_ahead import CheckpointCommitter, GenericWriteAheadSink
from penstock.connectors.kafka.legacy import FlinkKafkaConsumer, FlinkKafkaProducer
from penstock.connectors.sink import Sink, SinkWriter
from penstock.connectors.source import Positions, Source
from penstock.connectors.write_ahead import WriteAhead, written_ahead
from penstock.datastream.connectors.base import DeliveryGuarantee

# Programs import these names from here, too, as PyFlink allows.
from penstock.datastream.connectors.dynamic_kafka import DynamicKafkaSource as DynamicKafkaSource
from penstock.datastream.connectors.dynamic_kafka import DynamicKafkaSourceBuilder as DynamicKafkaSourceBuilder
from penstock.datastream.connectors.dynamic_kafka import KafkaMetadataService as KafkaMetadataService
from penstock.datastream.connectors.dynamic_kafka import (
    KafkaRecordDeserializationSchema as KafkaRecordDeserializationSchema,
)
from penstock.datastream.connectors.dynamic_kafka import KafkaStreamSetSubscriber as KafkaStreamSetSubscriber
from penstock.datastream.connectors.dynamic_kafka import KafkaStreamSubscriber as KafkaStreamSubscriber
from penstock.datastream.connectors.dynamic_kafka import (
    SingleClusterTopicMetadataService as SingleClusterTopicMetadataService,
)
from penstock.datastream.connectors.dynamic_kafka import StreamPatternSubscriber as StreamPatternSubscriber
from penstock.datastream.connectors.file_system import BucketAssigner as BucketAssigner
from penstock.datastream.connectors.file_system import BulkFormat as BulkFormat
from penstock.datastream.connectors.file_system import DefaultRollingPolicy as DefaultRollingPolicy
from penstock.datastream.connectors.file_system import FileEnumeratorProvider as FileEnumeratorProvider
from penstock.datastream.connectors.file_system import FileSink as FileSink
from penstock.datastream.connectors.file_system import FileSource as FileSource
from penstock.datastream.connectors.file_system import FileSourceBuilder as FileSourceBuilder
from penstock.datastream.connectors.file_system import FileSplitAssignerProvider as FileSplitAssignerProvider
from penstock.datastream.connectors.file_system import OnCheckpointRollingPolicy as OnCheckpointRollingPolicy
from penstock.datastream.connectors.file_system import OutputFileConfig as OutputFileConfig
from penstock.datastream.connectors.file_system import RollingPolicy as RollingPolicy
from penstock.datastream.connectors.file_system import StreamFormat as StreamFormat
from penstock.datastream.connectors.file_system import StreamingFileSink as StreamingFileSink
from penstock.datastream.connectors.hybrid_source import HybridSource as HybridSource
from penstock.datastream.connectors.hybrid_source import HybridSourceBuilder as HybridSourceBuilder
from penstock.datastream.connectors.kafka import KafkaOffsetResetStrategy as KafkaOffsetResetStrategy
from penstock.datastream.connectors.kafka import KafkaOffsetsInitializer as KafkaOffsetsInitializer
from penstock.datastream.connectors.kafka import KafkaRecordSerializationSchema as KafkaRecordSerializationSchema
from penstock.datastream.connectors.kafka import (
    KafkaRecordSerializationSchemaBuilder as KafkaRecordSerializationSchemaBuilder,
)
from penstock.datastream.connectors.kafka import KafkaSink as KafkaSink
from penstock.datastream.connectors.kafka import KafkaSinkBuilder as KafkaSinkBuilder
from penstock.datastream.connectors.kafka import KafkaSource as KafkaSource
from penstock.datastream.connectors.kafka import KafkaSourceBuilder as KafkaSourceBuilder
from penstock.datastream.connectors.kafka import KafkaTopicPartition as KafkaTopicPartition
from penstock.datastream.connectors.kafka import KafkaTopicSelector as KafkaTopicSelector
from penstock.datastream.connectors.kafka import Semantic as Semantic
from penstock.datastream.connectors.number_seq import NumberSequenceSource as NumberSequenceSource
from penstock.driver.committing import Commit, CommitContext
from penstock.runtime.moment import Timestamped
from penstock.runtime.operators import EpochInfo

__all__ = [
    "CheckpointCommitter",
    "Commit",
    "CommitContext",
    "DeadLetter",
    "DeliveryGuarantee",
    "DiscardingSink",
    "EpochInfo",
    "FlinkKafkaConsumer",
    "FlinkKafkaProducer",
    "GenericWriteAheadSink",
    "Positions",
    "PrintSink",
    "Sink",
    "SinkWriter",
    "Source",
    "Timestamped",
    "WriteAhead",
    "written_ahead",
]

explain_absent(__name__)
