"""Streams: each method adds an operator to the program and returns the stream of its results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, overload

from penstock.absent import explain_absent
from penstock.common.names import check_name
from penstock.common.source_locations import calling_location
from penstock.common.typeinfo import Types
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.dead_letters import DeadLetter
from penstock.connectors.driver_sinks import CollectSink, PrintSink
from penstock.connectors.generic_write_ahead import GenericWriteAheadSink
from penstock.connectors.sink import Sink
from penstock.connectors.two_phase import TwoPhaseCommitSink
from penstock.datastream import hints
from penstock.datastream.aggregations import Projection, field_reducer
from penstock.datastream.broadcast import BroadcastConnectedStream, BroadcastStream
from penstock.datastream.checks import check_function, check_positive
from penstock.datastream.connected import ConnectedStreams
from penstock.datastream.functions import (
    FilterFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    Partitioner,
    ProcessFunction,
    ReduceFunction,
    SinkFunction,
)
from penstock.datastream.joins import IntervalJoin
from penstock.datastream.sinks import CloseableIterator, DataStreamSink
from penstock.datastream.two_phase_commit import TwoPhaseCommitSinkFunction
from penstock.datastream.window_joins import CoGroupedStreams, JoinedStreams
from penstock.datastream.windowed import AllWindowedStream, WindowedStream
from penstock.graph.logical import (
    BROADCAST,
    CUSTOM,
    FORWARD,
    GLOBAL,
    KEY,
    REBALANCE,
    RESCALE,
    SHUFFLE,
    GraphError,
    Input,
    Node,
    Partitioning,
)
from penstock.runtime.assigning import TimestampsOperator
from penstock.runtime.joins import IntervalJoinOperator
from penstock.runtime.map_operators import (
    FilterOperator,
    FlatMapOperator,
    KeyedFilterOperator,
    KeyedFlatMapOperator,
    KeyedMapOperator,
    MapOperator,
)
from penstock.runtime.operators import Operator, describe
from penstock.runtime.output_tag import OutputTag
from penstock.runtime.process_operators import CoProcessOperator, ProcessOperator
from penstock.runtime.sink_operators import SinkFunctionOperator, SinkOperator
from penstock.runtime.state_operators import ReduceOperator, WithStateOperator
from penstock.runtime.windows.assigners import (
    Length,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    WindowAssigner,
)
from penstock.runtime.windows.counting import CountSlidingWindowAssigner, CountTumblingWindowAssigner
from penstock.runtime.windows.operator import WindowOperator
from penstock.state.descriptors import MapStateDescriptor, ValueStateDescriptor
from penstock.state.serializers import Hinted

if TYPE_CHECKING:
    from penstock.common.execution_config import ExecutionConfig
    from penstock.datastream.environment import StreamExecutionEnvironment
    from penstock.spark.types import StructType
    from penstock.spark.writing import ToSpark

_FORWARD = Partitioning(FORWARD)


class DataStream:
    """A stream of records."""

    def __init__(self, env: StreamExecutionEnvironment, inputs: list[Input]) -> None:
        self._env = env
        self._edges = inputs
        self._graph = env._graph

    @property
    def _inputs(self) -> list[Input]:
        """What it reads. A stream that is used again after `execute` becomes part of the next program."""
        if self._graph is not self._env._graph:
            self._env._graph.adopt(self._graph, (edge.node for edge in self._edges))
            self._graph = self._env._graph
        return self._edges

    @property
    def _node(self) -> Node:
        if len(self._inputs) != 1:
            raise GraphError("A union is no operator: give name, uid and parallelism to the operator after it.")
        return self._env._graph.nodes[self._inputs[0].node]

    def get_execution_environment(self) -> StreamExecutionEnvironment:
        """Return the environment that the stream belongs to."""
        return self._env

    def get_name(self) -> str:
        """Return the name of the operator that gives the stream."""
        return self._declared.name

    @property
    def _declared(self) -> Node:
        """The operator or source that the user's call made: `from_source` adds one for watermarks to its source."""
        node = self._node
        return self._env._graph.nodes[node.inputs[0].node] if node.of_source else node

    def name(self, name: str) -> DataStream:
        """Name the operator, for plans, errors and the web page."""
        self._declared.name = check_name(name, "The name of an operator", GraphError)
        return self

    def uid(self, uid: str) -> DataStream:
        """The operator's identity: its state is found by it when the program changes."""
        self._declared.given_uid = check_name(uid, "A uid", GraphError)
        if self._node.of_source:
            self._node.given_uid = f"{uid} watermarks"
        return self

    def set_parallelism(self, parallelism: int) -> DataStream:
        """Set the number of subtasks of the operator that gives the stream."""
        check_positive(parallelism, "parallelism")
        if self._node.source is not None:
            raise GraphError(
                f"The parallelism of source '{self._node.name}' is Spark's to choose: "
                f"it has one task per input partition."
            )
        self._node.parallelism = parallelism
        return self

    def set_max_parallelism(self, max_parallelism: int) -> DataStream:
        """Set the number of key groups of the operator: the largest parallelism it can ever have."""
        check_positive(max_parallelism, "max parallelism")
        self._node.max_parallelism = max_parallelism
        return self

    def get_execution_config(self) -> ExecutionConfig:
        """Return the execution settings of the environment."""
        return self._env.get_config()

    def set_description(self, description: str) -> DataStream:
        """Say more of the operator than its name does; shown in the plan."""
        self._node.description = check_name(description, "The description of an operator", GraphError)
        return self

    def force_non_parallel(self) -> DataStream:
        """Set the parallelism of the operator to 1."""
        return self.set_parallelism(1)

    def get_type(self) -> Any:
        """The type of the records: as declared, or else as the function's annotation says, or else any object."""
        known = self._type()
        return (known.spec if isinstance(known, Hinted) else known) or Types.PICKLED_BYTE_ARRAY()

    # -- transformations -------------------------------------------------------------------------------------------

    def map(self, func: Callable[[Any], Any] | MapFunction, output_type: Any = None) -> DataStream:
        """Apply a function to each record; its return value is the result.

        Args:
            func: A function of one record, or a `MapFunction`.
            output_type: The type of the results; without it, the function's annotation is a hint.
        """
        check_function(func, MapFunction, "map")
        return self._add("Map", MapOperator(func), output_type or hints.returned(func, "map"))

    def flat_map(self, func: Callable[[Any], Any] | FlatMapFunction, output_type: Any = None) -> DataStream:
        """Apply a function to each record; it gives any number of results.

        Args:
            func: A generator function, a function that returns an iterable or None, or a `FlatMapFunction`.
            output_type: The type of the results; without it, the function's annotation is a hint.
        """
        check_function(func, FlatMapFunction, "flat_map")
        return self._add("Flat Map", FlatMapOperator(func), output_type or hints.yielded(func, "flat_map"))

    def filter(self, func: Callable[[Any], bool] | FilterFunction) -> DataStream:
        """Keep the records for which a function returns a true value."""
        check_function(func, FilterFunction, "filter")
        return self._add("Filter", FilterOperator(func), self._type())

    def process(self, func: ProcessFunction | Callable[[Any, Any], Any], output_type: Any = None) -> DataStream:
        """Apply a function with access to time and side outputs.

        Args:
            func: A `ProcessFunction`, or a generator function of a record and its context.
            output_type: The type of the results; without it, the function's annotation is a hint.
        """
        if isinstance(func, KeyedProcessFunction):
            raise GraphError(
                f"{describe(func)} is a KeyedProcessFunction, but the stream is not keyed.",
                fix="Call key_by(...) before process.",
            )
        check_function(func, ProcessFunction, "process")
        return self._add("Process", ProcessOperator(func), output_type or hints.yielded(func, "process_element"))

    def key_by(self, key_selector: Callable[[Any], Any] | KeySelector, key_type: Any = None) -> KeyedStream:
        """Partition by key. Keys may be numbers, strings, bytes, None, dates, tuples of these: see docs/keys.md."""
        check_function(key_selector, KeySelector, "key_by")
        keyed = Partitioning(KEY, key_selector, key_type, location=calling_location())
        return KeyedStream(self._env, [replace(edge, partitioning=keyed) for edge in self._inputs], self)

    def union(self, *streams: DataStream) -> DataStream:
        """All records of these streams, in no order between them."""
        inputs = list(self._inputs)
        for stream in streams:
            if stream._env is not self._env:
                raise GraphError(
                    "Only streams of one environment can be united.",
                    fix="Make all streams from one env = StreamExecutionEnvironment.get_execution_environment().",
                )
            inputs += stream._inputs
        return DataStream(self._env, inputs)

    @overload
    def connect(self, ds: DataStream) -> ConnectedStreams: ...

    @overload
    def connect(self, ds: BroadcastStream) -> BroadcastConnectedStream: ...

    def connect(self, ds: DataStream | BroadcastStream) -> ConnectedStreams | BroadcastConnectedStream:
        """This stream and another, of any other type, seen by one function."""
        if isinstance(ds, BroadcastStream):
            return BroadcastConnectedStream(self, ds, ds.broadcast_state_descriptors)
        return ConnectedStreams(self, ds)

    def interval_join(self, other: DataStream) -> IntervalJoin:
        """Pairs of records with equal keys whose event times are near each other: say how near with `between`.

        Both streams must be keyed.
        """
        return IntervalJoin(self, other)

    def join(self, other: DataStream) -> JoinedStreams:
        """Pairs of records with equal keys in one window: go on with where, equal_to, window and apply."""
        return JoinedStreams(self, other)

    def co_group(self, other: DataStream) -> CoGroupedStreams:
        """All records with equal keys in one window: go on with where, equal_to, window and apply."""
        return CoGroupedStreams(self, other)

    def get_side_output(self, output_tag: OutputTag) -> DataStream:
        """What the function of this operator yields as `output_tag, value`; of a source, its dead letters."""
        if not isinstance(output_tag, OutputTag):
            raise GraphError(f"get_side_output needs an OutputTag, not {type(output_tag).__name__}.")
        node = self._node
        if isinstance(node.operator, TimestampsOperator) and len(node.inputs) == 1:
            # It has no side outputs of its own; those of the source before it are meant.
            node = self._env._graph.nodes[node.inputs[0].node]
        if node.source is not None:
            return DataStream(self._env, [_dead_letters(node, output_tag)])
        if not isinstance(node.operator, (ProcessOperator, CoProcessOperator, WindowOperator, IntervalJoinOperator)):
            raise GraphError(
                f"'{node.name}' has no side outputs: only process functions can yield `tag, value`, and only windows "
                f"and interval joins have late data."
            )
        return DataStream(self._env, [Input(node.id, _FORWARD, output_tag)])

    def assign_timestamps_and_watermarks(self, watermark_strategy: WatermarkStrategy) -> DataStream:
        """Give each record its event time, and say how far event time has come.

        Best done right behind the source: there each split has a watermark of its own.
        """
        if not isinstance(watermark_strategy, WatermarkStrategy):
            raise GraphError(
                f"assign_timestamps_and_watermarks needs a WatermarkStrategy, not {type(watermark_strategy).__name__}.",
                fix="Start with WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(10)).",
            )
        return self._add("Timestamps/Watermarks", TimestampsOperator(watermark_strategy), self._type())

    # -- windows -------------------------------------------------------------------------------------------------------

    def window_all(self, window_assigner: WindowAssigner[Any, Any]) -> AllWindowedStream:
        """Windows over all records, in one subtask; `key_by(...).window(...)` works in parallel."""
        return AllWindowedStream(self, window_assigner)

    def time_window_all(self, size: Length, slide: Length | None = None) -> AllWindowedStream:
        """Windows of event time over all records, in one subtask."""
        return AllWindowedStream(self, _time_windows(size, slide))

    def count_window_all(self, size: int, slide: int = 0) -> AllWindowedStream:
        """Windows of so many records, in one subtask."""
        return AllWindowedStream(self, _count_windows(size, slide))

    # -- where records go next -----------------------------------------------------------------------------------------

    def rebalance(self) -> DataStream:
        """To the subtasks of the next operator one after the other."""
        return self._partitioned(Partitioning(REBALANCE))

    def rescale(self) -> DataStream:
        """One after the other among a share of the next operator's subtasks: fewer channels than rebalance."""
        return self._partitioned(Partitioning(RESCALE))

    def shuffle(self) -> DataStream:
        """Evenly, in no order to rely on; the same at each attempt."""
        return self._partitioned(Partitioning(SHUFFLE))

    def forward(self) -> DataStream:
        """To the subtask of the same number; the next operator must have the same parallelism."""
        return self._partitioned(Partitioning(FORWARD, explicit=True))

    @overload
    def broadcast(self) -> DataStream: ...

    @overload
    def broadcast(
        self,
        broadcast_state_descriptor: MapStateDescriptor,
        *other_broadcast_state_descriptors: MapStateDescriptor,
    ) -> BroadcastStream: ...

    def broadcast(
        self,
        broadcast_state_descriptor: MapStateDescriptor | None = None,
        *other_broadcast_state_descriptors: MapStateDescriptor,
    ) -> DataStream | BroadcastStream:
        """Send every record to every subtask of the next operator.

        With descriptors, the result is to be connected to another stream, by a function that keeps it in states of
        these names and types: docs/operator-state.md.
        """
        stream = self._partitioned(Partitioning(BROADCAST))
        if broadcast_state_descriptor is None:
            return stream
        return BroadcastStream(stream, [broadcast_state_descriptor, *other_broadcast_state_descriptors])

    def global_(self) -> DataStream:
        """Every record to the first subtask of the next operator."""
        return self._partitioned(Partitioning(GLOBAL))

    def partition_custom(
        self,
        partitioner: Callable[[Any, int], int] | Partitioner,
        key_selector: Callable[[Any], Any] | KeySelector,
    ) -> DataStream:
        """To the subtask that `partitioner(key, number of subtasks)` names."""
        check_function(partitioner, Partitioner, "partition_custom")
        check_function(key_selector, KeySelector, "partition_custom")
        return self._partitioned(Partitioning(CUSTOM, key_selector, partitioner=partitioner))

    def _partitioned(self, partitioning: Partitioning) -> DataStream:
        partitioning = replace(partitioning, location=calling_location())
        return DataStream(self._env, [replace(edge, partitioning=partitioning) for edge in self._inputs])

    def start_new_chain(self) -> DataStream:
        """Begin a new chain with this operator."""
        self._node.chaining = "head"
        return self

    def disable_chaining(self) -> DataStream:
        """Chain this operator to nothing, before or after it."""
        self._node.chaining = "never"
        return self

    def slot_sharing_group(self, slot_sharing_group: str) -> DataStream:
        """Accepted and shown in the plan; Spark shares cores among all tasks."""
        self._node.slot_sharing_group = check_name(str(slot_sharing_group), "A slot sharing group", GraphError)
        return self

    def project(self, *field_indexes: int) -> DataStream:
        """These fields of tuples, lists or Rows, in this order."""
        if not field_indexes or not all(type(index) is int and index >= 0 for index in field_indexes):
            raise GraphError(f"project takes the positions of fields, from 0 on, not {field_indexes!r}.")
        return self._add("Projection", MapOperator(Projection(field_indexes)), None)

    # -- ends ------------------------------------------------------------------------------------------------------

    def print(self, sink_identifier: str | None = None) -> DataStreamSink:
        """Print every record, in the driver, when its epoch is complete."""
        return self._end("Print to Std. Out", PrintSink(sink_identifier))

    def sink_to(self, sink: Sink) -> DataStreamSink:
        """End the stream in a sink."""
        if not isinstance(sink, Sink):
            raise GraphError(f"sink_to needs a Sink, not {type(sink).__name__}.")
        return self._end(type(sink).__name__, sink)

    def add_sink(
        self, sink_func: SinkFunction | TwoPhaseCommitSinkFunction | GenericWriteAheadSink | Callable[[Any], Any]
    ) -> DataStreamSink:
        """Call a function with every record, at once: again for those of an epoch that is run again.

        What goes into the transactions of a TwoPhaseCommitSinkFunction, or through a GenericWriteAheadSink, is shown
        when its epoch's checkpoint is complete.
        """
        if isinstance(sink_func, TwoPhaseCommitSinkFunction):
            return self._end(type(sink_func).__name__, TwoPhaseCommitSink(sink_func))
        if isinstance(sink_func, GenericWriteAheadSink):
            return self.sink_to(sink_func)
        check_function(sink_func, SinkFunction, "add_sink")
        node = self._env._graph.add(describe(sink_func), inputs=self._inputs, operator=SinkFunctionOperator(sink_func))
        return DataStreamSink(self._env, node)

    def to_spark(self, schema: str | StructType) -> ToSpark:
        """Give rows of this schema to any writer of Spark.

        Call `.format("parquet").save(path)`, `.save_as_table(name)` or `.foreach_epoch(function)` on the result.
        Records can be Rows, tuples, dicts or objects with these fields.
        """
        from penstock.spark.writing import ToSpark

        return ToSpark(self._end, lambda: self._env.spark, schema)

    def execute_and_collect(self, job_execution_name: str | None = None, limit: int | None = None) -> Any:
        """Run the program and give this stream's records: an iterator to be closed, or a list if `limit` is given."""
        sink = CollectSink()
        self._end("Collect", sink)
        results = CloseableIterator(self._env.execute_async(job_execution_name or "collect"), sink)
        if limit is None:
            return results
        with results:
            return [value for value, _ in zip(results, range(limit), strict=False)]

    # -- inside ----------------------------------------------------------------------------------------------------

    def _type(self) -> Any:
        nodes = self._env._graph.nodes
        types = [nodes[edge.node].output_type if edge.tag is None else edge.tag.declared for edge in self._inputs]
        return types[0] if all(known == types[0] for known in types) else None

    def _add(self, name: str, operator: Operator, output_type: Any, inputs: list[Input] | None = None) -> DataStream:
        node = self._env._graph.add(name, inputs=inputs or self._inputs, operator=operator, output_type=output_type)
        return DataStream(self._env, [Input(node.id, _FORWARD)])

    def _end(self, name: str, sink: Sink) -> DataStreamSink:
        node = self._env._graph.add(name, inputs=self._inputs, operator=SinkOperator(sink.for_type(self._type())))
        return DataStreamSink(self._env, node)


