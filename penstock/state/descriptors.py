"""State descriptors and the keyed state interfaces, re-exported to users by ``penstock.datastream.state``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, Protocol, overload

from penstock.common.names import check_name
from penstock.common.type_parameters import ACC, IN, OUT, K, S_co, T, V
from penstock.common.typeinfo import TypeOf, TypeSpec
from penstock.errors import PenstockError
from penstock.state.serializers import OrPickled, Serializer, serializer_for
from penstock.state.ttl_config import StateTtlConfig


class State(ABC):
    """Base class of all state. Keyed state is scoped to the key of the record being processed."""

    @abstractmethod
    def clear(self) -> None:
        """Remove everything this state stores for the current key."""


class ValueState(State, Generic[T]):
    """A single value per key."""

    @abstractmethod
    def value(self) -> T | None:
        """Return the value for the current key, or None.

        The returned object is a copy: modifying it does not change the state until you pass it to :meth:`update`.
        """

    @abstractmethod
    def update(self, value: T | None) -> None:
        """Set the value for the current key to a copy of ``value``; None clears it."""


class AppendingState(State, Generic[IN, OUT]):
    """State that accumulates the values added to it."""

    @abstractmethod
    def get(self) -> OUT:
        """Return the result of the values added for the current key."""

    @abstractmethod
    def add(self, value: IN) -> None:
        """Add a value for the current key."""


class MergingState(AppendingState[IN, OUT]):
    """Appending state whose contents can be merged with those of another, for example when windows merge."""


class ReducingState(MergingState[T, T]):
    """A single value per key: all added values, combined by a reduce function."""


class AggregatingState(MergingState[IN, OUT]):
    """An accumulator per key; ``get`` returns the accumulator's result."""


class ListState(MergingState[T, Iterable[T]]):
    """A list per key. Appending does not read the list."""

    @abstractmethod
    def update(self, values: list[T]) -> None:
        """Replace the list for the current key; an empty list clears it."""

    @abstractmethod
    def add_all(self, values: list[T]) -> None:
        """Append values to the list for the current key."""

    def __iter__(self) -> Iterator[T]:
        return iter(self.get())


class _ReadableMap(State, Generic[K, V]):
    """The read methods of map state."""

    @abstractmethod
    def get(self, key: K) -> V | None:
        """Return the value of an entry, or None if the entry does not exist."""

    @abstractmethod
    def contains(self, key: K) -> bool:
        """Return whether the entry exists."""

    @abstractmethod
    def items(self) -> Iterable[tuple[K, V]]:
        """Return the entries, ordered by encoded key. The order is the same in every subtask and epoch."""

    @abstractmethod
    def keys(self) -> Iterable[K]:
        """Return the keys, in the order of :meth:`items`."""

    @abstractmethod
    def values(self) -> Iterable[V]:
        """Return the values, in the order of :meth:`items`."""

    @abstractmethod
    def is_empty(self) -> bool:
        """Return whether the map has no entries."""

    def __getitem__(self, key: K) -> V | None:
        return self.get(key)

    def __contains__(self, key: K) -> bool:
        return self.contains(key)

    def __iter__(self) -> Iterator[K]:
        return iter(self.keys())


class _WritableMap(_ReadableMap[K, V]):
    """The write methods of map state."""

    @abstractmethod
    def put(self, key: K, value: V) -> None:
        """Set the value of an entry."""

    @abstractmethod
    def put_all(self, dict_value: Mapping[K, V]) -> None:
        """Set all entries of a mapping; other entries stay unchanged."""

    @abstractmethod
    def remove(self, key: K) -> None:
        """Remove an entry if it exists."""

    def __setitem__(self, key: K, value: V) -> None:
        self.put(key, value)

    def __delitem__(self, key: K) -> None:
        self.remove(key)


class MapState(_WritableMap[K, V]):
    """A map per key. Entries are read and written individually."""


class ReadOnlyBroadcastState(_ReadableMap[K, V]):
    """Broadcast state where it can only be read. Returned values are copies: modifying them changes no state."""


class BroadcastState(_WritableMap[K, V], ReadOnlyBroadcastState[K, V]):
    """A map of which each subtask of an operator holds a copy. Your function must apply the same updates everywhere."""


