"""`Row` and `RowKind` where PyFlink programs look for them."""

from penstock.common.row import Row, RowKind

__all__ = ["Row", "RowKind"]
