"""Penstock: Flink's stateful stream processing model for Python, on Spark Structured Streaming."""

import penstock.absent  # noqa: F401  from now on, PyFlink names that Penstock lacks raise with an alternative

__version__ = "0.1.0"
