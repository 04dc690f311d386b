"""The five getters of keyed state, shared by all contexts that provide it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, TypeVar

from penstock.common.type_parameters import ACC, K, T, V
from penstock.state.descriptors import (
    AggregatingState,
    AggregatingStateDescriptor,
    ListState,
    ListStateDescriptor,
    MapState,
    MapStateDescriptor,
    ReducingState,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueState,
    ValueStateDescriptor,
)

IN = TypeVar("IN")
OUT = TypeVar("OUT")
S = TypeVar("S")


class StateGetters(ABC):
    """Provides the keyed states of the current key. Call the getters in ``open``."""

    def get_state(self, state_descriptor: ValueStateDescriptor[T]) -> ValueState[T]:
        """Return the value state of this descriptor."""
        return self._registered(state_descriptor, ValueStateDescriptor)  # type: ignore[no-any-return]

    def get_list_state(self, state_descriptor: ListStateDescriptor[T]) -> ListState[T]:
        """Return the list state of this descriptor."""
        return self._registered(state_descriptor, ListStateDescriptor)  # type: ignore[no-any-return]

    def get_map_state(self, state_descriptor: MapStateDescriptor[K, V]) -> MapState[K, V]:
        """Return the map state of this descriptor."""
        return self._registered(state_descriptor, MapStateDescriptor)  # type: ignore[no-any-return]

    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor[T]) -> ReducingState[T]:
        """Return the reducing state of this descriptor."""
        return self._registered(state_descriptor, ReducingStateDescriptor)  # type: ignore[no-any-return]

    def get_aggregating_state(
        self, state_descriptor: AggregatingStateDescriptor[IN, ACC, OUT]
    ) -> AggregatingState[IN, OUT]:
        """Return the aggregating state of this descriptor."""
        return self._registered(state_descriptor, AggregatingStateDescriptor)  # type: ignore[no-any-return]

    def _registered(self, descriptor: Any, kind: type[StateDescriptor]) -> Any:
        if not isinstance(descriptor, kind):
            raise TypeError(
                f"expected {kind.__name__}, got {type(descriptor).__name__}: use the getter for that kind of state"
            )
        return self._register(descriptor)

    @abstractmethod
    def _register(self, descriptor: StateDescriptor) -> Any:
        """Return the state of this descriptor, or raise an error if there cannot be one."""
