"""Create state from the rows of a DataFrame, through the same state API as a job's functions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from penstock.checkpoint.manifest import OperatorSnapshot
from penstock.common.typeinfo import TypeInformation
from penstock.common.wall_clock import now_ms
from penstock.errors import PenstockError
from penstock.runtime.context import RuntimeContext
from penstock.runtime.metrics import MetricRegistry
from penstock.runtime.timers import TimeDomain
from penstock.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
)
from penstock.state.files import GroupChanges
from penstock.state.operator_state import OperatorStateStore
from penstock.state.overlay import Nothing, Overlay
from penstock.state.shares import Shares
from penstock.state.ttl import UNKNOWN
from penstock.tables.frames import rows_of
from penstock.tables.keys import canonical

Row = dict[str, Any]
Column = str | Callable[[Row], Any]
"""A column name, or a function of a row."""

_BETWEEN_LOOKS = 1024
_ROW_BYTES = 64


class BadBootstrap(PenstockError):
    """The bootstrap input or definition is invalid.

    Operator action: correct the input or the definition that the message names.
    """


class KeyedStateBootstrapFunction(ABC):
    """Writes rows to keyed state and sets timers. Subclass it, and get the states in ``open``, as in a job."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Get the function's states from the context. Called once, before the first row."""

    @abstractmethod
    def process_element(self, value: Any, ctx: BootstrapContext) -> None:
        """Write the state of a row's key."""

    def close(self) -> None:
        """Release resources acquired in ``open``."""


class StateBootstrapFunction(ABC):
    """Writes rows to operator state. Subclass it, and get the states in ``initialize_state``, as in a job."""

    @abstractmethod
    def initialize_state(self, context: StoreContext) -> None:
        """Get the operator states to write. Called once, before the first row."""

    @abstractmethod
    def process_element(self, value: Any) -> None:
        """Write a row to operator state."""


class StoreContext:
    """The context passed to ``StateBootstrapFunction.initialize_state``."""

    def __init__(self, store: OperatorStateStore) -> None:
        self._store = store

    def get_operator_state_store(self) -> OperatorStateStore:
        """Return the operator state store."""
        return self._store


class BootstrapContext:
    """The context passed with each row."""

    def __init__(self, overlay: Overlay, now: int) -> None:
        self._overlay = overlay
        self._now = now
        self._key: Any = None

    def begin(self, key: Any) -> None:
        """Set the current key."""
        self._key = key

    def get_current_key(self) -> Any:
        """Return the key of the current row."""
        return self._key

    def timer_service(self) -> BootstrapContext:
        """Return the service that sets timers."""
        return self

    def current_processing_time(self) -> int:
        """Return the savepoint's processing time in milliseconds."""
        return self._now

    def register_event_time_timer(self, timestamp: int) -> None:
        """Set an event-time timer for the current key."""
        self._overlay.timers[TimeDomain.EVENT_TIME.name].register(_timer_time(timestamp))

    def register_processing_time_timer(self, timestamp: int) -> None:
        """Set a processing-time timer for the current key."""
        self._overlay.timers[TimeDomain.PROCESSING_TIME.name].register(_timer_time(timestamp))


class OperatorTransformation:
    """Entry point for bootstrapping state: ``OperatorTransformation.bootstrap_with(frame).key_by("id").state(...)``."""

    @staticmethod
    def bootstrap_with(data: Any) -> OneInput:
        """Start from tabular data.

        Args:
            data: A pandas or Spark DataFrame, an Arrow table or stream, or an iterable of dicts.
        """
        return OneInput(data)


