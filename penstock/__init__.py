"""Penstock: Flink's model of state for Python programs on Spark Structured Streaming."""

import penstock.absent  # noqa: F401  from here on, absent names of PyFlink raise with their alternative

__version__ = "0.1.0"
