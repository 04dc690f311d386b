"""Metrics of user functions and of exchanges, as a task measures them: what happened in one epoch.

They never travel in rows: a gauge or a clock in a row would make a retried task's rows differ. A task hands them to
`TaskEpoch.metrics` with its report, and the driver counts them when the epoch is published.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any, TypeVar

import msgspec

from penstock.common.names import check_name
from penstock.errors import PenstockError
from penstock.runtime.failures import Blamed, Party

Number = int | float

RECORDS_IN, RECORDS_OUT, BUFFERS_OUT, BYTES_OUT = "numRecordsIn", "numRecordsOut", "numBuffersOut", "numBytesOut"
BUFFER_FILL = "bufferFill"
CREDITS, BACKLOG, BACK_PRESSURE, CAPACITY = "credits", "backlog", "backPressure", "capacity"
"""Of flow control, which the driver measures."""
EDGE_GROUP = "to"
"""Metrics of the edge from an operator to another are `operator.to.other.…`."""
_OURS = {RECORDS_IN, RECORDS_OUT, BUFFERS_OUT, BYTES_OUT, BUFFER_FILL, CREDITS, BACKLOG, BACK_PRESSURE, CAPACITY}


class BadMetric(PenstockError):
    """A metric cannot be registered like this."""


class Metric:
    """What a function updates. It belongs to one instance of the function and is no state: see docs/run/monitoring.md."""

    _kind = ""

    def _begin(self) -> None:
        """An epoch begins: what was measured so far is not of it."""

    def _measured(self) -> Any:
        """The epoch so far, in plain numbers."""
        raise NotImplementedError


class Counter(Metric):
    _kind = "counter"

    def __init__(self) -> None:
        self._count = self._before = 0

    def inc(self, n: int = 1) -> None:
        self._count += n

    def dec(self, n: int = 1) -> None:
        self._count -= n

    def get_count(self) -> int:
        """What this instance of the function has counted since it was opened, other subtasks and workers not."""
        return self._count

    def _begin(self) -> None:
        self._before = self._count

    def _measured(self) -> int:
        return _whole(self._count - self._before)


class Meter(Metric):
    """Counts events; the driver gives their rate over the time span."""

    _kind = "meter"

    def __init__(self, time_span_in_seconds: int) -> None:
        self.time_span_in_seconds = time_span_in_seconds
        self._count = self._before = 0

    def mark_event(self, value: int = 1) -> None:
        self._count += value

    def get_count(self) -> int:
        """As of a counter."""
        return self._count

    def _begin(self) -> None:
        self._before = self._count

    def _measured(self) -> tuple[int, int]:
        return _whole(self._count - self._before), self.time_span_in_seconds


class Distribution(Metric):
    """Count, sum, minimum and maximum of the values given."""

    _kind = "distribution"

    def __init__(self) -> None:
        self._count = 0
        self._sum: Number = 0
        self._min: Number = math.inf
        self._max: Number = -math.inf

    def update(self, value: Number) -> None:
        self._sum += value
        self._count += 1
        if value < self._min:
            self._min = value
        if value > self._max:
            self._max = value

    def _begin(self) -> None:
        Distribution.__init__(self)

    def _measured(self) -> tuple[int, Number, Number, Number]:
        return self._count, _plain(self._sum), _plain(self._min), _plain(self._max)


class _Gauge(Metric):
    """A function that is asked for its value at the end of every epoch."""

    _kind = "gauge"

    def __init__(self) -> None:
        self.read: Callable[[], Number] = lambda: 0

    def _measured(self) -> Number:
        return _plain(self.read())


_Any = TypeVar("_Any", bound=Metric)


class MetricGroup:
    """Names metrics and further groups. Asked twice for one name, it gives the same metric."""

    def __init__(self, registry: MetricRegistry, path: tuple[str, ...] = ()) -> None:
        self._registry = registry
        self._path = path

    def add_group(self, name: str, extra: str | None = None) -> MetricGroup:
        """A group inside this one; with `extra`, a group of that name inside a group `name`."""
        return MetricGroup(self._registry, (*self._path, name) if extra is None else (*self._path, name, extra))

    def counter(self, name: str) -> Counter:
        return self._registry.register(self._path, name, Counter())

    def gauge(self, name: str, obj: Callable[[], Number]) -> None:
        """`obj` is called without arguments at the end of every epoch, with no current key; if it raises, the job
        fails."""
        if not callable(obj):
            raise BadMetric(f"gauge('{name}', …) needs a function that gives the value, not {obj!r}.")
        self._registry.register(self._path, name, _Gauge()).read = obj

    def meter(self, name: str, time_span_in_seconds: int = 60) -> Meter:
        if time_span_in_seconds <= 0:
            raise BadMetric(f"meter('{name}', …): the time span must be positive, not {time_span_in_seconds!r}.")
        return self._registry.register(self._path, name, Meter(time_span_in_seconds))

    def distribution(self, name: str) -> Distribution:
        return self._registry.register(self._path, name, Distribution())


class OperatorMetrics(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """What one operator measured in one task and epoch, by the names within the operator."""

    uid: str
    counters: dict[str, int]
    gauges: dict[str, Number]
    meters: dict[str, tuple[int, int]]
    """Events, and the time span in seconds."""
    distributions: dict[str, tuple[int, Number, Number, Number]]
    """Count, sum, minimum, maximum."""


class EdgeMetrics(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    edge: int
    records: int
    buffers: int
    bytes: int


class TaskMetrics(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """What one task measured in one epoch. Goes with its report, beside the rows."""

    chain: int
    subtask: int
    epoch: int
    records_in: int
    sent: list[EdgeMetrics]
    operators: list[OperatorMetrics]
    acknowledged_at: int = 0
    """When the task had written its state, in ms by the clock of its host."""
    busy_ms: float = 0.0
    """From the first record to the report: what records cost, without what any task costs."""


encode_metrics = msgspec.msgpack.Encoder().encode
decode_metrics = msgspec.msgpack.Decoder(TaskMetrics).decode


class MetricRegistry:
    """The metrics of one operator in one task. Order of calls, per epoch: `begin`, any updates, `measure`."""

    def __init__(self, name: str, uid: str) -> None:
        self._operator = Party(name, uid)
        self._metrics: dict[str, Metric] = {}

    def register(self, path: tuple[str, ...], name: str, metric: _Any) -> _Any:
        """The metric of this name: `metric`, or the one of the same kind that has the name already."""
        parts = (*path, name)
        for part in parts:
            check_name(part, f"{self._who()} names a metric or group of metrics: its name", BadMetric)
        if (name in _OURS and not path) or parts[0] == EDGE_GROUP:
            raise BadMetric(
                f"{self._who()} registers a metric '{'.'.join(parts)}', but Penstock measures that itself. "
                f"Choose another name."
            )
        known = self._metrics.setdefault(".".join(parts), metric)
        if type(known) is not type(metric):
            raise BadMetric(
                f"{self._who()} registers '{'.'.join(parts)}' as a {metric._kind}, but it is a "
                f"{known._kind} already. Give one of them another name."
            )
        return known

    def begin(self) -> None:
        for metric in self._metrics.values():
            metric._begin()

    def measure(self) -> OperatorMetrics | None:
        """The epoch so far; None where nothing is registered. Blames the operator for what a gauge raises."""
        if not self._metrics:
            return None
        measured: dict[type[Metric], dict[str, Any]] = {Counter: {}, _Gauge: {}, Meter: {}, Distribution: {}}
        for name, metric in self._metrics.items():
            try:
                measured[type(metric)][name] = metric._measured()
            except Exception as error:  # a gauge is user code, and may raise anything
                error.add_note(f"while {metric._kind} '{name}' was read at the end of the epoch")
                raise Blamed(self._operator) from error
        return OperatorMetrics(
            uid=self._operator.uid,
            counters=measured[Counter],
            gauges=measured[_Gauge],
            meters=measured[Meter],
            distributions=measured[Distribution],
        )

    def _who(self) -> str:
        return f"Operator '{self._operator.name}' (uid '{self._operator.uid}')"


def _plain(value: Any) -> Number:
    """A number as it travels: numpy's become Python's."""
    if isinstance(value, Integral):
        return _whole(value)
    if not isinstance(value, Real):
        raise TypeError(f"{value!r} is not a number")
    return float(value)


def _whole(value: Any) -> int:
    if not isinstance(value, Integral) or not -(2**63) <= int(value) < 2**63:
        raise TypeError(f"{value!r} is not a whole number of at most 64 bits")
    return int(value)


__all__ = ["Counter", "Distribution", "Meter", "Metric", "MetricGroup"]
