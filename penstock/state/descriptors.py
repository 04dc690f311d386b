"""State descriptors and the interfaces of keyed state, re-exported to users by `penstock.datastream.state`."""

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
    """A piece of state of the current key."""

    @abstractmethod
    def clear(self) -> None:
        """Remove everything this state holds for the current key."""


class ValueState(State, Generic[T]):
    """One value for each key."""

    @abstractmethod
    def value(self) -> T | None:
        """The value of the current key, or None. What is returned is the caller's own: changing it changes nothing."""

    @abstractmethod
    def update(self, value: T | None) -> None:
        """Replace the value of the current key as it is now; None clears it."""


class AppendingState(State, Generic[IN, OUT]):
    """State that values are added to, and that gives what it made of them."""

    @abstractmethod
    def get(self) -> OUT:
        """What the values of the current key make."""

    @abstractmethod
    def add(self, value: IN) -> None:
        """Add a value to those of the current key."""


class MergingState(AppendingState[IN, OUT]):
    """An appending state whose contents can be merged with those of another, as windows are."""


class ReducingState(MergingState[T, T]):
    """One value for each key, made of all added ones by a reduce function."""


class AggregatingState(MergingState[IN, OUT]):
    """One accumulator for each key; gives its result."""


class ListState(MergingState[T, Iterable[T]]):
    """A list for each key. Adding to it does not read it."""

    @abstractmethod
    def update(self, values: list[T]) -> None:
        """Replace the whole list; an empty one clears it."""

    @abstractmethod
    def add_all(self, values: list[T]) -> None:
        """Append values to the list of the current key."""

    def __iter__(self) -> Iterator[T]:
        return iter(self.get())


class _ReadableMap(State, Generic[K, V]):
    """What every map can be asked."""

    @abstractmethod
    def get(self, key: K) -> V | None:
        """The value of an entry, or None."""

    @abstractmethod
    def contains(self, key: K) -> bool:
        """Whether there is an entry."""

    @abstractmethod
    def items(self) -> Iterable[tuple[K, V]]:
        """Entries in the order of their encoded keys, the same in every subtask and whatever the epochs."""

    @abstractmethod
    def keys(self) -> Iterable[K]:
        """The keys, in the order of `items`."""

    @abstractmethod
    def values(self) -> Iterable[V]:
        """The values, in the order of `items`."""

    @abstractmethod
    def is_empty(self) -> bool:
        """Whether there is no entry."""

    def __getitem__(self, key: K) -> V | None:
        return self.get(key)

    def __contains__(self, key: K) -> bool:
        return self.contains(key)

    def __iter__(self) -> Iterator[K]:
        return iter(self.keys())


class _WritableMap(_ReadableMap[K, V]):
    """How a map that is not read-only is changed."""

    @abstractmethod
    def put(self, key: K, value: V) -> None:
        """Set an entry."""

    @abstractmethod
    def put_all(self, dict_value: Mapping[K, V]) -> None:
        """Set all entries of a mapping; others stay."""

    @abstractmethod
    def remove(self, key: K) -> None:
        """Remove an entry, if it is there."""

    def __setitem__(self, key: K, value: V) -> None:
        self.put(key, value)

    def __delitem__(self, key: K) -> None:
        self.remove(key)


class MapState(_WritableMap[K, V]):
    """A map for each key. Each entry is read and written alone."""


class ReadOnlyBroadcastState(_ReadableMap[K, V]):
    """A broadcast state where it may only be read. What is returned is the caller's own, and may be changed."""


class BroadcastState(_WritableMap[K, V], ReadOnlyBroadcastState[K, V]):
    """A map that every subtask of an operator has for itself. It is up to the function that all have the same."""


class BadStateType(PenstockError):
    """The declared type of a state has no encoder.

    Operator action: declare a type the encoders know, or `Types.PICKLED_BYTE_ARRAY()` to accept pickling.
    """


