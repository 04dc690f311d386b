"""Where PyFlink programs import the kinds of time from."""

from penstock.absent import explain_absent
from penstock.runtime.timers import TimeDomain

__all__ = ["TimeDomain"]

explain_absent(__name__)
