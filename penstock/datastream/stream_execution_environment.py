"""The environment, where PyFlink has it."""

from penstock.datastream.environment import StreamExecutionEnvironment

__all__ = ["StreamExecutionEnvironment"]
