"""The execution environment, in PyFlink's module."""

from penstock.datastream.environment import StreamExecutionEnvironment

__all__ = ["StreamExecutionEnvironment"]
