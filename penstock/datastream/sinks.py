"""Where streams end: a sink, or the program itself."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Generic, Self

from penstock.common.type_parameters import T_co
from penstock.connectors.driver_sinks import CollectSink
from penstock.graph.logical import Node

if TYPE_CHECKING:
    from penstock.datastream.environment import StreamExecutionEnvironment


class DataStreamSink:
    """The end of a stream."""

    def __init__(self, env: StreamExecutionEnvironment, node: Node) -> None:
        self._env = env
        self._node = node

    def name(self, name: str) -> DataStreamSink:
        """Set the name of the sink, for people."""
        self._node.set_name(name)
        return self

    def uid(self, uid: str) -> DataStreamSink:
        """Set the identifier by which the state of the sink is found again after the program changes."""
        self._node.set_uid(uid)
        return self

    def set_parallelism(self, parallelism: int) -> DataStreamSink:
        """Set the number of subtasks of the sink."""
        self._node.set_parallelism(parallelism)
        return self

    def set_description(self, description: str) -> DataStreamSink:
        """Say more of the sink than its name does; shown in the plan."""
        self._node.set_description(description)
        return self

    def disable_chaining(self) -> DataStreamSink:
        """Chain this sink to nothing before it."""
        self._node.disable_chaining()
        return self

    def slot_sharing_group(self, slot_sharing_group: str) -> DataStreamSink:
        """Accepted and shown in the plan; Spark shares cores among all tasks."""
        self._node.set_slot_sharing_group(slot_sharing_group)
        return self


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

    def close(self) -> None:
        """Cancel the job if it has not ended."""
        if not self._client.ended:
            self._client.cancel().result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
