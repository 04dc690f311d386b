"""Evictors, which remove records from a window before or after its function is called."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

from penstock.common.time import Duration, Time, to_millis
from penstock.errors import PenstockError
from penstock.runtime.metrics import MetricGroup

T = TypeVar("T")
W = TypeVar("W")


class TimestampedValue(NamedTuple):
    """A record of a window, with its event time if it has one."""

    value: Any
    timestamp: int | None

    def has_timestamp(self) -> bool:
        """Return whether the record has an event time."""
        return self.timestamp is not None


class Evictor(ABC, Generic[T, W]):
    """Removes records from a window by removing them from ``elements``, a list in order of arrival."""

    class EvictorContext(ABC):
        """Passed to the methods of an evictor."""

        @abstractmethod
        def get_current_processing_time(self) -> int:
            """Return the epoch's processing time, in milliseconds."""

        @abstractmethod
        def get_metric_group(self) -> MetricGroup:
            """Return the group in which to register metrics."""

        @abstractmethod
        def get_current_watermark(self) -> int:
            """Return the current event-time watermark."""

    @abstractmethod
    def evict_before(
        self, elements: list[TimestampedValue], size: int, window: W, evictor_context: Evictor.EvictorContext
    ) -> None:
        """Remove records from the ``size`` records in ``elements``, before the window's function is called."""

    @abstractmethod
    def evict_after(
        self, elements: list[TimestampedValue], size: int, window: W, evictor_context: Evictor.EvictorContext
    ) -> None:
        """Remove records from the ``size`` records in ``elements``, after the window's function was called."""


class _Once(Evictor[Any, Any]):
    """Evicts either before or after the function, by the same rule."""

    def __init__(self, do_evict_after: bool) -> None:
        self.do_evict_after = do_evict_after

    def evict_before(
        self, elements: list[TimestampedValue], size: int, window: Any, evictor_context: Evictor.EvictorContext
    ) -> None:
        if not self.do_evict_after and elements:
            self._evict(elements)

    def evict_after(
        self, elements: list[TimestampedValue], size: int, window: Any, evictor_context: Evictor.EvictorContext
    ) -> None:
        if self.do_evict_after and elements:
            self._evict(elements)

    @abstractmethod
    def _evict(self, elements: list[TimestampedValue]) -> None: ...


class CountEvictor(_Once):
    """Keeps the last ``max_count`` records."""

    def __init__(self, max_count: int, do_evict_after: bool = False) -> None:
        super().__init__(do_evict_after)
        if type(max_count) is not int or max_count < 0:
            raise PenstockError(
                f"CountEvictor cannot keep {max_count!r} records.", fix="Use an int that is not negative."
            )
        self.max_count = max_count

    @staticmethod
    def of(max_count: int, do_evict_after: bool = False) -> CountEvictor:
        """Return an evictor that keeps the last ``max_count`` records."""
        return CountEvictor(max_count, do_evict_after)

    def _evict(self, elements: list[TimestampedValue]) -> None:
        del elements[: max(0, len(elements) - self.max_count)]


class TimeEvictor(_Once):
    """Keeps records that are less than ``window_size`` older than the newest. Keeps all records without timestamps."""

    def __init__(self, window_size: int, do_evict_after: bool = False) -> None:
        super().__init__(do_evict_after)
        self.window_size = window_size

    @staticmethod
    def of(window_size: Time | Duration | int, do_evict_after: bool = False) -> TimeEvictor:
        """Return an evictor that keeps records less than ``window_size`` older than the newest."""
        return TimeEvictor(to_millis(window_size), do_evict_after)

    def _evict(self, elements: list[TimestampedValue]) -> None:
        times = [element.timestamp for element in elements if element.timestamp is not None]
        if elements[0].has_timestamp():
            cutoff = max(times) - self.window_size
            elements[:] = [each for each in elements if each.timestamp is None or each.timestamp > cutoff]


class DeltaEvictor(_Once):
    """Keeps records whose distance from the last one is less than ``threshold``."""

    def __init__(
        self, threshold: float, delta_function: Callable[[Any, Any], float], do_evict_after: bool = False
    ) -> None:
        super().__init__(do_evict_after)
        self.threshold = threshold
        self.delta_function = delta_function

    @staticmethod
    def of(threshold: float, delta_function: Callable[[Any, Any], float], do_evict_after: bool = False) -> DeltaEvictor:
        """Return an evictor that keeps records with ``delta_function(record, last_record)`` below ``threshold``."""
        return DeltaEvictor(threshold, delta_function, do_evict_after)

    def _evict(self, elements: list[TimestampedValue]) -> None:
        last = elements[-1].value
        elements[:] = [each for each in elements if self.delta_function(each.value, last) < self.threshold]
