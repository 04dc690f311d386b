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
