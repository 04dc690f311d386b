"""The timer service, in PyFlink's module."""

from penstock.absent import explain_absent
from penstock.runtime.timers import TimerService

__all__ = ["TimerService"]

explain_absent(__name__)
