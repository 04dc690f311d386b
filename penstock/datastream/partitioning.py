"""Stream methods that choose the subtask each record goes to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, overload

from penstock.common.type_parameters import K, T_co
from penstock.datastream.broadcast import BroadcastStream
from penstock.datastream.checks import check_function
from penstock.datastream.functions import KeySelector, Partitioner
from penstock.graph.logical import BROADCAST, CUSTOM, FORWARD, GLOBAL, REBALANCE, RESCALE, SHUFFLE, Partitioning
from penstock.state.descriptors import MapStateDescriptor

if TYPE_CHECKING:
    from penstock.datastream.data_stream import DataStream


class PartitionableStream(ABC, Generic[T_co]):
    """The partitioning methods of ``DataStream``. Each sets how the next operator receives records."""

    @abstractmethod
    def _partitioned(self, partitioning: Partitioning) -> DataStream[T_co]:
        """Return this stream with another partitioning."""

    def rebalance(self) -> DataStream[T_co]:
        """Distribute records round-robin over the subtasks of the next operator."""
        return self._partitioned(Partitioning(REBALANCE))

    def rescale(self) -> DataStream[T_co]:
        """Distribute records round-robin over a subset of the next operator's subtasks.

        It needs fewer channels than ``rebalance``.
        """
        return self._partitioned(Partitioning(RESCALE))

    def shuffle(self) -> DataStream[T_co]:
        """Distribute records evenly over the next operator's subtasks, in no particular order.

        A replayed record always goes to the same subtask.
        """
        return self._partitioned(Partitioning(SHUFFLE))

    def forward(self) -> DataStream[T_co]:
        """Send each record to the subtask with the same index.

        The next operator must have the same parallelism.
        """
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

        Args:
            broadcast_state_descriptor: The state in which the connected function stores the records; see
                docs/write/operator-state.md. Without it, the call only changes the partitioning.
            other_broadcast_state_descriptors: Further states of the connected function.

        Returns:
            A ``BroadcastStream`` to pass to ``connect`` if a descriptor is given, otherwise a ``DataStream``.
        """
        stream = self._partitioned(Partitioning(BROADCAST))
        if broadcast_state_descriptor is None:
            return stream
        return BroadcastStream(stream, [broadcast_state_descriptor, *other_broadcast_state_descriptors])

    def global_(self) -> DataStream[T_co]:
        """Send every record to the first subtask of the next operator."""
        return self._partitioned(Partitioning(GLOBAL))

    def partition_custom(
        self,
        partitioner: Callable[[K, int], int] | Partitioner[K],
        key_selector: Callable[[T_co], K] | KeySelector[T_co, K],
    ) -> DataStream[T_co]:
        """Send each record to the subtask that a function chooses.

        Args:
            partitioner: A function of a key and the number of subtasks that returns a subtask index, or a
                ``Partitioner``.
            key_selector: A function that returns the key of a record, or a ``KeySelector``.
        """
        check_function(partitioner, Partitioner, "partition_custom")
        check_function(key_selector, KeySelector, "partition_custom")
        return self._partitioned(Partitioning(CUSTOM, key_selector, partitioner=partitioner))
