"""Sources and sinks as users import them, and the contracts for their own."""

from penstock.absent import explain_absent
from penstock.checkpoint.committing import Commit
from penstock.connectors.dead_letters import DeadLetter
from penstock.connectors.sink import Sink, SinkWriter
from penstock.connectors.sinks import DiscardingSink, PrintSink
from penstock.connectors.source import Positions, Source
from penstock.datastream.connectors.base import DeliveryGuarantee
from penstock.runtime.operators import EpochInfo

__all__ = [
    "Commit",
    "DeadLetter",
    "DeliveryGuarantee",
    "DiscardingSink",
    "EpochInfo",
    "Positions",
    "PrintSink",
    "Sink",
    "SinkWriter",
    "Source",
]

explain_absent(__name__)
