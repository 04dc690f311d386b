"""``Row`` and ``RowKind`` under their PyFlink module name."""

from penstock.common.row import Row, RowKind

__all__ = ["Row", "RowKind"]