class BadStateType(PenstockError):
    """The declared type of a state has no encoder.

    Operator action: declare a supported type, or ``Types.PICKLED_BYTE_ARRAY()`` to accept pickling.
    """


class StateDescriptor(ABC, Generic[S_co]):
    """Name and type of a state.

    The type is a ``Types.…`` object or a Python type hint; equivalent declarations select the same encoder.
    """

    ttl_config: StateTtlConfig | None = None
    queryable_name: str | None = None

    def __init__(self, name: str, type_info: Any) -> None:
        self.name = check_name(name, "The name of a state", BadStateType)
        self.type_info = type_info
        self.serializer = self._serializer(type_info)

    def _serializer(self, type_info: Any) -> Serializer:
        try:
            return serializer_for(type_info)
        except PenstockError as error:
            raise BadStateType(f"State '{self.name}': {error}") from None

    def get_name(self) -> str:
        """Return the name of the state."""
        return self.name

    def use_hint(self, spec: Any) -> None:
        """Encode values by the type hint ``spec``, and pickle values that do not match it.

        Python does not enforce annotations, so values of other types can occur.
        """
        self.serializer = OrPickled(spec)

    def enable_time_to_live(self, ttl_config: StateTtlConfig) -> None:
        """Let values expire after a time to live: docs/write/state-ttl.md.

        Call this before you get the state with this descriptor.
        """
        if not isinstance(ttl_config, StateTtlConfig):
            raise TypeError(f"expected a StateTtlConfig, got {type(ttl_config).__name__}: call build() on the builder")
        self.ttl_config = ttl_config

    def set_queryable(self, queryable_state_name: str) -> None:
        """Make the state readable from outside the job under a name: docs/query/queryable-state.md.

        Call this before you get the state with this descriptor. The job needs ``queryable-state.enable``.

        Args:
            queryable_state_name: The name, unique within the job.

        Raises:
            BadStateType: The descriptor already has another name.
        """
        name = check_name(queryable_state_name, "The name of a queryable state", BadStateType)
        if self.queryable_name not in (None, name):
            raise BadStateType(
                f"State '{self.name}' is already queryable as '{self.queryable_name}', so it cannot become queryable "
                f"as '{name}'.",
                fix="Call set_queryable once.",
            )
        self.queryable_name = name

    def is_queryable(self) -> bool:
        """Return whether the state can be read from outside the job."""
        return self.queryable_name is not None

    def get_queryable_state_name(self) -> str | None:
        """Return the name under which the state can be read from outside the job, or None."""
        return self.queryable_name

    def schema(self) -> str:
        """Return the type as snapshots record it."""
        return f"{self.kind} {self.serializer.schema()}"

    kind = "state"

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        # ValueStateDescriptor[int](...) makes Python set __orig_class__, which only type checkers need.
        for derived in ("serializer", "key_serializer", "__orig_class__"):
            state.pop(derived, None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.serializer = self._serializer(self.type_info)


class ValueStateDescriptor(StateDescriptor[ValueState[T]]):
    """Descriptor of a :class:`ValueState`.

    Args:
        name: Name of the state, unique within the operator.
        value_type_info: Type of the value.
        default_value: What ``value()`` returns for a key without a value. It is not stored, so a new version of the
            program can change it.
    """

    kind = "value"

    @overload
    def __init__(self, name: str, value_type_info: TypeOf[T], default_value: T | None = None) -> None: ...

    @overload
    def __init__(self, name: str, value_type_info: TypeSpec, default_value: Any = None) -> None: ...

    def __init__(self, name: str, value_type_info: Any, default_value: Any = None) -> None:
        super().__init__(name, value_type_info)
        self.default_value = default_value
        if default_value is not None:
            try:
                self.default()
            except PenstockError as error:
                raise BadStateType(f"State '{name}', default value: {error}") from None

    def default(self) -> Any:
        """Return a copy of the default value; modifying it does not change the default."""
        return self.serializer.decode(self.serializer.encode(self.default_value))


class ListStateDescriptor(StateDescriptor[ListState[T]]):
    """Descriptor of a :class:`ListState`.

    Args:
        name: Name of the state, unique within the operator.
        elem_type_info: Type of the elements.
    """

    kind = "list"

    @overload
    def __init__(self, name: str, elem_type_info: TypeOf[T]) -> None: ...

    @overload
    def __init__(self, name: str, elem_type_info: TypeSpec) -> None: ...

    def __init__(self, name: str, elem_type_info: Any) -> None:
        super().__init__(name, elem_type_info)


class MapStateDescriptor(StateDescriptor[MapState[K, V]]):
    """Descriptor of a :class:`MapState`.

    Args:
        name: Name of the state, unique within the operator.
        key_type_info: Type of the map's keys.
        value_type_info: Type of the map's values.
    """

    kind = "map"

    @overload
    def __init__(self, name: str, key_type_info: TypeOf[K], value_type_info: TypeOf[V]) -> None: ...

    @overload
    def __init__(self, name: str, key_type_info: TypeSpec, value_type_info: TypeSpec) -> None: ...

    def __init__(self, name: str, key_type_info: Any, value_type_info: Any) -> None:
        super().__init__(name, value_type_info)
        self.key_type_info = key_type_info
        self.key_serializer = self._serializer(key_type_info)

    def schema(self) -> str:
        """Return the key and value types as snapshots record them."""
        return f"map {self.key_serializer.schema()} -> {self.serializer.schema()}"

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.key_serializer = self._serializer(self.key_type_info)


class Reduces(Protocol[T]):
    """The interface of a ``ReduceFunction``."""

    def reduce(self, value1: T, value2: T, /) -> T:
        """Combine two values into one."""


class Aggregates(Protocol[IN, ACC, OUT]):
    """The methods of an ``AggregateFunction`` that aggregating state calls."""

    def create_accumulator(self) -> ACC:
        """Return an empty accumulator."""

    def add(self, value: IN, accumulator: ACC, /) -> ACC:
        """Add a value and return the new accumulator."""

    def get_result(self, accumulator: ACC, /) -> OUT:
        """Return the result of an accumulator."""


class ReducingStateDescriptor(StateDescriptor[ReducingState[T]]):
    """Descriptor of a :class:`ReducingState`.

    Args:
        name: Name of the state, unique within the operator.
        reduce_function: A function of two values, or an object with a ``reduce`` method.
        type_info: Type of the values.
    """

    kind = "reducing"

    @overload
    def __init__(self, name: str, reduce_function: Callable[[T, T], T] | Reduces[T], type_info: TypeOf[T]) -> None: ...

    @overload
    def __init__(
        self,
        name: str,
        reduce_function: Callable[[Any, Any], Any] | Reduces[Any],
        type_info: TypeSpec,
    ) -> None: ...

    def __init__(self, name: str, reduce_function: Any, type_info: Any) -> None:
        super().__init__(name, type_info)
        self._function = reduce_function

    def get_reduce_function(self) -> Any:
        """Return the reduce function as passed to the constructor."""
        return self._function

    def reducer(self) -> Callable[[Any, Any], Any]:
        """Return the reduce function as a plain callable."""
        function = self._function
        return function.reduce if hasattr(function, "reduce") else function  # type: ignore[no-any-return]


class AggregatingStateDescriptor(StateDescriptor[AggregatingState[IN, OUT]], Generic[IN, ACC, OUT]):
    """Descriptor of an :class:`AggregatingState`.

    Args:
        name: Name of the state, unique within the operator.
        agg_function: An object with ``create_accumulator``, ``add``, ``get_result`` and ``merge`` methods.
        state_type_info: Type of the accumulator.
    """

    kind = "aggregating"

    def __init__(self, name: str, agg_function: Aggregates[IN, ACC, OUT], state_type_info: TypeSpec) -> None:
        super().__init__(name, state_type_info)
        missing = [m for m in ("create_accumulator", "add", "get_result") if not hasattr(agg_function, m)]
        if missing:
            raise BadStateType(
                f"State '{name}': {type(agg_function).__name__} is not an AggregateFunction: it lacks "
                f"{', '.join(missing)}."
            )
        self._function = agg_function

    def get_agg_function(self) -> Any:
        """Return the aggregate function."""
        return self._function
