"""A job's metrics in the driver: totals of the task metrics of completed epochs since the driver started."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple

from penstock.driver.epoch_metrics import BySubtask, DistributionValue, EpochMetrics, Key, MetricKeys, combined
from penstock.driver.flow_control import FlowControl
from penstock.driver.slots import Slots
from penstock.errors import PenstockError
from penstock.graph.physical import PhysicalGraph
from penstock.runtime.metrics import BUFFER_FILL, BUFFERS_OUT, BYTES_OUT, EDGE_GROUP, Number, is_own_metric

_STEPS = 60
"""Steps that a meter's time span is divided into. This bounds both its memory and its precision."""


@dataclass(frozen=True, slots=True)
class MeterValue:
    """The value of a meter."""

    count: int
    """Events since the driver started."""
    rate: float
    """Events per second over the meter's time span up to now."""


Value = int | float | MeterValue | DistributionValue | dict[int, Number]
"""The value of a counter, a buffer fill or flow-control gauge, a meter or a distribution. For a user's gauge, its value
in each subtask."""


class JobMetrics(Mapping[str, Value]):
    """A snapshot of a job's metrics over all subtasks, by ``<operator uid>.<group>.<name>``."""

    def __init__(
        self,
        epoch: int,
        names: dict[str, str],
        values: dict[Key, Value],
        subtasks: BySubtask,
        last_epoch: BySubtask,
        restarts: int,
        slots: tuple[int, int],
        counters: frozenset[str],
    ) -> None:
        self.restarts = restarts
        """How often this driver has restarted the job after a failure."""
        self.slots_needed, self.slots_available = slots
        """Slots that the job needs, and slots that Spark had before the last epoch (or has now, if the job waits)."""
        self.epoch = epoch
        """The last completed epoch; 0 before this driver's first one."""
        self.last_epoch: dict[str, Any] = {_full(key): _joined(cells) for key, cells in last_epoch.items()}
        """Increments of counters, meters (events) and distributions in the last epoch alone."""
        self._names = names
        self._values = {_full(key): value for key, value in values.items()}
        self._subtasks = {_full(key): cells for key, cells in subtasks.items()}
        self._by_key = dict(values)
        """Values by uid and name: a uid can contain dots, so one full name can denote two metrics."""
        self._counters = counters

    def __getitem__(self, name: str) -> Value:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def subtasks(self, name: str) -> dict[int, Any]:
        """Return a metric's value in each subtask, or in each Spark partition for a source's chain.

        Args:
            name: Full name of the metric.

        Raises:
            KeyError: The job has no such metric.
        """
        return dict(self._subtasks[name])

    def of(self, operator: str) -> dict[str, Value]:
        """Return the metrics of one operator, by their names within it.

        Args:
            operator: The uid of the operator, or its name if no operator has that uid.

        Raises:
            PenstockError: No operator matches, or several operators have that name.
        """
        uids = {operator} if operator in self._names else {uid for uid, name in self._names.items() if name == operator}
        if len(uids) != 1:
            known = ", ".join(f"'{name}' (uid '{uid}')" for uid, name in self._names.items())
            raise PenstockError(f"{len(uids)} operators are named '{operator}'. Pass one of the uids of {known}.")
        return {name: value for (uid, name), value in self._by_key.items() if uid in uids}

    def counters(self) -> dict[str, int]:
        """Return the counters only, by full name."""
        return {name: value for name, value in self._values.items() if name in self._counters and type(value) is int}

    def __repr__(self) -> str:
        return f"<metrics after epoch {self.epoch}: {self._values!r}>"


