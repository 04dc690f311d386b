"""A stream that goes to every subtask of the next operator, with the state it is kept in there."""

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
    """Given by `stream.broadcast(descriptor, ...)`. To be connected to another stream."""

    def __init__(self, input_stream: DataStream[T_co], broadcast_state_descriptors: list[MapStateDescriptor]) -> None:
        for descriptor in broadcast_state_descriptors:
            if not isinstance(descriptor, MapStateDescriptor):
                raise GraphError(
                    f"broadcast takes the descriptors of its states, each a MapStateDescriptor, not {descriptor!r}.",
                    fix="Write MapStateDescriptor('rules', Types.STRING(), Types.STRING()), or give it nothing.",
                )
        names = [descriptor.name for descriptor in broadcast_state_descriptors]
        if len(set(names)) < len(names):
            raise GraphError(f"Two of the broadcast states {names} have the same name.", fix="Give each its own.")
        self.input_stream = input_stream
        self.broadcast_state_descriptors = broadcast_state_descriptors


class BroadcastConnectedStream(Generic[T1_co, T2_co]):
    """Given by `stream.connect(broadcast_stream)`."""

    def __init__(
        self,
        non_broadcast_stream: DataStream[T1_co],
        broadcast_stream: BroadcastStream[T2_co],
        broadcast_state_descriptors: list[MapStateDescriptor],
    ) -> None:
        if non_broadcast_stream._env is not broadcast_stream.input_stream._env:
            raise GraphError(
                "Only streams of one environment can be connected.",
                fix="Make both streams from one env = StreamExecutionEnvironment.get_execution_environment().",
            )
        self.non_broadcast_stream = non_broadcast_stream
        self.broadcast_stream = broadcast_stream
        self.broadcast_state_descriptors = broadcast_state_descriptors

    def process(
        self,
        func: BroadcastProcessFunction[T1_co, T2_co, R] | KeyedBroadcastProcessFunction[Any, T1_co, T2_co, R],
        output_type: Any = None,
    ) -> DataStream[R]:
        """A KeyedBroadcastProcessFunction where the stream is keyed, else a BroadcastProcessFunction."""
        from penstock.datastream.data_stream import KeyedStream

        keyed = isinstance(self.non_broadcast_stream, KeyedStream)
        wanted: type = KeyedBroadcastProcessFunction if keyed else BroadcastProcessFunction
        if not isinstance(func, wanted):
            is_keyed = "is keyed" if keyed else "is not keyed"
            raise GraphError(
                f"process needs a {wanted.__name__}, for the stream {is_keyed}; {describe(func)} is none.",
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
