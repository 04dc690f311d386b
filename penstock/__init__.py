"""Penstock: Flink's model of state for Python programs on Spark Structured Streaming."""

__version__ = "0.1.0"
