"""``JobExecutionResult`` under its PyFlink module name."""

from penstock.common.job import JobExecutionResult

__all__ = ["JobExecutionResult"]
