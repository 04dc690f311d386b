"""A stream sent to every subtask of the next operator, and the state that stores it there."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic

from penstock.common.type_parameters import R, T1_co, T2_co, T_co
from penstock.datastream import hints
from penstock.datastream.functions import BroadcastProcessFunction, KeyedBroadcastProcessFunction
from penstock.graph.logical import GraphError, Input
from penstock.runtime.broadcast import BroadcastProcessOperator
from penstock.runtime.operators import describe
from penstock.state.descriptors import MapStateDescriptor

if TYPE_CHECKING:
    from penstock.datastream.data_stream import DataStream


class BroadcastStream(Generic[T_co]):
    """A stream that every subtask of the connected operator receives.

    ``stream.broadcast(descriptor)`` returns it; pass it to ``connect`` of another stream.

    Args:
        input_stream: The stream to broadcast.
        broadcast_state_descriptors: The states in which the connected function stores records.
    """

    def __init__(self, input_stream: DataStream[T_co], broadcast_state_descriptors: list[MapStateDescriptor]) -> None:
        for descriptor in broadcast_state_descriptors:
            if not isinstance(descriptor, MapStateDescriptor):
                raise GraphError(
                    f"broadcast needs a MapStateDescriptor for each state, not {descriptor!r}.",
                    fix="Write MapStateDescriptor('rules', Types.STRING(), Types.STRING()), or pass no argument.",
                )
        names = [descriptor.name for descriptor in broadcast_state_descriptors]
        if len(set(names)) < len(names):
            raise GraphError(f"Two of the broadcast states {names} have the same name.", fix="Give each a unique name.")
        self.input_stream = input_stream
        self.broadcast_state_descriptors = broadcast_state_descriptors


class BroadcastConnectedStream(Generic[T1_co, T2_co]):
    """A stream connected to a broadcast stream.

    ``stream.connect(broadcast_stream)`` returns it.

    Args:
        non_broadcast_stream: The stream whose records each go to one subtask.
        broadcast_stream: The stream whose records go to every subtask.
        broadcast_state_descriptors: The states in which the function stores broadcast records.
    """

    def __init__(
        self,
        non_broadcast_stream: DataStream[T1_co],
        broadcast_stream: BroadcastStream[T2_co],
        broadcast_state_descriptors: list[MapStateDescriptor],
    ) -> None:
        if non_broadcast_stream._env is not broadcast_stream.input_stream._env:
            raise GraphError(
                "Only streams of the same environment can be connected.",
                fix="Create both streams from one env = StreamExecutionEnvironment.get_execution_environment().",
            )
        self.non_broadcast_stream = non_broadcast_stream
        self.broadcast_stream = broadcast_stream
        self.broadcast_state_descriptors = broadcast_state_descriptors

    def process(
        self,
        func: BroadcastProcessFunction[T1_co, T2_co, R] | KeyedBroadcastProcessFunction[Any, T1_co, T2_co, R],
        output_type: Any = None,
    ) -> DataStream[R]:
        """Apply a function to the records of both streams.

        Args:
            func: A ``KeyedBroadcastProcessFunction`` if the stream is keyed, otherwise a ``BroadcastProcessFunction``.
            output_type: The type of the results. By default it is taken from the function's return annotations.

        Raises:
            GraphError: If the function is of the wrong kind.
        """
        from penstock.datastream.data_stream import KeyedStream

        keyed = isinstance(self.non_broadcast_stream, KeyedStream)
        wanted: type = KeyedBroadcastProcessFunction if keyed else BroadcastProcessFunction
        if not isinstance(func, wanted):
            is_keyed = "is keyed" if keyed else "is not keyed"
            raise GraphError(
                f"process needs a {wanted.__name__} because the stream {is_keyed}, not {describe(func)}.",
                fix=f"Write `class {_class_name(func)}({wanted.__name__})`"
                + ("." if keyed else ", or call key_by(...) on the stream before connect."),
            )
        inputs: list[Input] = list(self.non_broadcast_stream._inputs)
        inputs += [replace(edge, port=1) for edge in self.broadcast_stream.input_stream._inputs]
        return self.non_broadcast_stream._add(
            "Keyed-Co-Process-Broadcast" if keyed else "Co-Process-Broadcast",
            BroadcastProcessOperator(func, keyed, self.broadcast_state_descriptors),
            output_type or hints.yielded(func, *BroadcastProcessOperator.methods),
            inputs,
        )


def _class_name(func: Any) -> str:
    return func.__name__ if isinstance(func, type) else type(func).__name__
