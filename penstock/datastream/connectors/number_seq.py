"""Where PyFlink programs import the sequence of numbers from."""

from penstock.absent import explain_absent
from penstock.connectors.generated import NumberSequenceSource

__all__ = ["NumberSequenceSource"]

explain_absent(__name__)
