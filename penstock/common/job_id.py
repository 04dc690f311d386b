"""``JobID`` under its PyFlink module name."""

from penstock.common.job import JobID

__all__ = ["JobID"]
