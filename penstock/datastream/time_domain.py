"""Time domains, in PyFlink's module."""

from penstock.absent import explain_absent
from penstock.runtime.timers import TimeDomain

__all__ = ["TimeDomain"]

explain_absent(__name__)
