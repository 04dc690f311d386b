"""Validation of the arguments that users pass to the API."""

from __future__ import annotations

import inspect
from typing import Any

from penstock.checkpoint.lineages import SharedStorage
from penstock.common.configuration import Configuration
from penstock.common.options.program import AUTO_GENERATE_UIDS
from penstock.common.source_locations import warn
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.driver_sinks import CollectSink
from penstock.datastream.functions import (
    Function,
    KeyedProcessFunction,
    KeySelector,
    Partitioner,
    ProcessFunction,
    ReduceFunction,
)
from penstock.errors import PenstockError
from penstock.graph.logical import GraphError, LogicalGraph
from penstock.runtime.checkpointed import holds_operator_state
from penstock.runtime.operators import describe
from penstock.state.serializers import serializer_for


def check_function(func: Any, kind: type[Function], method: str) -> None:
    """Raise GraphError if a value cannot be the function of an operator, such as a class instead of an instance."""
    if isinstance(func, type) and issubclass(func, Function):
        raise GraphError(
            f"{method} received the class {func.__name__} instead of an instance.",
            fix=f"Write {method}({func.__name__}()).",
        )
    if isinstance(func, Function) and not isinstance(func, kind):
        raise GraphError(
            f"{method} needs a {kind.__name__} or a function, "
            f"not the {type(func).__bases__[0].__name__} {describe(func)}."
        )
    if isinstance(func, Function):
        _check_open(func)
    if kind in (KeySelector, Partitioner, ReduceFunction):
        check_stateless(func)
    if not isinstance(func, kind) and not callable(func):
        raise GraphError(f"{method} needs a {kind.__name__} or a function, not {type(func).__name__}.")
    if inspect.iscoroutinefunction(func):
        raise GraphError(
            f"{method} received the async function {describe(func)}, which returns coroutines instead of results.",
            fix=f"Write AsyncDataStream.ordered_wait(ds, {describe(func)}, Time.seconds(10)), or make it a plain def.",
        )


def check_process_function(func: Any, *, keyed: bool) -> None:
    """Raise GraphError if a value cannot be the function of `process`, such as a ProcessFunction on a keyed stream."""
    if keyed and isinstance(func, ProcessFunction):
        raise GraphError(
            f"{describe(func)} is a ProcessFunction; a keyed stream needs a KeyedProcessFunction.",
            fix=f"Write `class {type(func).__name__}(KeyedProcessFunction)`.",
        )
    if not keyed and isinstance(func, KeyedProcessFunction):
        raise GraphError(
            f"{describe(func)} is a KeyedProcessFunction, but the stream is not keyed.",
            fix="Call key_by(...) before process.",
        )
    check_function(func, KeyedProcessFunction if keyed else ProcessFunction, "process")


def check_watermark_strategy(strategy: Any) -> None:
    """Raise GraphError if ``assign_timestamps_and_watermarks`` cannot accept the strategy."""
    if not isinstance(strategy, WatermarkStrategy):
        raise GraphError(
            f"assign_timestamps_and_watermarks needs a WatermarkStrategy, not {type(strategy).__name__}.",
            fix="Start with WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(10)).",
        )


def check_same_environment(first: object, second: object) -> None:
    """Raise GraphError unless the streams to merge belong to the same environment."""
    if first is not second:
        raise GraphError(
            "Only streams of the same environment can be merged with union.",
            fix="Create all streams from one env = StreamExecutionEnvironment.get_execution_environment().",
        )


def _check_open(func: Function) -> None:
    """Refuse an ``open`` method that Penstock cannot call."""
    if inspect.iscoroutinefunction(func.open):
        raise GraphError(
            f"{describe(func)}.open is an async function, which would never run.",
            fix="Make it a plain method: def open(self, runtime_context).",
        )
    try:
        inspect.signature(func.open).bind(None)
    except TypeError:
        raise GraphError(
            f"{describe(func)}.open{inspect.signature(func.open)} cannot take the runtime context.",
            fix="Write def open(self, runtime_context).",
        ) from None


def warn_of_missing_sinks(graph: LogicalGraph) -> None:
    """Warn about streams that do not end in a sink: they are computed, but their results are discarded."""
    read = {edge.node for node in graph.nodes.values() for edge in node.inputs}
    ends = [node for node in graph.nodes.values() if node.id not in read and not node.is_sink]
    if not ends:
        return
    names = ", ".join(f"'{node.name}'" + (f" (line {node.location.line})" if node.location else "") for node in ends)
    warn(
        f"No sink reads the results of these operators, so they are discarded: {names}. Add a sink to each, such as "
        f"stream.print() or stream.sink_to(...)."
    )


def require_uids(graph: LogicalGraph, configuration: Configuration) -> None:
    """Refuse operators without a uid if the settings require uids."""
    if configuration.get(AUTO_GENERATE_UIDS):
        return
    collecting = {uid for uid, sink in graph.sinks().items() if isinstance(sink, CollectSink)}
    without = [node.name for node in graph.nodes.values() if node.given_uid is None and node.uid not in collecting]
    if without:
        names = ", ".join(f"'{name}'" for name in without)
        raise GraphError(
            f"{AUTO_GENERATE_UIDS.key} is false, but these operators have no uid: {names}. "
            f"Set one on each: stream.uid('name')."
        )


def warn_of_derived_uids(graph: LogicalGraph, root: SharedStorage | None) -> None:
    """Warn about state under a derived uid if the checkpoints at ``root`` outlive the driver."""
    nodes = [
        node
        for node in graph.nodes.values()
        if node.given_uid is None and node.operator is not None and node.operator.keyed
    ]
    if nodes and root is not None:
        names = ", ".join(f"'{node.name}' ({node.uid})" for node in nodes)
        warn(
            f"These operators hold state but have no uid, so one is derived from the structure of the program: "
            f"{names}. If the program changes, their state cannot be restored. Set a uid on each: "
            f"stream.process(...).uid('name')."
        )


def check_stateless(func: Any) -> None:
    """Raise GraphError for operator state in a function that is only part of an operator or exchange."""
    if holds_operator_state(func):
        raise GraphError(
            f"{describe(func)} holds operator state, but it is not an operator, so checkpoints cannot include it.",
            fix="Keep the state in a map, flat_map or process function before or after it.",
        )


def as_declared(records: list[Any], type_info: Any) -> list[Any]:
    """Convert the records of a collection as an exchange would: an int declared as DOUBLE becomes a float.

    Raises:
        GraphError: If a record is not of the declared type.
    """
    serializer = serializer_for(type_info)
    converted = []
    for position, record in enumerate(records):
        try:
            converted.append(serializer.decode(serializer.encode(record)))
        except PenstockError as error:
            raise GraphError(f"from_collection: record {position} is not of the declared type. {error}") from None
    return converted
