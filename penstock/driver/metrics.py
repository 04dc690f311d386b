"""A job's metrics in the driver: totals of the task metrics of completed epochs since the driver started."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

import msgspec

from penstock.driver.flow_control import FlowControl
from penstock.driver.slots import Slots
from penstock.errors import PenstockError
from penstock.graph.physical import PhysicalGraph
from penstock.runtime.metrics import (
    BUFFER_FILL,
    BUFFERS_OUT,
    BYTES_OUT,
    DEAD_LETTERS,
    EDGE_GROUP,
    RECORDS_IN,
    RECORDS_OUT,
    Number,
    TaskMetrics,
    is_own_metric,
)

_STEPS = 60
"""Steps that a meter's time span is divided into. This bounds both its memory and its precision."""


@dataclass(frozen=True, slots=True)
class MeterValue:
    """The value of a meter."""

    count: int
    """Events since the driver started."""
    rate: float
    """Events per second over the meter's time span up to now."""


class DistributionValue(msgspec.Struct, frozen=True, gc=False):
    """The value of a distribution. ``min`` and ``max`` are None if ``count`` is 0."""

    count: int
    sum: Number
    min: Number | None
    max: Number | None

    @property
    def mean(self) -> float | None:
        """The arithmetic mean, or None if ``count`` is 0."""
        return self.sum / self.count if self.count else None


Value = int | float | MeterValue | DistributionValue | dict[int, Number]
"""The value of a counter, a buffer fill or flow-control gauge, a meter or a distribution. For a user's gauge, its value
in each subtask."""

_Key = tuple[str, str]
"""Operator uid and the metric's name within the operator."""
_BySubtask = dict[_Key, dict[int, Any]]


class JobMetrics(Mapping[str, Value]):
    """A snapshot of a job's metrics over all subtasks, by ``<operator uid>.<group>.<name>``."""

    def __init__(
        self,
        epoch: int,
        names: dict[str, str],
        values: dict[_Key, Value],
        subtasks: _BySubtask,
        last_epoch: _BySubtask,
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
        self._counters, self._meters, self._distributions = _Sums(), _Sums(), _Sums()
        self._last: tuple[_Sums, ...] = ()
        self._windows: dict[tuple[_Key, int], _Window] = {}
        self._gauges: _BySubtask = {}

    def add(self, epoch: int, tasks: Iterable[TaskMetrics], reported: set[tuple[int, int]]) -> None:
        """Add a completed epoch. A task that ran twice counts once; a task not in `reported` does not count."""
        counted = {(task.chain, task.subtask): task for task in tasks if task.epoch == epoch}
        with self._lock:
            self._epoch = epoch
            self._gauges = {}
            counters, meters, distributions = self._last = _Sums(), _Sums(), _Sums()
            for who, task in counted.items():
                if who in reported:
                    self._add_sent(task, counters)
                    self._add_registered(task, counters, meters, distributions)
            self._counters.add_all(counters)
            self._meters.add_all(meters)
            self._distributions.add_all(distributions)

    def _add_sent(self, task: TaskMetrics, counters: _Sums) -> None:
        chain = self._graph.chains[task.chain]
        head = chain.source_uid if chain.source_uid is not None else chain.operators[0].uid
        counters.add((head, RECORDS_IN), task.subtask, task.records_in)
        if task.dead_letters:
            counters.add((head, DEAD_LETTERS), task.subtask, task.dead_letters)
        for sent in task.sent:
            edge = self._graph.edges[sent.edge]
            sender = chain.source_uid if edge.from_operator is None else chain.operators[edge.from_operator].uid
            receiver = self._graph.chains[edge.to_chain].operators[0].uid
            for scope in ("", f"{EDGE_GROUP}.{receiver}."):
                for name, count in ((RECORDS_OUT, sent.records), (BUFFERS_OUT, sent.buffers), (BYTES_OUT, sent.bytes)):
                    counters.add((sender or "", scope + name), task.subtask, count)

    def _add_registered(self, task: TaskMetrics, counters: _Sums, meters: _Sums, distributions: _Sums) -> None:
        subtask, now = task.subtask, self._clock()
        for operator in task.operators:
            uid = operator.uid
            for name, count in operator.counters.items():
                counters.add((uid, name), subtask, count)
            for name, value in operator.gauges.items():
                self._gauges.setdefault((uid, name), {})[subtask] = value
            for name, (events, span) in operator.meters.items():
                meters.add((uid, name), subtask, events)
                self._windows.setdefault(((uid, name), subtask), _Window(span)).add(now, events)
            for name, (number, total, least, most) in operator.distributions.items():
                bounds = (least, most) if number else (None, None)
                distributions.add((uid, name), subtask, DistributionValue(number, total, *bounds))

    def restarted(self, restarts: int) -> None:
        """Set how often the job has restarted so far."""
        self._restarts = restarts

    def read(self) -> JobMetrics:
        now = self._clock()
        with self._lock:
            meters = {
                key: {
                    subtask: MeterValue(count, self._windows[key, subtask].rate(now))
                    for subtask, count in counts.items()
                }
                for key, counts in self._meters.items()
            }
            subtasks = {**_copied(self._counters), **meters, **_copied(self._distributions)}
            values: dict[_Key, Value] = {key: _joined(cells) for key, cells in subtasks.items()}
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
                operator[f"{name}.rate"] = {task: self._windows[(uid, name), task].rate(now) for task in counts}
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

    def _add_fill(
        self, uid: str, name: str, sent: dict[int, int], values: dict[_Key, Value], subtasks: _BySubtask
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


class _Sums(_BySubtask):
    """Counts or distributions, by metric and subtask."""

    def add(self, key: _Key, subtask: int, cell: Any) -> None:
        cells = self.setdefault(key, {})
        cells[subtask] = _sum(cells[subtask], cell) if subtask in cells else cell

    def add_all(self, others: _Sums) -> None:
        for key, cells in others.items():
            for subtask, cell in cells.items():
                self.add(key, subtask, cell)


class _Window:
    """A meter's events within its time span, in fractions of the span. `now` never goes back."""

    def __init__(self, span: int) -> None:
        self._span = span
        self._steps: deque[tuple[float, int]] = deque()
        self._events = 0

    def add(self, now: float, events: int) -> None:
        if not events:
            return
        if self._steps and 0 <= now - self._steps[-1][0] < self._span / _STEPS:
            began, before = self._steps.pop()
            self._steps.append((began, before + events))
        else:
            self._steps.append((now, events))
        self._events += events
        self._expire(now)

    def rate(self, now: float) -> float:
        # A snapshot reads the meters of every subtask, so this does not add up the steps.
        self._expire(now)
        return self._events / self._span

    def _expire(self, now: float) -> None:
        while self._steps and self._steps[0][0] <= now - self._span:
            self._events -= self._steps.popleft()[1]


def _sum(a: Any, b: Any) -> Any:
    if isinstance(a, MeterValue):
        return MeterValue(a.count + b.count, a.rate + b.rate)
    if not isinstance(a, DistributionValue):
        return a + b
    if not a.count or not b.count:
        return a if a.count else b
    return DistributionValue(a.count + b.count, a.sum + b.sum, min(a.min, b.min), max(a.max, b.max))


def _joined(cells: dict[int, Any]) -> Any:
    """Combine the values of all subtasks."""
    return reduce(_sum, cells.values())


def _copied(cells: _BySubtask) -> _BySubtask:
    return {key: dict(values) for key, values in cells.items()}


def _full(key: _Key) -> str:
    return f"{key[0]}.{key[1]}"