class OneInput:
    """The rows from which the state of one operator is created."""

    def __init__(self, data: Any) -> None:
        self._data = data

    def key_by(self, key: Column | Sequence[str]) -> KeyedBootstrap:
        """Key the rows by a column, by several columns (as a tuple), or by a function of a row."""
        if isinstance(key, str) or callable(key):
            return KeyedBootstrap(self._data, _getter(key))
        names = list(key)
        return KeyedBootstrap(self._data, lambda row: tuple(_cell(row, name) for name in names))

    def transform(self, function: StateBootstrapFunction) -> StateBootstrap:
        """Create operator state with a function."""
        return StateBootstrap(self._data, function)

    def list_state(self, descriptor: ListStateDescriptor, value: Column) -> StateBootstrap:
        """Create a list state whose elements are split among the subtasks."""
        return StateBootstrap(self._data, _Listed(descriptor, _getter(value), union=False))

    def union_list_state(self, descriptor: ListStateDescriptor, value: Column) -> StateBootstrap:
        """Create a union list state: every subtask receives all elements."""
        return StateBootstrap(self._data, _Listed(descriptor, _getter(value), union=True))

    def broadcast_state(self, descriptor: MapStateDescriptor, map_key: Column, value: Column) -> StateBootstrap:
        """Create a broadcast state: every subtask has the complete map."""
        return StateBootstrap(self._data, _Broadcast(descriptor, _getter(map_key), _getter(value)))


class KeyedBootstrap:
    """Creates keyed state from rows, with a function or column by column."""

    def __init__(self, data: Any, key: Callable[[Row], Any]) -> None:
        self._data = data
        self._key = key
        self._function: KeyedStateBootstrapFunction | None = None
        self._columns: list[tuple[StateDescriptor, Callable[[Row], Any] | None, Callable[[Row], Any]]] = []
        self._timers: list[tuple[TimeDomain, Callable[[Row], Any]]] = []

    def transform(self, function: KeyedStateBootstrapFunction) -> KeyedBootstrap:
        """Create keyed state with a function."""
        self._function = function
        return self

    def state(self, descriptor: StateDescriptor, value: Column, map_key: Column | None = None) -> KeyedBootstrap:
        """Write a column to a state, skipping nulls. Call it once per state.

        For list and map states, each row adds one element or entry. Reducing and aggregating states get each value
        through ``add``.
        """
        if isinstance(descriptor, MapStateDescriptor) is (map_key is None):
            raise BadBootstrap(
                f"State '{descriptor.name}' is a {descriptor.kind}. Map states require map_key; others take none.",
                fix="Pass the column with the map's keys as map_key for a map state only.",
            )
        self._columns.append((descriptor, None if map_key is None else _getter(map_key), _getter(value)))
        return self

    def timers(self, timestamp: Column, domain: TimeDomain = TimeDomain.EVENT_TIME) -> KeyedBootstrap:
        """Set a timer per row at the column's time in milliseconds, skipping nulls."""
        self._timers.append((domain, _getter(timestamp)))
        return self

    def run(self, uid: str, name: str, max_parallelism: int, epoch: int) -> tuple[OperatorSnapshot, Any]:
        """Return the operator's snapshot and its state by key group, to be read at once. For SavepointWriter."""
        overlay = Overlay(max_parallelism)
        now = now_ms()
        overlay.ttl.go_by(_Clock(now))
        context = RuntimeContext(
            task_name=name,
            uid=uid,
            subtask=0,
            parallelism=1,
            max_parallelism=max_parallelism,
            overlay=overlay,
            metrics=MetricRegistry(name, uid),
        )
        if self._function is not None:
            self._function.open(context)
        states = [(overlay.register(each[0]), *each) for each in self._columns]
        overlay.begin(epoch, Nothing(), groups=range(max_parallelism))
        given = BootstrapContext(overlay, now)
        for number, row in enumerate(rows_of(self._data)):
            key = self._key(row)
            overlay.key = canonical(key)
            if self._function is not None:
                given.begin(key)
                self._function.process_element(row, given)
            for state, descriptor, map_key, value in states:
                _put(state, descriptor, None if map_key is None else map_key(row), value(row))
            for domain, at in self._timers:
                moment = at(row)
                if moment is not None:
                    overlay.timers[domain.name].register(_timer_time(moment))
            if number % _BETWEEN_LOOKS == _BETWEEN_LOOKS - 1:
                overlay.grown(_ROW_BYTES * _BETWEEN_LOOKS, _BETWEEN_LOOKS)
        if self._function is not None:
            self._function.close()
        changes: Iterable[GroupChanges] = overlay.changes()
        return OperatorSnapshot(
            name=name,
            parallelism=1,
            max_parallelism=max_parallelism,
            states=overlay.schemas(),
            deltas=[],
            ttl=overlay.ttl.forms(),
        ), changes


