"""The states of a job, where PyFlink has them."""

from penstock.common.job import JobStatus

__all__ = ["JobStatus"]
