"""Streams: each method adds an operator to the program and returns the stream of its results."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, overload

from penstock.absent import explain_absent
from penstock.common.source_locations import calling_location
from penstock.common.tuning import accept
from penstock.common.type_parameters import K, R, T_co, U, W
from penstock.common.typeinfo import Types
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.sink import Sink
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
from penstock.datastream.environment_tuning import buffer_timeout
from penstock.datastream.functions import (
    FilterFunction,
    FlatMapFunction,
    KeySelector,
    MapFunction,
    ProcessFunction,
)
from penstock.datastream.joins import IntervalJoin
from penstock.datastream.notebook import html_of_stream, text_of_stream
from penstock.datastream.partitioning import PartitionableStream
from penstock.datastream.side_outputs import side_output
from penstock.datastream.sinks import CloseableIterator, DataStreamSink, WritableStream
from penstock.datastream.window_joins import CoGroupedStreams, JoinedStreams
from penstock.datastream.windowed import AllWindowedStream, WindowedStream, count_windows, time_windows
from penstock.graph.logical import (
    FORWARD,
    KEY,
    GraphError,
    Input,
    Node,
    Partitioning,
)
from penstock.runtime.assigning import TimestampsOperator
from penstock.runtime.context import FunctionContext
from penstock.runtime.map_operators import FilterOperator, FlatMapOperator, MapOperator
from penstock.runtime.operators import Operator
from penstock.runtime.output_tag import OutputTag, SideOutput
from penstock.runtime.process_operators import ProcessOperator
from penstock.runtime.sink_operators import SinkOperator
from penstock.runtime.windows.assigners import Length, WindowAssigner
from penstock.runtime.windows.window import CountWindow, TimeWindow
from penstock.state.serializers import Hinted

if TYPE_CHECKING:
    from penstock.common.execution_config import ExecutionConfig
    from penstock.datastream.environment import StreamExecutionEnvironment

_FORWARD = Partitioning(FORWARD)


class DataStream(Declaration, PartitionableStream[T_co], WritableStream[T_co], Generic[T_co]):
    """A stream of records.

    Create one with a source method of ``StreamExecutionEnvironment``, and transform it by chaining methods. Each call
    only adds an operator to the program; ``env.execute()`` runs it.

    Example:
        >>> env.from_collection(["a", "b"]).map(str.upper).print()
    """

    _map_operator: ClassVar[type[MapOperator]] = MapOperator
    _flat_map_operator: ClassVar[type[FlatMapOperator]] = FlatMapOperator
    _filter_operator: ClassVar[type[FilterOperator]] = FilterOperator

    def __init__(self, env: StreamExecutionEnvironment, inputs: list[Input]) -> None:
        self._env = env
        self._edges = inputs
        self._graph = env._graph

    @property
    def _inputs(self) -> list[Input]:
        """The edges that this stream reads.

        A stream that is used again after ``execute`` joins the next program.
        """
        if self._graph is not self._env._graph:
            self._env._graph.adopt(self._graph, (edge.node for edge in self._edges))
            self._graph = self._env._graph
        return self._edges

    @property
    def _node(self) -> Node:
        if len(self._inputs) != 1:
            raise GraphError("A union is not an operator: set name, uid and parallelism on the operator after it.")
        return self._env._graph.nodes[self._inputs[0].node]

    def get_execution_environment(self) -> StreamExecutionEnvironment:
        """Return the environment that the stream belongs to."""
        return self._env

    def get_name(self) -> str:
        """Return the name of the operator that produces the stream."""
        return self._declared.name

    @property
    def _declared(self) -> Node:
        """The node that the user's call created. ``from_source`` can add a watermark operator after its source."""
        node = self._node
        return self._env._graph.nodes[node.inputs[0].node] if node.of_source else node

    def name(self, name: str) -> Self:
        """Name the operator.

        Args:
            name: The name shown in plans, log lines, error messages and the web page.
        """
        self._declared.set_name(name)
        return self

    def uid(self, uid: str) -> Self:
        """Set the unique ID under which the operator's state is stored.

        Set one on every stateful operator. Checkpoints and savepoints find state by this ID, so the operator keeps its
        state when the program around it changes.

        Args:
            uid: An ID that no other operator of the program uses.
        """
        self._declared.set_uid(uid)
        if self._node.of_source:
            self._node.set_uid(f"{uid} watermarks")
        return self

    def set_parallelism(self, parallelism: int) -> Self:
        """Set the number of subtasks of the operator, overriding the environment's parallelism.

        Args:
            parallelism: The number of subtasks. For a source, the most tasks that read it.
        """
        self._declared.set_parallelism(parallelism)
        return self

    def set_max_parallelism(self, max_parallelism: int) -> Self:
        """Set the number of key groups, which is the largest parallelism the operator can ever have.

        Args:
            max_parallelism: The number of key groups.
        """
        self._node.set_max_parallelism(max_parallelism)
        return self

    def get_execution_config(self) -> ExecutionConfig:
        """Return the execution settings of the environment."""
        return self._env.get_config()

    def set_buffer_timeout(self, timeout_millis: int) -> Self:
        """Accept the call without effect: a buffer is sent when it is full and when its epoch ends.

        Args:
            timeout_millis: The timeout, at least -1.
        """
        buffer_timeout(timeout_millis)
        accept("DataStream.set_buffer_timeout")
        return self

    def cache(self) -> CachedDataStream[T_co]:
        """Accept the call without effect: every job computes its streams from their sources, with the same records.

        Returns:
            A stream of the same records.
        """
        accept("DataStream.cache")
        return CachedDataStream(self._env, self._inputs)

    def force_non_parallel(self) -> Self:
        """Run the operator in a single subtask."""
        return self.set_parallelism(1)

    def get_type(self) -> Any:
        """Return the type of the records.

        Returns:
            The declared type if there is one, otherwise the type from the function's return annotation, otherwise the
            type of pickled objects.
        """
        known = self._type()
        return (known.spec if isinstance(known, Hinted) else known) or Types.PICKLED_BYTE_ARRAY()

    def __repr__(self) -> str:
        return text_of_stream(self)

    def _repr_html_(self) -> str:
        """Return the operator, the type of the records and the plan, for notebooks."""
        return html_of_stream(self)

    # -- transformations -------------------------------------------------------------------------------------------

    def map(self, func: Callable[[T_co], R] | MapFunction[T_co, R], output_type: Any = None) -> DataStream[R]:
        """Apply a function to each record and emit its return value.

        On a keyed stream, a ``MapFunction`` can use keyed state, which it obtains in ``open``.

        Args:
            func: A function of one record, or a ``MapFunction``.
            output_type: The type of the results. By default it is taken from the function's return annotation.

        Example:
            >>> prices = orders.map(lambda order: order["price"], output_type=Types.DOUBLE())
        """
        check_function(func, MapFunction, "map")
        return self._add("Map", self._map_operator(func), output_type or hints.returned(func, "map"))

    def flat_map(
        self, func: Callable[[T_co], Iterable[R] | None] | FlatMapFunction[T_co, R], output_type: Any = None
    ) -> DataStream[R]:
        """Apply a function to each record and emit any number of results.

        On a keyed stream, a ``FlatMapFunction`` can use keyed state, which it obtains in ``open``.

        Args:
            func: A generator function, a function that returns an iterable or ``None``, or a ``FlatMapFunction``.
            output_type: The type of the results. By default it is taken from the function's return annotation.

        Example:
            >>> words = lines.flat_map(lambda line: line.split(), output_type=Types.STRING())
        """
        check_function(func, FlatMapFunction, "flat_map")
        return self._add("Flat Map", self._flat_map_operator(func), output_type or hints.yielded(func, "flat_map"))

    def filter(self, func: Callable[[T_co], bool] | FilterFunction[T_co]) -> DataStream[T_co]:
        """Keep the records for which a function returns a true value.

        On a keyed stream, a ``FilterFunction`` can use keyed state, which it obtains in ``open``.

        Args:
            func: A function of one record, or a ``FilterFunction``.
        """
        check_function(func, FilterFunction, "filter")
        return self._add("Filter", self._filter_operator(func), self._type())

    def process(
        self,
        func: ProcessFunction[T_co, R] | Callable[[T_co, FunctionContext], Iterable[R | SideOutput] | None],
        output_type: Any = None,
    ) -> DataStream[R]:
        """Apply a function that has access to timestamps, watermarks and side outputs.

        Args:
            func: A ``ProcessFunction``, or a generator function of a record and its context.
            output_type: The type of the results. By default it is taken from the function's return annotation.
        """
        check_process_function(func, keyed=False)
        return self._add("Process", ProcessOperator(func), output_type or hints.yielded(func, "process_element"))

    def key_by(
        self, key_selector: Callable[[T_co], K] | KeySelector[T_co, K], key_type: Any = None
    ) -> KeyedStream[T_co, K]:
        """Partition the stream by key.

        All records with the same key go to the same subtask, where operators can hold state and timers for that key.

        Args:
            key_selector: A function that returns the key of a record, or a ``KeySelector``. It must always return the
                same key for the same record. Keys can be numbers, strings, bytes, ``None``, dates, and tuples of these;
                see docs/write/keys.md.
            key_type: The type to convert keys to. By default keys keep their Python type.

        Example:
            >>> totals = orders.key_by(lambda order: order.customer).sum("price")
        """
        check_function(key_selector, KeySelector, "key_by")
        keyed = Partitioning(KEY, key_selector, key_type, location=calling_location())
        edges = [replace(edge, partitioning=keyed) for edge in self._inputs]
        return KeyedStream(self._env, edges, self, key_selector, key_type)

    def union(self, *streams: DataStream[U]) -> DataStream[T_co | U]:
        """Merge this stream with other streams.

        Records of one input keep their order; records of different inputs interleave arbitrarily.

        Args:
            streams: The streams to merge with. They must belong to the same environment.

        Raises:
            GraphError: If a stream belongs to another environment.
        """
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
        """Connect this stream to another one, so that one function processes both.

        Unlike ``union``, the two streams can have different types.

        Args:
            ds: The other stream, or a ``BroadcastStream`` whose records every subtask receives.
        """
        if isinstance(ds, BroadcastStream):
            return BroadcastConnectedStream(self, ds, ds.broadcast_state_descriptors)
        return ConnectedStreams(self, ds)

    def interval_join(self, other: DataStream[U]) -> IntervalJoin[T_co, U]:
        """Join this stream with another one on equal keys and nearby event times.

        Both streams must be keyed. Set the interval with ``between`` and end the declaration with ``process``.

        Args:
            other: The keyed stream to join with.

        Example:
            >>> (
            ...     orders.key_by(order_id)
            ...     .interval_join(payments.key_by(order_id))
            ...     .between(Duration.of_minutes(0), Duration.of_hours(1))
            ...     .process(pay)
            ... )
        """
        return IntervalJoin(self, other)

    def join(self, other: DataStream[U]) -> JoinedStreams[T_co, U]:
        """Join this stream with another one: pair records that share a key and a window.

        Continue with ``where(...).equal_to(...).window(...).apply(...)``.

        Args:
            other: The stream to join with.
        """
        return JoinedStreams(self, other)

    def co_group(self, other: DataStream[U]) -> CoGroupedStreams[T_co, U]:
        """Group this stream with another one: collect all records that share a key and a window.

        Continue with ``where(...).equal_to(...).window(...).apply(...)``.

        Args:
            other: The stream to group with.
        """
        return CoGroupedStreams(self, other)

    def get_side_output(self, output_tag: OutputTag[U]) -> DataStream[U]:
        """Return the side output that the operator emits under a tag.

        A process function fills it by yielding ``output_tag, value``, a window or interval join with its late records,
        and a source with its dead letters.

        Args:
            output_tag: The tag of the side output.

        Raises:
            GraphError: If the operator cannot have this side output.
        """
        if not isinstance(output_tag, OutputTag):
            raise GraphError(f"get_side_output needs an OutputTag, not {type(output_tag).__name__}.")
        return DataStream(self._env, [side_output(self._env._graph, self._node, output_tag)])

    def assign_timestamps_and_watermarks(self, watermark_strategy: WatermarkStrategy) -> DataStream[T_co]:
        """Assign an event timestamp to each record and generate watermarks.

        Call it directly after the source, where each split has its own watermark.

        Args:
            watermark_strategy: How to extract timestamps, and how far out of order they can be.

        Raises:
            GraphError: If ``watermark_strategy`` is not a ``WatermarkStrategy``.
        """
        check_watermark_strategy(watermark_strategy)
        return self._add("Timestamps/Watermarks", TimestampsOperator(watermark_strategy), self._type())

    # -- windows -------------------------------------------------------------------------------------------------------

    def window_all(self, window_assigner: WindowAssigner[Any, W]) -> AllWindowedStream[T_co, W]:
        """Group all records into windows, in a single subtask.

        Use ``key_by(...).window(...)`` for windows that run in parallel.

        Args:
            window_assigner: Assigns each record to its windows.
        """
        return AllWindowedStream(self, window_assigner)

    def time_window_all(self, size: Length, slide: Length | None = None) -> AllWindowedStream[T_co, TimeWindow]:
        """Group all records into event-time windows, in a single subtask.

        Args:
            size: The length of a window.
            slide: The interval between the starts of two windows. By default windows tumble.
        """
        return AllWindowedStream(self, time_windows(size, slide, self._env._time_characteristic))

    def count_window_all(self, size: int, slide: int = 0) -> AllWindowedStream[T_co, CountWindow]:
        """Group all records into windows of ``size`` records, in a single subtask.

        Args:
            size: The number of records in a window.
            slide: The number of records between the starts of two windows. By default windows tumble.
        """
        return AllWindowedStream(self, count_windows(size, slide))

    # -- chaining and fields -------------------------------------------------------------------------------------------

    def _partitioned(self, partitioning: Partitioning) -> DataStream[T_co]:
        partitioning = replace(partitioning, location=calling_location())
        return DataStream(self._env, [replace(edge, partitioning=partitioning) for edge in self._inputs])

    def start_new_chain(self) -> Self:
        """Start a new chain with this operator."""
        self._node.start_new_chain()
        return self

    def project(self, *field_indexes: int) -> DataStream[Any]:
        """Keep only some fields of tuples, lists or Rows.

        Args:
            field_indexes: The positions of the fields to keep, in the order of the result.
        """
        return self._add("Projection", MapOperator(projection(field_indexes)), None)

    # -- internals -------------------------------------------------------------------------------------------------

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


class CachedDataStream(DataStream[T_co]):
    """The stream that ``cache`` returns."""

    def invalidate(self) -> None:
        """Do nothing: records are not cached."""


# PyFlink exports all of these from this module. Imported last because KeyedStream extends DataStream.
from penstock.datastream.keyed_stream import KeyedStream  # noqa: E402

__all__ = [
    "AllWindowedStream",
    "BroadcastConnectedStream",
    "BroadcastStream",
    "CachedDataStream",
    "CloseableIterator",
    "ConnectedStreams",
    "DataStream",
    "DataStreamSink",
    "KeyedStream",
    "WindowedStream",
]

explain_absent(__name__)
