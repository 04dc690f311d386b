"""``JobStatus`` under its PyFlink module name."""

from penstock.common.job import JobStatus

__all__ = ["JobStatus"]
