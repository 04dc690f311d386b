"""Interfaces that all connectors share."""

from penstock.absent import explain_absent
from penstock.connectors.delivery import DeliveryGuarantee
from penstock.connectors.preprocessing import StreamTransformer, SupportsPreprocessing
from penstock.connectors.sink import Sink
from penstock.connectors.source import Source

__all__ = ["DeliveryGuarantee", "Sink", "Source", "StreamTransformer", "SupportsPreprocessing"]

explain_absent(__name__)