class KeyedStream(DataStream):
    """A stream partitioned by key. Its operators may hold keyed state."""

    def __init__(self, env: StreamExecutionEnvironment, inputs: list[Input], origin: DataStream) -> None:
        super().__init__(env, inputs)
        self._origin = origin

    @property
    def _node(self) -> Node:
        raise GraphError("key_by is no operator: give name, uid and parallelism to the operator after it.")

    def map(self, func: Callable[[Any], Any] | MapFunction, output_type: Any = None) -> DataStream:
        """Apply a function to each record, with access to keyed state in its `open` method.

        Args:
            func: A function of one record, or a `MapFunction`.
            output_type: The type of the results; without it, the function's annotation is a hint.
        """
        check_function(func, MapFunction, "map")
        return self._add("Map", KeyedMapOperator(func), output_type or hints.returned(func, "map"))

    def flat_map(self, func: Callable[[Any], Any] | FlatMapFunction, output_type: Any = None) -> DataStream:
        """Apply a function that gives any number of results, with access to keyed state in its `open` method.

        Args:
            func: A generator function, a function that returns an iterable or None, or a `FlatMapFunction`.
            output_type: The type of the results; without it, the function's annotation is a hint.
        """
        check_function(func, FlatMapFunction, "flat_map")
        return self._add("Flat Map", KeyedFlatMapOperator(func), output_type or hints.yielded(func, "flat_map"))

    def filter(self, func: Callable[[Any], bool] | FilterFunction) -> DataStream:
        """Keep the records for which a function returns a true value.

        The `open` method of a `FilterFunction` has access to keyed state.
        """
        check_function(func, FilterFunction, "filter")
        return self._add("Filter", KeyedFilterOperator(func), self._type())

    def process(self, func: KeyedProcessFunction | Callable[[Any, Any], Any], output_type: Any = None) -> DataStream:  # type: ignore[override]
        """Apply a function with keyed state and timers.

        Args:
            func: A `KeyedProcessFunction`, or a generator function of a record and its context.
            output_type: The type of the results; without it, the function's annotation is a hint.
        """
        if isinstance(func, ProcessFunction):
            raise GraphError(
                f"{describe(func)} is a ProcessFunction; a keyed stream needs a KeyedProcessFunction.",
                fix=f"Write `class {type(func).__name__}(KeyedProcessFunction)`.",
            )
        check_function(func, KeyedProcessFunction, "process")
        output_type = output_type or hints.yielded(func, "process_element")
        return self._add("Keyed Process", ProcessOperator(func, keyed=True), output_type)

    def reduce(self, func: Callable[[Any, Any], Any] | ReduceFunction) -> DataStream:
        """A rolling reduce: one result per record."""
        check_function(func, ReduceFunction, "reduce")
        return self._reduce("Reduce", func)

    def sum(self, position_to_sum: int | str = 0) -> DataStream:
        """Give, for each record, the running sum of a field of its key's records."""
        return self._reduce("Sum", field_reducer("sum", position_to_sum))

    def min(self, position_to_min: int | str = 0) -> DataStream:
        """Give, for each record, the running minimum of a field of its key's records."""
        return self._reduce("Min", field_reducer("min", position_to_min))

    def max(self, position_to_max: int | str = 0) -> DataStream:
        """Give, for each record, the running maximum of a field of its key's records."""
        return self._reduce("Max", field_reducer("max", position_to_max))

    def min_by(self, position_to_min_by: int | str = 0) -> DataStream:
        """The record with the least value of the field so far; of equal ones the first."""
        return self._reduce("Min By", field_reducer("min_by", position_to_min_by))

    def max_by(self, position_to_max_by: int | str = 0) -> DataStream:
        """Give, for each record, the record of its key with the largest value in a field so far."""
        return self._reduce("Max By", field_reducer("max_by", position_to_max_by))

    def window(self, window_assigner: WindowAssigner[Any, Any]) -> WindowedStream:
        """Group the records of each key into windows."""
        return WindowedStream(self, window_assigner)

    def time_window(self, size: Length, slide: Length | None = None) -> WindowedStream:
        """Windows of event time: one after the other, or one that begins every `slide`."""
        return WindowedStream(self, _time_windows(size, slide))

    def count_window(self, size: int, slide: int = 0) -> WindowedStream:
        """Windows of `size` records of a key: one after the other, or one that begins every `slide` records."""
        return WindowedStream(self, _count_windows(size, slide))

    def map_with_state(
        self, func: Callable[[Any, Any], tuple[Any, Any]], state_type: Any = None, output_type: Any = None
    ) -> DataStream:
        """`func(value, state or None)` gives (result, new state); None as new state clears it.

        The state's type may be left out where the function's annotations say it: `-> tuple[Result, State]`.
        """
        return self._with_state("map", func, state_type, output_type)

    def flat_map_with_state(
        self, func: Callable[[Any, Any], tuple[Any, Any]], state_type: Any = None, output_type: Any = None
    ) -> DataStream:
        """`func(value, state or None)` gives (results, new state); None as new state clears it."""
        return self._with_state("flat_map", func, state_type, output_type)

    def filter_with_state(self, func: Callable[[Any, Any], tuple[bool, Any]], state_type: Any = None) -> DataStream:
        """`func(value, state or None)` gives (whether to keep the record, new state); None clears it."""
        return self._with_state("filter", func, state_type, self._type())

    def _with_state(self, how: str, func: Any, state_type: Any, output_type: Any) -> DataStream:
        if not callable(func):
            raise GraphError(f"{how}_with_state needs a function of (value, state), not {type(func).__name__}.")
        one, each, state = hints.with_state(func)
        if state_type is None:
            state_type = state
        if state_type is None:
            raise GraphError(
                f"{how}_with_state needs the type of the state, and {describe(func)} has no annotation to tell it: "
                f"give state_type, or annotate the function with -> tuple[Result, State]."
            )
        if not isinstance(state_type, Hinted):
            ValueStateDescriptor("_state", state_type)
        if how != "filter":
            output_type = output_type or (one if how == "map" else each)
        name = f"{how.replace('_', ' ').title()} With State"
        return self._add(name, WithStateOperator(func, how, state_type), output_type)

    def key_by(self, key_selector: Callable[[Any], Any] | KeySelector, key_type: Any = None) -> KeyedStream:
        """Key the stream by something else."""
        return self._origin.key_by(key_selector, key_type)

    def _partitioned(self, partitioning: Partitioning) -> DataStream:
        raise GraphError(
            f"A keyed stream is partitioned by its key; {partitioning.kind} would override it. "
            f"Call it before key_by, or after the keyed operator."
        )

    def project(self, *field_indexes: int) -> DataStream:
        """Keep some fields of each record; the result is not keyed."""
        return self._origin.project(*field_indexes)

    def union(self, *streams: DataStream) -> DataStream:
        """Unite the stream with others; the result is not keyed."""
        return self._origin.union(*(s._origin if isinstance(s, KeyedStream) else s for s in streams))

    def _reduce(self, name: str, func: Any) -> DataStream:
        value_type = self._type()
        if value_type is None or isinstance(value_type, Hinted):
            value_type = hints.returned(func, "reduce") or value_type
        # A stream without a type is one of pickled objects, so its reduced value is one too.
        pickled = value_type is None or (isinstance(value_type, Hinted) and not value_type.pays_in_state())
        operator = ReduceOperator(func, Types.PICKLED_BYTE_ARRAY() if pickled else value_type)
        return self._add(name, operator, value_type)

    def _end(self, name: str, sink: Sink) -> DataStreamSink:
        return self._origin._end(name, sink)

    def add_sink(
        self, sink_func: SinkFunction | TwoPhaseCommitSinkFunction | GenericWriteAheadSink | Callable[[Any], Any]
    ) -> DataStreamSink:
        """End the stream in a sink function, a sink or a plain function."""
        return self._origin.add_sink(sink_func)


def _time_windows(size: Length, slide: Length | None) -> WindowAssigner[Any, Any]:
    return TumblingEventTimeWindows.of(size) if slide is None else SlidingEventTimeWindows.of(size, slide)


def _dead_letters(node: Node, tag: OutputTag) -> Input:
    assert node.source is not None
    asked = node.source.dead_letters
    if asked != tag:
        raise GraphError(
            f"Source '{node.name}' has no side output {tag!r}"
            + (f": its dead letters are {asked!r}." if asked is not None else "."),
            fix=f"Ask for its dead letters: env.from_source(..., dead_letters={tag!r}).",
            locations=(calling_location(), node.location),
        )
    return Input(node.id, _FORWARD, tag if tag.declared is not None else OutputTag(tag.tag_id, DeadLetter))


def _count_windows(size: int, slide: int) -> WindowAssigner[Any, Any]:
    return CountTumblingWindowAssigner(size) if slide == 0 else CountSlidingWindowAssigner(size, slide)


__all__ = [
    "BroadcastConnectedStream",
    "BroadcastStream",
    "CloseableIterator",
    "DataStream",
    "DataStreamSink",
    "KeyedStream",
]

explain_absent(__name__)
