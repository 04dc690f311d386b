"""The contents of a window until it fires: an accumulator, or its records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from penstock.common.pickling import Frozen
from penstock.common.typeinfo import Types
from penstock.runtime.sharing import independent
from penstock.runtime.windows.evictors import Evictor, TimestampedValue
from penstock.state.descriptors import ListState, ListStateDescriptor, StateDescriptor, ValueState, ValueStateDescriptor
from penstock.state.namespaced import Namespaced
from penstock.state.serializers import Hinted

NAME = "contents"


class Combiner:
    """Combines records into an accumulator with a reduce or aggregate function. Pickled with its operator."""

    def __init__(self, function: Any, aggregates: bool) -> None:
        self.function = function
        self.aggregates = aggregates

    def first(self, value: Any) -> Any:
        """Return the accumulator of a first record."""
        if self.aggregates:
            return self.function.add(value, self.function.create_accumulator())
        return value

    @property
    def add(self) -> Callable[[Any, Any], Any]:
        """A function (accumulator, record) → accumulator."""
        if self.aggregates:
            add = self.function.add
            return lambda accumulator, value: add(value, accumulator)
        return self.merge

    @property
    def merge(self) -> Callable[[Any, Any], Any]:
        """A function (accumulator, accumulator) → accumulator."""
        if self.aggregates:
            return self.function.merge  # type: ignore[no-any-return]
        return getattr(self.function, "reduce", self.function)  # type: ignore[no-any-return]

    def result(self, accumulator: Any) -> Any:
        return self.function.get_result(accumulator) if self.aggregates else accumulator


class Contents(Protocol):
    """The contents of the scope's current window."""

    def add(self, value: Any, timestamp: int | None) -> None: ...

    def fire(self, evaluate: Callable[[list[Any]], None], window: Any) -> None:
        """Call `evaluate` with the input of the window's function, unless the window is empty."""

    def clear(self) -> None: ...

    def merge(self, target: bytes, sources: list[bytes]) -> None:
        """Move the contents of other slots of the scope to `target`."""


class Accumulated:
    """Contents of a single accumulator, for any number of records."""

    def __init__(self, scope: Namespaced, combiner: Combiner, value_type: Any) -> None:
        self._scope = scope
        self.state: ValueState[Any] = scope.register(_described(ValueStateDescriptor, value_type))
        self._first, self._add, self._merge = combiner.first, combiner.add, combiner.merge
        self._result = combiner.result

    def add(self, value: Any, timestamp: int | None) -> None:
        present = _thawed(self.state.value())
        self.state.update(self._first(value) if present is None else self._add(present, value))

    def fire(self, evaluate: Callable[[list[Any]], None], window: Any) -> None:
        present = _thawed(self.state.value())
        if present is not None:
            evaluate([self._result(present)])

    def clear(self) -> None:
        self.state.clear()

    def merge(self, target: bytes, sources: list[bytes]) -> None:
        accumulators = []
        for slot in [target, *sources]:
            self._scope.key = slot
            accumulators.append(_thawed(self.state.value()))
            if slot != target:
                self.state.clear()
        self._scope.key = target
        result = None
        for accumulator in accumulators:
            if accumulator is not None:
                result = accumulator if result is None else self._merge(result, accumulator)
        self.state.update(result)


class Listed:
    """Contents of all records, in order of arrival."""

    def __init__(self, scope: Namespaced, value_type: Any, name: str = NAME) -> None:
        self._scope = scope
        self.state: ListState[Any] = scope.register(_described(ListStateDescriptor, value_type, name))

    def add(self, value: Any, timestamp: int | None) -> None:
        self.state.add(value)

    def fire(self, evaluate: Callable[[list[Any]], None], window: Any) -> None:
        values = [_thawed(value) for value in self.state.get()]
        if values:
            evaluate(values)

    def clear(self) -> None:
        self.state.clear()

    def merge(self, target: bytes, sources: list[bytes]) -> None:
        moved: list[Any] = []
        for slot in sources:
            self._scope.key = slot
            moved += self.state.get()
            self.state.clear()
        self._scope.key = target
        self.state.add_all(moved)


class Evicted(Listed):
    """Contents of all records with their timestamps; an evictor removes some of them when the window fires."""

    def __init__(self, scope: Namespaced, evictor: Evictor[Any, Any], context: Any, combiner: Combiner | None) -> None:
        super().__init__(scope, Types.PICKLED_BYTE_ARRAY())
        self._evictor = evictor
        self._context = context
        self._combiner = combiner

    def add(self, value: Any, timestamp: int | None) -> None:
        self.state.add((value, timestamp))

    def fire(self, evaluate: Callable[[list[Any]], None], window: Any) -> None:
        elements = [TimestampedValue(*element) for element in self.state.get()]
        if not elements:
            return
        self._evictor.evict_before(elements, len(elements), window, self._context)
        values = [element.value for element in elements]
        if self._combiner is None:
            evaluate([independent(value) for value in values])
        elif values:
            evaluate([self._combined(values)])
        self._evictor.evict_after(elements, len(elements), window, self._context)
        self.state.update([tuple(element) for element in elements])

    def _combined(self, values: list[Any]) -> Any:
        assert self._combiner is not None
        accumulator = self._combiner.first(independent(values[0]))
        for value in values[1:]:
            accumulator = self._combiner.add(accumulator, independent(value))
        return self._combiner.result(accumulator)


def _described(kind: type[StateDescriptor], value_type: Any, name: str = NAME) -> StateDescriptor:
    """Return a descriptor. A hinted type only chooses the encoding: values that do not match are pickled."""
    if isinstance(value_type, Hinted):
        descriptor = kind(name, value_type.spec)
        descriptor.use_hint(value_type.spec)
        return descriptor
    return kind(name, Types.PICKLED_BYTE_ARRAY() if value_type is None else value_type)


def _thawed(held: Any) -> Any:
    return held.thaw() if type(held) is Frozen else held
