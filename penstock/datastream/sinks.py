"""Where streams end: a sink, or the program itself."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Generic, Self, TypeAlias

from penstock.common.type_parameters import T, T_co
from penstock.connectors.driver_sinks import CollectSink
from penstock.connectors.generic_write_ahead import GenericWriteAheadSink
from penstock.datastream.declaration import Declaration
from penstock.datastream.functions import SinkFunction
from penstock.datastream.two_phase_commit import TwoPhaseCommitSinkFunction
from penstock.graph.logical import Node

if TYPE_CHECKING:
    from penstock.datastream.environment import StreamExecutionEnvironment

AnySinkFunction: TypeAlias = SinkFunction[T] | TwoPhaseCommitSinkFunction | GenericWriteAheadSink | Callable[[T], Any]
"""What `add_sink` takes."""


class DataStreamSink(Declaration):
    """The end of a stream."""

    def __init__(self, env: StreamExecutionEnvironment, node: Node) -> None:
        self._env = env
        self._sink = node

    @property
    def _node(self) -> Node:
        return self._sink


class CloseableIterator(Generic[T_co]):
    """Records of a running job, in the order its epochs complete. Closing it cancels the job."""

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
        """Return the next record, or raise StopIteration after the last."""
        return next(self._records)

    def take(self, limit: int) -> list[T_co]:
        """The first `limit` records, or all if there are fewer; then the job is cancelled."""
        with self:
            return [value for value, _ in zip(self, range(limit), strict=False)]

    def close(self) -> None:
        """Cancel the job if it has not ended."""
        if not self._client.ended:
            self._client.cancel().result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
