"""Tags of side outputs, in PyFlink's module."""

from penstock.runtime.output_tag import OutputTag

__all__ = ["OutputTag"]
