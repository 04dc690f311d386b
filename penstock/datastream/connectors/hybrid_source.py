"""Sources that are read one after the other, in PyFlink's module."""

from penstock.absent import explain_absent
from penstock.connectors.hybrid import HybridSource, HybridSourceBuilder

__all__ = ["HybridSource", "HybridSourceBuilder"]

explain_absent(__name__)
