"""The ends of streams: sinks, and the collection of records in the program."""

from __future__ import annotations

import queue
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Generic, Self, TypeAlias, overload

from penstock.common.type_parameters import T, T_co
from penstock.connectors.driver_sinks import CollectSink, PrintSink
from penstock.connectors.generic_write_ahead import GenericWriteAheadSink
from penstock.connectors.preprocessing import SupportsPreprocessing
from penstock.connectors.sink import Sink
from penstock.connectors.two_phase import TwoPhaseCommitSink
from penstock.datastream.checks import check_function
from penstock.datastream.declaration import Declaration
from penstock.datastream.functions import SinkFunction
from penstock.datastream.two_phase_commit import TwoPhaseCommitSinkFunction
from penstock.graph.logical import GraphError, Input, Node
from penstock.runtime.operators import describe
from penstock.runtime.sink_operators import SinkFunctionOperator

if TYPE_CHECKING:
    from penstock.datastream.environment import StreamExecutionEnvironment
    from penstock.spark.types import StructType
    from penstock.spark.writing import ToSpark

AnySinkFunction: TypeAlias = (
    SinkFunction[T] | TwoPhaseCommitSinkFunction | GenericWriteAheadSink | Sink | Callable[[T], Any]
)
"""The functions that ``add_sink`` accepts."""


class DataStreamSink(Declaration):
    """The sink at the end of a stream. Use it to set the sink's name, uid and parallelism."""

    def __init__(self, env: StreamExecutionEnvironment, node: Node) -> None:
        self._env = env
        self._sink = node

    @property
    def _node(self) -> Node:
        return self._sink


class CloseableIterator(Generic[T_co]):
    """An iterator over the records of a running job, in the order in which epochs complete.

    Use it in a ``with`` block: closing it cancels the job.
    """

    def __init__(self, client: Any, sink: CollectSink) -> None:
        self._client = client
        self._sink = sink
        self._records = self._iterate()

    def _iterate(self) -> Iterator[T_co]:
        while True:
            ended = self._client.ended
            try:
                yield from self._sink.results.get(timeout=0.05)
            except queue.Empty:
                if ended:
                    self._client.result()
                    return

    def __iter__(self) -> Iterator[T_co]:
        return self._records

    def __next__(self) -> T_co:
        return next(self._records)

    def next(self) -> T_co:
        """Return the next record.

        Raises:
            StopIteration: After the last record.
        """
        return next(self._records)

    def take(self, limit: int) -> list[T_co]:
        """Return the first records, then cancel the job.

        Args:
            limit: The maximum number of records. A job that ends earlier returns fewer.
        """
        with self:
            return [value for value, _ in zip(self, range(limit), strict=False)]

    def close(self) -> None:
        """Cancel the job if it is still running."""
        if not self._client.ended:
            self._client.cancel().result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class WritableStream(ABC, Generic[T_co]):
    """The methods of ``DataStream`` that write or collect its records."""

    _env: StreamExecutionEnvironment

    @property
    @abstractmethod
    def _inputs(self) -> list[Input]:
        """The edges that this stream reads."""

    @abstractmethod
    def _end(self, name: str, sink: Sink) -> DataStreamSink:
        """Add a sink to the graph."""

    def _collected(self) -> WritableStream[Any]:
        """Return the stream whose records ``execute_and_collect`` returns."""
        return self

    def print(self, sink_identifier: str | None = None) -> DataStreamSink:
        """Print each record in the driver when its epoch completes.

        Args:
            sink_identifier: A prefix for each line.
        """
        return self._end("Print to Std. Out", PrintSink(sink_identifier))

    def sink_to(self, sink: Sink) -> DataStreamSink:
        """Write the stream to a sink.

        Args:
            sink: The sink, for example a ``FileSink`` or a ``KafkaSink``.

        Raises:
            GraphError: If ``sink`` is not a ``Sink``.
        """
        if not isinstance(sink, Sink):
            raise GraphError(f"sink_to needs a Sink, not {type(sink).__name__}.")
        if isinstance(sink, SupportsPreprocessing) and (transformer := sink.get_transformer()) is not None:
            transformed: WritableStream[Any] = transformer.apply(self)
            return transformed._end(type(sink).__name__, sink)
        return self._end(type(sink).__name__, sink)

    def add_sink(self, sink_func: AnySinkFunction[T_co]) -> DataStreamSink:
        """Write the stream with a function.

        A plain function or ``SinkFunction`` is called immediately for each record, and again for the records of a
        replayed epoch. A ``TwoPhaseCommitSinkFunction`` or ``GenericWriteAheadSink`` makes its output visible only
        after the checkpoint of the epoch completes.

        Args:
            sink_func: A function of one record, a ``SinkFunction``, a ``TwoPhaseCommitSinkFunction``, a
                ``FlinkKafkaProducer``, or a ``Sink`` such as a ``GenericWriteAheadSink``.
        """
        if isinstance(sink_func, TwoPhaseCommitSinkFunction):
            return self._end(type(sink_func).__name__, TwoPhaseCommitSink(sink_func))
        if hasattr(sink_func, "to_sink"):
            sink_func = sink_func.to_sink()
        if isinstance(sink_func, Sink):
            return self.sink_to(sink_func)
        check_function(sink_func, SinkFunction, "add_sink")
        node = self._env._graph.add(describe(sink_func), inputs=self._inputs, operator=SinkFunctionOperator(sink_func))
        return DataStreamSink(self._env, node)

    def to_spark(self, schema: str | StructType) -> ToSpark:
        """Write the stream with any Spark writer.

        Call ``.format("parquet").save(path)``, ``.save_as_table(name)`` or ``.foreach_epoch(function)`` on the result.

        Args:
            schema: The schema of the rows. Records can be Rows, tuples, dicts or objects with these fields.
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
        """Run the program and collect the records of this stream.

        Args:
            job_execution_name: The name of the job.
            limit: The number of records after which the job is cancelled.

        Returns:
            A list if ``limit`` is given, otherwise an iterator. Closing the iterator cancels the job. As in PyFlink, a
            keyed stream returns Rows of the key and the record.

        Example:
            >>> with stream.execute_and_collect() as records:
            ...     for record in records:
            ...         print(record)
        """
        sink = CollectSink()
        self._collected()._end("Collect", sink)
        client = self._env.execute_async(job_execution_name or "collect")
        results: CloseableIterator[T_co] = CloseableIterator(client, sink)
        return results if limit is None else results.take(limit)
