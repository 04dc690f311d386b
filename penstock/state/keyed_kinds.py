"""Which class each kind of keyed state has."""

from __future__ import annotations

from typing import Any

from penstock.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from penstock.state.keyed_collections import KeyedList, KeyedMap
from penstock.state.keyed_values import KeyedAggregating, KeyedReducing, KeyedValue
from penstock.state.timeline import Timeline, TimelineDescriptor

__all__ = ["STATES"]

STATES: dict[type[StateDescriptor], Any] = {
    ValueStateDescriptor: KeyedValue,
    ListStateDescriptor: KeyedList,
    MapStateDescriptor: KeyedMap,
    ReducingStateDescriptor: KeyedReducing,
    AggregatingStateDescriptor: KeyedAggregating,
    TimelineDescriptor: Timeline,
}
