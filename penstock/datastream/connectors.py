"""Sinks as users import them."""

from penstock.absent import explain_absent
from penstock.connectors.sinks import DiscardingSink, PrintSink, Sink, SinkWriter

__all__ = ["DiscardingSink", "PrintSink", "Sink", "SinkWriter"]

explain_absent(__name__)
