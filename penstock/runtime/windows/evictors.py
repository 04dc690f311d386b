"""Evictors: which records a window forgets, before or after its function has seen them."""

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
    """A record of a window, with its event time where it has one."""

    value: Any
    timestamp: int | None

    def has_timestamp(self) -> bool:
        return self.timestamp is not None


class Evictor(ABC, Generic[T, W]):
    """Takes out of `elements`, a list in the order of arrival, what the window is to forget."""

    class EvictorContext(ABC):
        @abstractmethod
        def get_current_processing_time(self) -> int: ...

        @abstractmethod
        def get_metric_group(self) -> MetricGroup: ...

        @abstractmethod
        def get_current_watermark(self) -> int: ...

    @abstractmethod
    def evict_before(
        self, elements: list[TimestampedValue], size: int, window: W, evictor_context: Evictor.EvictorContext
    ) -> None:
        """Change `elements`, which are `size`, before the window's function is called."""

    @abstractmethod
    def evict_after(
        self, elements: list[TimestampedValue], size: int, window: W, evictor_context: Evictor.EvictorContext
    ) -> None:
        """Change `elements`, which are `size`, after the window's function was called."""


class _Once(Evictor[Any, Any]):
    """Evicts either before or after the function, always in the same way."""

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
    """Keeps the last `max_count` records."""

    def __init__(self, max_count: int, do_evict_after: bool = False) -> None:
        super().__init__(do_evict_after)
        if type(max_count) is not int or max_count < 0:
            raise PenstockError(f"CountEvictor cannot keep {max_count!r} records.", fix="Give a whole number.")
        self.max_count = max_count

    @staticmethod
    def of(max_count: int, do_evict_after: bool = False) -> CountEvictor:
        return CountEvictor(max_count, do_evict_after)

    def _evict(self, elements: list[TimestampedValue]) -> None:
        del elements[: max(0, len(elements) - self.max_count)]


class TimeEvictor(_Once):
    """Keeps the records that are less than `window_size` older than the newest. Without timestamps it keeps all."""

    def __init__(self, window_size: int, do_evict_after: bool = False) -> None:
        super().__init__(do_evict_after)
        self.window_size = window_size

    @staticmethod
    def of(window_size: Time | Duration | int, do_evict_after: bool = False) -> TimeEvictor:
        return TimeEvictor(to_millis(window_size), do_evict_after)

    def _evict(self, elements: list[TimestampedValue]) -> None:
        times = [element.timestamp for element in elements if element.timestamp is not None]
        if elements[0].has_timestamp():
            cutoff = max(times) - self.window_size
            elements[:] = [each for each in elements if each.timestamp is None or each.timestamp > cutoff]


class DeltaEvictor(_Once):
    """Keeps the records that are less than `threshold` from the last one."""

    def __init__(
        self, threshold: float, delta_function: Callable[[Any, Any], float], do_evict_after: bool = False
    ) -> None:
        super().__init__(do_evict_after)
        self.threshold = threshold
        self.delta_function = delta_function

    @staticmethod
    def of(threshold: float, delta_function: Callable[[Any, Any], float], do_evict_after: bool = False) -> DeltaEvictor:
        """`delta_function(record, last record)` is the distance."""
        return DeltaEvictor(threshold, delta_function, do_evict_after)

    def _evict(self, elements: list[TimestampedValue]) -> None:
        last = elements[-1].value
        elements[:] = [each for each in elements if self.delta_function(each.value, last) < self.threshold]
