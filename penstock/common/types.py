"""Rows and their kinds, where PyFlink has them."""

from penstock.common.row import Row, RowKind

__all__ = ["Row", "RowKind"]
