"""How a finished job went, where PyFlink has it."""

from penstock.common.job import JobExecutionResult

__all__ = ["JobExecutionResult"]
