"""Metrics of user functions and of exchanges, as a task measures them in one epoch.

Metrics never travel in rows: a gauge or a clock value in a row would make a retried task's rows differ. A task passes
them to `TaskEpoch.metrics` with its report, and the driver counts them when it publishes the epoch.
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
from penstock.runtime.key_sample import HeavyKey

Number = int | float

RECORDS_IN, RECORDS_OUT, BUFFERS_OUT, BYTES_OUT = "numRecordsIn", "numRecordsOut", "numBuffersOut", "numBytesOut"
BUFFER_FILL = "bufferFill"
DEAD_LETTERS = "numDeadLetters"
LATE_RECORDS = "numLateRecordsDropped"
CREDITS, BACKLOG, BACK_PRESSURE, CAPACITY = "credits", "backlog", "backPressure", "capacity"
"""Flow-control metrics, which the driver measures."""
EDGE_GROUP = "to"
"""Metrics of the edge from one operator to another are named `operator.to.other.…`."""
_OURS = {
    *(RECORDS_IN, RECORDS_OUT, BUFFERS_OUT, BYTES_OUT, BUFFER_FILL, DEAD_LETTERS),
    *(CREDITS, BACKLOG, BACK_PRESSURE, CAPACITY),
}


def is_own_metric(name: str) -> bool:
    """Return whether this name within an operator is reserved for a metric that Penstock measures."""
    return name in _OURS or name.split(".", 1)[0] == EDGE_GROUP


class BadMetric(PenstockError):
    """A metric's name or parameters are invalid.

    Operator action: choose another name, or the parameters that the message describes.
    """


class Metric:
    """Base class of metrics: a metric belongs to one instance of a function. See docs/run/monitoring.md."""

    _kind = ""

    def _begin(self) -> None:
        """Begin an epoch: measurements so far do not count towards it."""

    def _measured(self) -> Any:
        """Return the epoch's measurements so far, as plain numbers."""
        raise NotImplementedError


class Counter(Metric):
    """A count that a function increments and decrements. The driver sums it over all subtasks."""

    _kind = "counter"

    def __init__(self) -> None:
        self._count = self._before = 0

    def inc(self, n: int = 1) -> None:
        """Add ``n`` to the count."""
        self._count += n

    def dec(self, n: int = 1) -> None:
        """Subtract ``n`` from the count."""
        self._count -= n

    def get_count(self) -> int:
        """Return the count of this function instance since it was opened, without other subtasks and workers."""
        return self._count

    def _begin(self) -> None:
        self._before = self._count

    def _measured(self) -> int:
        return _whole(self._count - self._before)


class Meter(Metric):
    """Counts events; the driver computes their rate over the time span."""

    _kind = "meter"

    def __init__(self, time_span_in_seconds: int) -> None:
        self.time_span_in_seconds = time_span_in_seconds
        self._count = self._before = 0

    def mark_event(self, value: int = 1) -> None:
        """Count ``value`` events."""
        self._count += value

    def get_count(self) -> int:
        """Return the number of events that this function instance has counted since it was opened."""
        return self._count

    def _begin(self) -> None:
        self._before = self._count

    def _measured(self) -> tuple[int, int]:
        return _whole(self._count - self._before), self.time_span_in_seconds


class Distribution(Metric):
    """The count, sum, minimum and maximum of the recorded values."""

    _kind = "distribution"

    def __init__(self) -> None:
        self._count = 0
        self._sum: Number = 0
        self._min: Number = math.inf
        self._max: Number = -math.inf

    def update(self, value: Number) -> None:
        """Record a value."""
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
    """A function whose value is read at the end of every epoch."""

    _kind = "gauge"

    def __init__(self) -> None:
        self.read: Callable[[], Number] = lambda: 0

    def _measured(self) -> Number:
        return _plain(self.read())


_Any = TypeVar("_Any", bound=Metric)


class MetricGroup:
    """Registers metrics and nested groups. Registering a name twice returns the same metric."""

    def __init__(self, registry: MetricRegistry, path: tuple[str, ...] = ()) -> None:
        self._registry = registry
        self._path = path

    def add_group(self, name: str, extra: str | None = None) -> MetricGroup:
        """Return a group nested in this one; with ``extra``, a group of that name nested in the group ``name``."""
        return MetricGroup(self._registry, (*self._path, name) if extra is None else (*self._path, name, extra))

    def counter(self, name: str) -> Counter:
        """Register a counter, or return the counter already registered under this name."""
        return self._registry.register(self._path, name, Counter())

    def gauge(self, name: str, obj: Callable[[], Number]) -> None:
        """Register a gauge.

        Args:
            name: Name of the metric.
            obj: Function without arguments that returns the value. It is called at the end of every epoch, without a
                current key. If it raises an exception, the job fails.
        """
        if not callable(obj):
            raise BadMetric(f"gauge('{name}', …) needs a function that returns the value, not {obj!r}.")
        self._registry.register(self._path, name, _Gauge()).read = obj

    def meter(self, name: str, time_span_in_seconds: int = 60) -> Meter:
        """Register a meter, or return the meter already registered under this name."""
        if time_span_in_seconds <= 0:
            raise BadMetric(f"meter('{name}', …): the time span must be positive, not {time_span_in_seconds!r}.")
        return self._registry.register(self._path, name, Meter(time_span_in_seconds))

    def distribution(self, name: str) -> Distribution:
        """Register a distribution, or return the distribution already registered under this name."""
        return self._registry.register(self._path, name, Distribution())


