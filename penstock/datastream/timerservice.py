"""Where PyFlink programs import the timer service from."""

from penstock.absent import explain_absent
from penstock.runtime.timers import TimerService

__all__ = ["TimerService"]

explain_absent(__name__)