class MetricTotals:
    """The driver calls `add` after each completed epoch. `read` can be called at any time, from any thread."""

    def __init__(
        self,
        graph: PhysicalGraph,
        clock: Callable[[], float],
        flow: FlowControl | None = None,
        slots: Slots | None = None,
    ) -> None:
        """`flow` is None without flow control, `slots` if the engine does not count its slots."""
        self._graph = graph
        self._clock = clock
        self._flow = flow
        self._slots = slots
        self._lock = threading.Lock()
        self._epoch = 0
        self._restarts = 0
        self._counters: BySubtask = {}
        self._meters: BySubtask = {}
        self._distributions: BySubtask = {}
        self._last: tuple[BySubtask, ...] = ()
        self._windows: dict[Key, dict[int, _Window]] = {}
        """By time span: subtasks can register a meter with different ones."""
        self._keys = MetricKeys(graph)
        self._gauges: BySubtask = {}

    def epoch(self, number: int) -> EpochMetrics:
        """Return the metrics of an attempt at an epoch, before its first task."""
        return EpochMetrics(number, self._keys)

    def add(self, metrics: EpochMetrics, reported: Mapping[int, Container[int]]) -> None:
        """Add a completed epoch. A task not in `reported`, by chain, does not count."""
        metrics.keep(reported)
        now = self._clock()
        with self._lock:
            self._epoch = metrics.epoch
            self._gauges = metrics.gauges
            self._last = metrics.counters, metrics.meters, metrics.distributions
            for sums, added in ((self._counters, metrics.counters), (self._meters, metrics.meters)):
                for key, counts in added.items():
                    _add_counts(sums.setdefault(key, {}), counts)
            for key, values in metrics.distributions.items():
                cells = self._distributions.setdefault(key, {})
                for subtask, value in values.items():
                    cells[subtask] = combined(cells[subtask], value) if subtask in cells else value
            for key, counts in metrics.meters.items():
                windows, spans = self._windows.setdefault(key, {}), metrics.spans[key]
                found = {*spans.values()}
                for span in found:
                    events = counts
                    if len(found) > 1:
                        events = {subtask: count for subtask, count in counts.items() if spans[subtask] == span}
                    windows.setdefault(span, _Window(span)).add(now, events)

    def restarted(self, restarts: int) -> None:
        """Set how often the job has restarted so far."""
        self._restarts = restarts

    def read(self) -> JobMetrics:
        now = self._clock()
        with self._lock:
            meters = {
                key: {subtask: MeterValue(count, self._rate(key, subtask, now)) for subtask, count in counts.items()}
                for key, counts in self._meters.items()
            }
            subtasks = {**_copied(self._counters), **meters, **_copied(self._distributions)}
            values: dict[Key, Value] = {key: _joined(cells) for key, cells in subtasks.items()}
            for (uid, name), cells in self._counters.items():
                if name == BYTES_OUT or name.startswith(f"{EDGE_GROUP}."):
                    self._add_fill(uid, name, cells, values, subtasks)
            subtasks |= _copied(self._gauges)
            values |= _copied(self._gauges)
            if self._flow is not None:
                values |= self._flow.gauges()
            last = {key: dict(cells) for sums in self._last for key, cells in sums.items()}
            slots = (0, 0) if self._slots is None else (self._slots.needed, self._slots.available)
            counters = frozenset(map(_full, self._counters))
            return JobMetrics(self._epoch, self._names(), values, subtasks, last, self._restarts, slots, counters)

    def by_operator(self) -> dict[str, dict[str, dict[int, Number]]]:
        """Return all metrics of tasks as plain numbers, by operator uid, name and subtask."""
        now = self._clock()
        found: dict[str, dict[str, dict[int, Number]]] = {}
        with self._lock:
            for cells in (self._counters, self._gauges):
                for (uid, name), values in cells.items():
                    found.setdefault(uid, {})[name] = dict(values)
            for (uid, name), counts in self._meters.items():
                operator = found.setdefault(uid, {})
                operator[f"{name}.count"] = dict(counts)
                operator[f"{name}.rate"] = {task: self._rate((uid, name), task, now) for task in counts}
            for (uid, name), values in self._distributions.items():
                operator = found.setdefault(uid, {})
                operator[f"{name}.count"] = {task: value.count for task, value in values.items()}
                operator[f"{name}.sum"] = {task: value.sum for task, value in values.items()}
                for part in ("min", "max", "mean"):
                    operator[f"{name}.{part}"] = {
                        task: number for task, value in values.items() if (number := getattr(value, part)) is not None
                    }
        return found

    def user_counters(self) -> set[tuple[str, str]]:
        """Return the counters that user functions registered, by operator uid and name."""
        with self._lock:
            return {(uid, name) for uid, name in self._counters if not is_own_metric(name)}

    def _rate(self, key: Key, subtask: int, now: float) -> float:
        return sum(window.rate(now, subtask) for window in self._windows[key].values())

    def _add_fill(
        self, uid: str, name: str, sent: dict[int, int], values: dict[Key, Value], subtasks: BySubtask
    ) -> None:
        scope = name.removesuffix(BYTES_OUT)
        if scope == name:
            return
        size = self._graph.buffer_bytes
        buffers = self._counters[uid, scope + BUFFERS_OUT]
        key = uid, scope + BUFFER_FILL
        subtasks[key] = {task: count / (buffers[task] * size or 1) for task, count in sent.items()}
        values[key] = sum(sent.values()) / (sum(buffers.values()) * size or 1)

    def _names(self) -> dict[str, str]:
        chains = self._graph.chains
        names = {operator.uid: operator.name for chain in chains for operator in chain.operators}
        return names | {chain.source_uid: chain.source_name for chain in chains if chain.source_uid is not None}


class _Step(NamedTuple):
    """Events from a point in time on, until the next step begins."""

    began: float
    events: dict[int, int]
    """By subtask."""


class _Window:
    """The events of a meter within its time span, in fractions of the span. `now` never goes back.

    All subtasks share the steps: one deque per subtask would make up most of the memory of a large job's metrics.
    """

    def __init__(self, span: int) -> None:
        self._span = span
        self._steps: deque[_Step] = deque()
        self._events: dict[int, int] = {}

    def add(self, now: float, events: Mapping[int, int]) -> None:
        """Add the events of subtasks."""
        if self._steps and 0 <= now - self._steps[-1].began < self._span / _STEPS:
            _add_counts(self._steps[-1].events, events)
        else:
            self._steps.append(_Step(now, dict(events)))
        _add_counts(self._events, events)
        self._expire(now)

    def rate(self, now: float, subtask: int) -> float:
        # A snapshot reads the meters of every subtask, so this does not add up the steps.
        self._expire(now)
        return self._events.get(subtask, 0) / self._span

    def _expire(self, now: float) -> None:
        while self._steps and self._steps[0].began <= now - self._span:
            for subtask, events in self._steps.popleft().events.items():
                self._events[subtask] -= events


def _add_counts(sums: dict[int, int], counts: Mapping[int, int]) -> None:
    for subtask, count in counts.items():
        sums[subtask] = sums.get(subtask, 0) + count


def _sum(a: Any, b: Any) -> Any:
    if isinstance(a, MeterValue):
        return MeterValue(a.count + b.count, a.rate + b.rate)
    if not isinstance(a, DistributionValue):
        return a + b
    return combined(a, b)


def _joined(cells: dict[int, Any]) -> Any:
    """Combine the values of all subtasks."""
    return reduce(_sum, cells.values())


def _copied(cells: BySubtask) -> BySubtask:
    return {key: dict(values) for key, values in cells.items()}


def _full(key: Key) -> str:
    return f"{key[0]}.{key[1]}"
