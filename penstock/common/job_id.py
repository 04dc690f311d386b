"""The identity of a job, where PyFlink has it."""

from penstock.common.job import JobID

__all__ = ["JobID"]
