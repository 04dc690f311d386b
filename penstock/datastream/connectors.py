"""Sinks as users import them."""

from penstock.connectors.sinks import DiscardingSink, PrintSink, Sink, SinkWriter

__all__ = ["DiscardingSink", "PrintSink", "Sink", "SinkWriter"]
