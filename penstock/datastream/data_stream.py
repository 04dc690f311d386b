"""Streams: each method adds an operator to the program and returns the stream of its results."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, overload

from penstock.absent import explain_absent
from penstock.common.source_locations import calling_location
from penstock.common.type_parameters import K, R, T_co, U, W
from penstock.common.typeinfo import Types
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.driver_sinks import CollectSink, PrintSink
from penstock.connectors.generic_write_ahead import GenericWriteAheadSink
from penstock.connectors.sink import Sink
from penstock.connectors.two_phase import TwoPhaseCommitSink
from penstock.datastream import hints
from penstock.datastream.aggregations import projection
from penstock.datastream.broadcast import BroadcastConnectedStream, BroadcastStream
from penstock.datastream.checks import (
    check_function,
    check_process_function,
    check_same_environment,
    check_watermark_strategy,
)
from penstock.datastream.connected import ConnectedStreams
from penstock.datastream.declaration import Declaration
from penstock.datastream.functions import (
    FilterFunction,
    FlatMapFunction,
    KeySelector,
    MapFunction,
    Partitioner,
    ProcessFunction,
    SinkFunction,
)
from penstock.datastream.joins import IntervalJoin
from penstock.datastream.side_outputs import side_output
from penstock.datastream.sinks import AnySinkFunction, CloseableIterator, DataStreamSink
from penstock.datastream.two_phase_commit import TwoPhaseCommitSinkFunction
from penstock.datastream.window_joins import CoGroupedStreams, JoinedStreams
from penstock.datastream.windowed import AllWindowedStream, WindowedStream, count_windows, time_windows
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
from penstock.runtime.context import FunctionContext
from penstock.runtime.map_operators import FilterOperator, FlatMapOperator, MapOperator
from penstock.runtime.operators import Operator, describe
from penstock.runtime.output_tag import OutputTag, SideOutput
from penstock.runtime.process_operators import ProcessOperator
from penstock.runtime.sink_operators import SinkFunctionOperator, SinkOperator
from penstock.runtime.windows.assigners import Length, WindowAssigner
from penstock.runtime.windows.window import CountWindow, TimeWindow
from penstock.state.descriptors import MapStateDescriptor
from penstock.state.serializers import Hinted

if TYPE_CHECKING:
    from penstock.common.execution_config import ExecutionConfig
    from penstock.datastream.environment import StreamExecutionEnvironment
    from penstock.spark.types import StructType
    from penstock.spark.writing import ToSpark

_FORWARD = Partitioning(FORWARD)


class DataStream(Declaration, Generic[T_co]):
    """A stream of records."""

    _map_operator: ClassVar[type[MapOperator]] = MapOperator
    _flat_map_operator: ClassVar[type[FlatMapOperator]] = FlatMapOperator
    _filter_operator: ClassVar[type[FilterOperator]] = FilterOperator

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

    def name(self, name: str) -> Self:
        """Name the operator, for plans, errors and the web page."""
        self._declared.set_name(name)
        return self

    def uid(self, uid: str) -> Self:
        """Set the operator's identity: a changed program finds the operator's state by it."""
        self._declared.set_uid(uid)
        if self._node.of_source:
            self._node.set_uid(f"{uid} watermarks")
        return self

    def set_max_parallelism(self, max_parallelism: int) -> Self:
        """Set the number of key groups of the operator: the largest parallelism it can ever have."""
        self._node.set_max_parallelism(max_parallelism)
        return self

    def get_execution_config(self) -> ExecutionConfig:
        """Return the execution settings of the environment."""
        return self._env.get_config()

    def force_non_parallel(self) -> Self:
        """Set the parallelism of the operator to 1."""
        return self.set_parallelism(1)

    def get_type(self) -> Any:
        """The type of the records: as declared, or else as the function's annotation says, or else any object."""
        known = self._type()
        return (known.spec if isinstance(known, Hinted) else known) or Types.PICKLED_BYTE_ARRAY()

    # -- transformations -------------------------------------------------------------------------------------------

    def map(self, func: Callable[[T_co], R] | MapFunction[T_co, R], output_type: Any = None) -> DataStream[R]:
        """Apply a function to each record; its return value is the result.

        On a keyed stream, the `open` method of a `MapFunction` has access to keyed state.

        Args:
            func: A function of one record, or a `MapFunction`.
            output_type: The type of the results; without it, the function's annotation is a hint.
        """
        check_function(func, MapFunction, "map")
        return self._add("Map", self._map_operator(func), output_type or hints.returned(func, "map"))

    def flat_map(
        self, func: Callable[[T_co], Iterable[R] | None] | FlatMapFunction[T_co, R], output_type: Any = None
    ) -> DataStream[R]:
        """Apply a function to each record; it gives any number of results.

        On a keyed stream, the `open` method of a `FlatMapFunction` has access to keyed state.

        Args:
            func: A generator function, a function that returns an iterable or None, or a `FlatMapFunction`.
            output_type: The type of the results; without it, the function's annotation is a hint.
        """
        check_function(func, FlatMapFunction, "flat_map")
        return self._add("Flat Map", self._flat_map_operator(func), output_type or hints.yielded(func, "flat_map"))

    def filter(self, func: Callable[[T_co], bool] | FilterFunction[T_co]) -> DataStream[T_co]:
        """Keep the records for which a function returns a true value.

        On a keyed stream, the `open` method of a `FilterFunction` has access to keyed state.
        """
        check_function(func, FilterFunction, "filter")
        return self._add("Filter", self._filter_operator(func), self._type())

    def process(
        self,
        func: ProcessFunction[T_co, R] | Callable[[T_co, FunctionContext], Iterable[R | SideOutput] | None],
        output_type: Any = None,
    ) -> DataStream[R]:
        """Apply a function with access to time and side outputs.

        Args:
            func: A `ProcessFunction`, or a generator function of a record and its context.
            output_type: The type of the results; without it, the function's annotation is a hint.
        """
        check_process_function(func, keyed=False)
        return self._add("Process", ProcessOperator(func), output_type or hints.yielded(func, "process_element"))

    def key_by(
        self, key_selector: Callable[[T_co], K] | KeySelector[T_co, K], key_type: Any = None
    ) -> KeyedStream[T_co, K]:
        """Partition by key. Keys may be numbers, strings, bytes, None, dates, tuples of these: see docs/write/keys.md."""
        check_function(key_selector, KeySelector, "key_by")
        keyed = Partitioning(KEY, key_selector, key_type, location=calling_location())
        return KeyedStream(self._env, [replace(edge, partitioning=keyed) for edge in self._inputs], self)

    def union(self, *streams: DataStream[U]) -> DataStream[T_co | U]:
        """All records of these streams, in no order between them."""
        inputs = list(self._inputs)
        for stream in streams:
            check_same_environment(self._env, stream._env)
            inputs += stream._inputs
        return DataStream(self._env, inputs)

    @overload
    def connect(self, ds: DataStream[U]) -> ConnectedStreams[T_co, U]: ...

    @overload
    def connect(self, ds: BroadcastStream[U]) -> BroadcastConnectedStream[T_co, U]: ...

    def connect(
        self, ds: DataStream[U] | BroadcastStream[U]
    ) -> ConnectedStreams[T_co, U] | BroadcastConnectedStream[T_co, U]:
        """This stream and another, of any other type, seen by one function."""
        if isinstance(ds, BroadcastStream):
            return BroadcastConnectedStream(self, ds, ds.broadcast_state_descriptors)
        return ConnectedStreams(self, ds)

    def interval_join(self, other: DataStream[U]) -> IntervalJoin[T_co, U]:
        """Pairs of records with equal keys whose event times are near each other: say how near with `between`.

        Both streams must be keyed.
        """
        return IntervalJoin(self, other)

    def join(self, other: DataStream[U]) -> JoinedStreams[T_co, U]:
        """Pairs of records with equal keys in one window: go on with where, equal_to, window and apply."""
        return JoinedStreams(self, other)

    def co_group(self, other: DataStream[U]) -> CoGroupedStreams[T_co, U]:
        """All records with equal keys in one window: go on with where, equal_to, window and apply."""
        return CoGroupedStreams(self, other)

    def get_side_output(self, output_tag: OutputTag[U]) -> DataStream[U]:
        """What the function of this operator yields as `output_tag, value`; of a source, its dead letters."""
        if not isinstance(output_tag, OutputTag):
            raise GraphError(f"get_side_output needs an OutputTag, not {type(output_tag).__name__}.")
        return DataStream(self._env, [side_output(self._env._graph, self._node, output_tag)])

    def assign_timestamps_and_watermarks(self, watermark_strategy: WatermarkStrategy) -> DataStream[T_co]:
        """Give each record its event time, and say how far event time has come.

        Best done right behind the source: there each split has a watermark of its own.
        """
        check_watermark_strategy(watermark_strategy)
        return self._add("Timestamps/Watermarks", TimestampsOperator(watermark_strategy), self._type())

    # -- windows -------------------------------------------------------------------------------------------------------

    def window_all(self, window_assigner: WindowAssigner[Any, W]) -> AllWindowedStream[T_co, W]:
        """Windows over all records, in one subtask; `key_by(...).window(...)` works in parallel."""
        return AllWindowedStream(self, window_assigner)

    def time_window_all(self, size: Length, slide: Length | None = None) -> AllWindowedStream[T_co, TimeWindow]:
        """Windows of event time over all records, in one subtask."""
        return AllWindowedStream(self, time_windows(size, slide))

    def count_window_all(self, size: int, slide: int = 0) -> AllWindowedStream[T_co, CountWindow]:
        """Windows of so many records, in one subtask."""
        return AllWindowedStream(self, count_windows(size, slide))

    # -- where records go next -----------------------------------------------------------------------------------------

    def rebalance(self) -> DataStream[T_co]:
        """To the subtasks of the next operator one after the other."""
        return self._partitioned(Partitioning(REBALANCE))

    def rescale(self) -> DataStream[T_co]:
        """One after the other among a share of the next operator's subtasks: fewer channels than rebalance."""
        return self._partitioned(Partitioning(RESCALE))

    def shuffle(self) -> DataStream[T_co]:
        """Evenly, in no order to rely on; the same at each attempt."""
        return self._partitioned(Partitioning(SHUFFLE))

    def forward(self) -> DataStream[T_co]:
        """To the subtask of the same number; the next operator must have the same parallelism."""
        return self._partitioned(Partitioning(FORWARD, explicit=True))

    @overload
    def broadcast(self) -> DataStream[T_co]: ...

    @overload
    def broadcast(
        self,
        broadcast_state_descriptor: MapStateDescriptor,
        *other_broadcast_state_descriptors: MapStateDescriptor,
    ) -> BroadcastStream[T_co]: ...

    def broadcast(
        self,
        broadcast_state_descriptor: MapStateDescriptor | None = None,
        *other_broadcast_state_descriptors: MapStateDescriptor,
    ) -> DataStream[T_co] | BroadcastStream[T_co]:
        """Send every record to every subtask of the next operator.

        With descriptors, the result is to be connected to another stream, by a function that keeps it in states of
        these names and types: docs/write/operator-state.md.
        """
        stream = self._partitioned(Partitioning(BROADCAST))
        if broadcast_state_descriptor is None:
            return stream
        return BroadcastStream(stream, [broadcast_state_descriptor, *other_broadcast_state_descriptors])

    def global_(self) -> DataStream[T_co]:
        """Every record to the first subtask of the next operator."""
        return self._partitioned(Partitioning(GLOBAL))

    def partition_custom(
        self,
        partitioner: Callable[[K, int], int] | Partitioner[K],
        key_selector: Callable[[T_co], K] | KeySelector[T_co, K],
    ) -> DataStream[T_co]:
        """To the subtask that `partitioner(key, number of subtasks)` names."""
        check_function(partitioner, Partitioner, "partition_custom")
        check_function(key_selector, KeySelector, "partition_custom")
        return self._partitioned(Partitioning(CUSTOM, key_selector, partitioner=partitioner))

    def _partitioned(self, partitioning: Partitioning) -> DataStream[T_co]:
        partitioning = replace(partitioning, location=calling_location())
        return DataStream(self._env, [replace(edge, partitioning=partitioning) for edge in self._inputs])

    def start_new_chain(self) -> Self:
        """Begin a new chain with this operator."""
        self._node.start_new_chain()
        return self

    def project(self, *field_indexes: int) -> DataStream[Any]:
        """These fields of tuples, lists or Rows, in this order."""
        return self._add("Projection", MapOperator(projection(field_indexes)), None)

    # -- ends ------------------------------------------------------------------------------------------------------

    def print(self, sink_identifier: str | None = None) -> DataStreamSink:
        """Print every record, in the driver, when its epoch is complete."""
        return self._end("Print to Std. Out", PrintSink(sink_identifier))

    def sink_to(self, sink: Sink) -> DataStreamSink:
        """End the stream in a sink."""
        if not isinstance(sink, Sink):
            raise GraphError(f"sink_to needs a Sink, not {type(sink).__name__}.")
        return self._end(type(sink).__name__, sink)

    def add_sink(self, sink_func: AnySinkFunction[T_co]) -> DataStreamSink:
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

    @overload
    def execute_and_collect(
        self, job_execution_name: str | None = None, limit: None = None
    ) -> CloseableIterator[T_co]: ...

    @overload
    def execute_and_collect(self, job_execution_name: str | None = None, *, limit: int) -> list[T_co]: ...

    @overload
    def execute_and_collect(self, job_execution_name: str | None, limit: int) -> list[T_co]: ...

    def execute_and_collect(
        self, job_execution_name: str | None = None, limit: int | None = None
    ) -> CloseableIterator[T_co] | list[T_co]:
        """Run the program and give this stream's records: an iterator to be closed, or a list if `limit` is given."""
        sink = CollectSink()
        self._end("Collect", sink)
        client = self._env.execute_async(job_execution_name or "collect")
        results: CloseableIterator[T_co] = CloseableIterator(client, sink)
        return results if limit is None else results.take(limit)

    # -- inside ----------------------------------------------------------------------------------------------------

    def _type(self) -> Any:
        nodes = self._env._graph.nodes
        types = [nodes[edge.node].output_type if edge.tag is None else edge.tag.declared for edge in self._inputs]
        return types[0] if all(known == types[0] for known in types) else None

    def _add(
        self, name: str, operator: Operator, output_type: Any, inputs: list[Input] | None = None
    ) -> DataStream[Any]:
        node = self._env._graph.add(name, inputs=inputs or self._inputs, operator=operator, output_type=output_type)
        return DataStream(self._env, [Input(node.id, _FORWARD)])

    def _end(self, name: str, sink: Sink) -> DataStreamSink:
        node = self._env._graph.add(name, inputs=self._inputs, operator=SinkOperator(sink.for_type(self._type())))
        return DataStreamSink(self._env, node)


# PyFlink has all of them here. At the end, because KeyedStream extends DataStream.
from penstock.datastream.keyed_stream import KeyedStream  # noqa: E402

__all__ = [
    "AllWindowedStream",
    "BroadcastConnectedStream",
    "BroadcastStream",
    "CloseableIterator",
    "ConnectedStreams",
    "DataStream",
    "DataStreamSink",
    "KeyedStream",
    "WindowedStream",
]

explain_absent(__name__)