class OperatorMetrics(msgspec.Struct, array_like=True, frozen=True, kw_only=True, gc=False):
    """The metrics of one operator in one task and epoch, by their names within the operator."""

    uid: str
    counters: dict[str, int]
    gauges: dict[str, Number]
    meters: dict[str, tuple[int, int]]
    """Number of events, and the time span in seconds."""
    distributions: dict[str, tuple[int, Number, Number, Number]]
    """Count, sum, minimum, maximum."""


class EdgeMetrics(msgspec.Struct, array_like=True, frozen=True, kw_only=True, gc=False):
    edge: int
    records: int
    buffers: int
    bytes: int


class WorkerPlace(msgspec.Struct, array_like=True, frozen=True, kw_only=True, gc=False):
    """The process that runs a task."""

    host: str = ""
    executor: str = ""
    """The engine's name of the executor; empty if the task runs in the driver's process."""
    memory: int = 0
    """Physical memory of the host, in bytes."""
    process: int = 0
    """The number of the process on its host."""
    resident: int = 0
    """Memory of the process, in bytes."""
    disk_total: int = 0
    """Size of the file system that holds the replicas, in bytes."""
    disk_free: int = 0
    directory: str = ""
    """The working directory of the process; empty in the driver. Spark's standalone workers keep the logs there."""


NOWHERE = WorkerPlace()
"""The place of a task whose engine does not tell."""


class TaskMetrics(msgspec.Struct, array_like=True, frozen=True, kw_only=True, gc=False):
    """The metrics of one task in one epoch. Sent with its report, not in the exchanged rows."""

    chain: int
    subtask: int
    epoch: int
    records_in: int
    sent: list[EdgeMetrics]
    operators: list[OperatorMetrics]
    acknowledged_at: int = 0
    """When the task had written its state, in milliseconds by its host's clock."""
    busy_ms: float = 0.0
    """From the first record to the report: the cost of the records, without the fixed cost of a task."""
    bytes_in: int = 0
    """Bytes of the buffers that it received, as their senders count them."""
    started_at: int = 0
    """When the task began, in milliseconds by its host's clock."""
    snapshot_ms: float = 0.0
    """Time to write its state at the end of the epoch, with the upload."""
    place: WorkerPlace = NOWHERE
    dead_letters: int = 0
    """Records that a source could not read; they count as records too."""
    heavy_keys: list[HeavyKey] = []
    """The keys with the largest share of the records, in a task with keyed state."""
    align_ms: int = 0
    """Time to receive the buffers of all channels, up to their barriers."""
    upload_ms: int = 0
    """The part of `snapshot_ms` that the checkpoint storage took."""


encode_metrics = msgspec.msgpack.Encoder().encode
decode_metrics = msgspec.msgpack.Decoder(TaskMetrics).decode


class MetricRegistry:
    """The metrics of one operator in one task. Order of calls, per epoch: `begin`, any updates, `measure`."""

    def __init__(self, name: str, uid: str) -> None:
        self._operator = Party(name, uid)
        self._metrics: dict[str, Metric] = {}

    def register(self, path: tuple[str, ...], name: str, metric: _Any) -> _Any:
        """Return the metric of this name: `metric`, or the registered one of the same kind."""
        parts = (*path, name)
        for part in parts:
            check_name(part, f"{self._who()}: the name of a metric or metric group", BadMetric)
        if (name in _OURS and not path) or parts[0] == EDGE_GROUP:
            raise BadMetric(
                f"{self._who()} registers a metric '{'.'.join(parts)}', but that name is reserved for one of "
                f"Penstock's own metrics. Choose another name."
            )
        known = self._metrics.setdefault(".".join(parts), metric)
        if type(known) is not type(metric):
            raise BadMetric(
                f"{self._who()} registers '{'.'.join(parts)}' as a {metric._kind}, but it is already registered as a "
                f"{known._kind}. Rename one of them."
            )
        return known

    def begin(self) -> None:
        for metric in self._metrics.values():
            metric._begin()

    def measure(self) -> OperatorMetrics | None:
        """Return the epoch's measurements, or None if nothing is registered. Errors of a gauge blame the operator."""
        if not self._metrics:
            return None
        measured: dict[type[Metric], dict[str, Any]] = {Counter: {}, _Gauge: {}, Meter: {}, Distribution: {}}
        for name, metric in self._metrics.items():
            try:
                measured[type(metric)][name] = metric._measured()
            except Exception as error:  # a gauge is user code and can raise anything
                error.add_note(f"while reading {metric._kind} '{name}' at the end of the epoch")
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
    """Return a number as a Python int or float, converting numpy's types."""
    if isinstance(value, Integral):
        return _whole(value)
    if not isinstance(value, Real):
        raise TypeError(f"{value!r} is not a number")
    return float(value)


def _whole(value: Any) -> int:
    if not isinstance(value, Integral) or not -(2**63) <= int(value) < 2**63:
        raise TypeError(f"{value!r} is not an int of at most 64 bits")
    return int(value)


__all__ = ["Counter", "Distribution", "Meter", "Metric", "MetricGroup"]
