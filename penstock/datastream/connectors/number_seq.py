"""Where PyFlink programs import the sequence of numbers from."""

from penstock.connectors.generated import NumberSequenceSource

__all__ = ["NumberSequenceSource"]
