"""The implementation class of each kind of keyed state."""

from __future__ import annotations

from typing import Any

from penstock.state import descriptors
from penstock.state.keyed_collections import KeyedList, KeyedMap
from penstock.state.keyed_values import KeyedAggregating, KeyedReducing, KeyedValue
from penstock.state.timeline import Timeline, TimelineDescriptor

__all__ = ["STATES"]

STATES: dict[type[descriptors.StateDescriptor], Any] = {
    descriptors.ValueStateDescriptor: KeyedValue,
    descriptors.ListStateDescriptor: KeyedList,
    descriptors.MapStateDescriptor: KeyedMap,
    descriptors.ReducingStateDescriptor: KeyedReducing,
    descriptors.AggregatingStateDescriptor: KeyedAggregating,
    TimelineDescriptor: Timeline,
}