class StateDescriptor(ABC, Generic[S_co]):
    """Names a state and its type. A type is a `Types.…` or a Python type hint; both mean the same encoder."""

    ttl_config: StateTtlConfig | None = None

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
        """Write values as `spec` says, and pickle those that are not of it: an annotation does not bind a program."""
        self.serializer = OrPickled(spec)

    def enable_time_to_live(self, ttl_config: StateTtlConfig) -> None:
        """Let values expire: docs/write/state-ttl.md. Call it before the state is asked for with this descriptor."""
        if not isinstance(ttl_config, StateTtlConfig):
            raise TypeError(f"expected a StateTtlConfig, got {type(ttl_config).__name__}: build() makes one")
        self.ttl_config = ttl_config

    def schema(self) -> str:
        """What snapshots remember of the type."""
        return f"{self.kind} {self.serializer.schema()}"

    kind = "state"

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        # Where it was made as ValueStateDescriptor[int](...), Python sets __orig_class__, which is for type checkers.
        for derived in ("serializer", "key_serializer", "__orig_class__"):
            state.pop(derived, None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.serializer = self._serializer(self.type_info)


class ValueStateDescriptor(StateDescriptor[ValueState[T]]):
    """Describes a ValueState."""

    kind = "value"

    @overload
    def __init__(self, name: str, value_type_info: TypeOf[T], default_value: T | None = None) -> None: ...

    @overload
    def __init__(self, name: str, value_type_info: TypeSpec, default_value: Any = None) -> None: ...

    def __init__(self, name: str, value_type_info: Any, default_value: Any = None) -> None:
        """`default_value` is what a key without a value has. It is not stored, and may change with the program."""
        super().__init__(name, value_type_info)
        self.default_value = default_value
        if default_value is not None:
            try:
                self.default()
            except PenstockError as error:
                raise BadStateType(f"State '{name}', default value: {error}") from None

    def default(self) -> Any:
        """The default as the caller's own: changing it changes nothing."""
        return self.serializer.decode(self.serializer.encode(self.default_value))


class ListStateDescriptor(StateDescriptor[ListState[T]]):
    """Describes a ListState by the type of its elements."""

    kind = "list"

    @overload
    def __init__(self, name: str, elem_type_info: TypeOf[T]) -> None: ...

    @overload
    def __init__(self, name: str, elem_type_info: TypeSpec) -> None: ...

    def __init__(self, name: str, elem_type_info: Any) -> None:
        super().__init__(name, elem_type_info)


class MapStateDescriptor(StateDescriptor[MapState[K, V]]):
    """Describes a MapState by the types of its keys and values."""

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
        """What snapshots remember of the types."""
        return f"map {self.key_serializer.schema()} -> {self.serializer.schema()}"

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.key_serializer = self._serializer(self.key_type_info)


class Reduces(Protocol[T]):
    """What a ReduceFunction has."""

    def reduce(self, value1: T, value2: T, /) -> T:
        """One value of two."""


class Aggregates(Protocol[IN, ACC, OUT]):
    """What a state needs of an AggregateFunction."""

    def create_accumulator(self) -> ACC:
        """An accumulator that holds no value."""

    def add(self, value: IN, accumulator: ACC, /) -> ACC:
        """The accumulator with one value more."""

    def get_result(self, accumulator: ACC, /) -> OUT:
        """What an accumulator amounts to."""


class ReducingStateDescriptor(StateDescriptor[ReducingState[T]]):
    """Describes a ReducingState. `reduce_function` is a function of two values, or has a `reduce`."""

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
        """Return the reduce function as it was given."""
        return self._function

    def reducer(self) -> Callable[[Any, Any], Any]:
        """Return the reduce function as a plain function."""
        function = self._function
        return function.reduce if hasattr(function, "reduce") else function  # type: ignore[no-any-return]


class AggregatingStateDescriptor(StateDescriptor[AggregatingState[IN, OUT]], Generic[IN, ACC, OUT]):
    """`agg_function` has create_accumulator, add, get_result and merge; the type is that of its accumulator."""

    kind = "aggregating"

    def __init__(self, name: str, agg_function: Aggregates[IN, ACC, OUT], state_type_info: TypeSpec) -> None:
        super().__init__(name, state_type_info)
        missing = [m for m in ("create_accumulator", "add", "get_result") if not hasattr(agg_function, m)]
        if missing:
            raise BadStateType(
                f"State '{name}': {type(agg_function).__name__} is no AggregateFunction, it lacks {', '.join(missing)}."
            )
        self._function = agg_function

    def get_agg_function(self) -> Any:
        """Return the aggregate function."""
        return self._function
