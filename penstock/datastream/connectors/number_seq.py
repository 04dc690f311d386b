"""The number sequence source, in PyFlink's module."""

from penstock.absent import explain_absent
from penstock.connectors.generated import NumberSequenceSource

__all__ = ["NumberSequenceSource"]

explain_absent(__name__)