class StateBootstrap:
    """Creates operator state from rows."""

    def __init__(self, data: Any, function: StateBootstrapFunction) -> None:
        self._data = data
        self._function = function

    def run(self, uid: str, name: str, max_parallelism: int, epoch: int) -> tuple[OperatorSnapshot, Any]:
        """Run the function over all rows, and return the operator's snapshot and its keyed state."""
        store = OperatorStateStore(f"operator '{name}' (uid '{uid}')", 0, {})
        self._function.initialize_state(StoreContext(store))
        for row in rows_of(self._data):
            self._function.process_element(row)
        shares = {
            each: Shares(mode=share.mode, schema=share.schema, by_subtask=[share.elements])
            for each, share in store.snapshot().items()
        }
        return OperatorSnapshot(
            name=name, parallelism=1, max_parallelism=max_parallelism, states={}, deltas=[], operator_state=shares
        ), ()


class _Listed(StateBootstrapFunction):
    def __init__(self, descriptor: ListStateDescriptor, value: Callable[[Row], Any], *, union: bool) -> None:
        self._descriptor, self._value, self._union = descriptor, value, union

    def initialize_state(self, context: StoreContext) -> None:
        store = context.get_operator_state_store()
        get = store.get_union_list_state if self._union else store.get_list_state
        self._state = get(self._descriptor)

    def process_element(self, value: Row) -> None:
        element = self._value(value)
        if element is not None:
            self._state.add(_object(self._descriptor, element))


class _Broadcast(StateBootstrapFunction):
    def __init__(
        self, descriptor: MapStateDescriptor, map_key: Callable[[Row], Any], value: Callable[[Row], Any]
    ) -> None:
        self._descriptor, self._map_key, self._value = descriptor, map_key, value

    def initialize_state(self, context: StoreContext) -> None:
        self._state = context.get_operator_state_store().get_broadcast_state(self._descriptor)

    def process_element(self, value: Row) -> None:
        element = self._value(value)
        if element is not None:
            self._state.put(self._map_key(value), _object(self._descriptor, element))


class _Clock:
    def __init__(self, now: int) -> None:
        self._now = now

    def processing_time(self) -> int:
        return self._now

    def event_time(self) -> int:
        return UNKNOWN


def _put(state: Any, descriptor: StateDescriptor, map_key: Any, value: Any) -> None:
    if value is None:
        return
    if isinstance(descriptor, (ReducingStateDescriptor, AggregatingStateDescriptor)):
        state.add(value)
        return
    value = _object(descriptor, value)
    if isinstance(descriptor, ListStateDescriptor):
        state.add(value)
    elif isinstance(descriptor, MapStateDescriptor):
        state.put(map_key, value)
    else:
        state.update(value)


def _object(descriptor: StateDescriptor, value: Any) -> Any:
    """Convert a column's dict to the class that the state holds."""
    kind = descriptor.type_info
    if isinstance(value, dict) and isinstance(kind, type) and not issubclass(kind, dict):
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            raise BadBootstrap(
                f"State '{descriptor.name}': {value!r} is not a valid {kind.__qualname__}: {error}."
            ) from None
    if isinstance(value, list) and not isinstance(kind, TypeInformation):
        # Arrow returns maps as pairs, and sets and tuples as lists.
        return descriptor.serializer.check(_coerced(kind, value))
    return value


def _coerced(kind: Any, value: list[Any]) -> Any:
    try:
        return msgspec.convert(dict(value) if _is_mapping(kind) else value, kind)
    except (msgspec.ValidationError, TypeError, ValueError):
        return value


def _is_mapping(kind: Any) -> bool:
    origin = getattr(kind, "__origin__", kind)
    return isinstance(origin, type) and issubclass(origin, Mapping)


def _getter(column: Column) -> Callable[[Row], Any]:
    return column if callable(column) else lambda row: _cell(row, column)


def _cell(row: Row, name: str) -> Any:
    if name not in row:
        raise BadBootstrap(f"Column '{name}' does not exist. The columns are {sorted(row)}.")
    return row[name]


def _timer_time(timestamp: Any) -> int:
    if type(timestamp) is not int or not -(2**63) <= timestamp < 2**63:
        raise BadBootstrap(f"The time of a timer must be an integer in milliseconds, not {timestamp!r}.")
    return timestamp
