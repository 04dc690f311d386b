"""Two streams processed by one function, with a separate method for each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic

from penstock.common.type_parameters import K, R, T1_co, T2_co
from penstock.datastream import hints
from penstock.datastream.functions import (
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    KeyedCoProcessFunction,
    KeySelector,
)
from penstock.graph.logical import GraphError, Input
from penstock.runtime.operators import Operator, describe
from penstock.runtime.process_operators import CoFlatMapOperator, CoMapOperator, CoProcessOperator

if TYPE_CHECKING:
    from penstock.datastream.data_stream import DataStream


class ConnectedStreams(Generic[T1_co, T2_co]):
    """Two streams that one function processes and that can have different types.

    ``stream1.connect(stream2)`` returns it. Key both streams or neither.

    Args:
        stream1: The first stream.
        stream2: The second stream.

    Raises:
        GraphError: If the streams belong to different environments.

    Example:
        >>> orders.connect(rates).key_by(currency_of_order, currency_of_rate).process(Convert())
    """

    def __init__(self, stream1: DataStream[T1_co], stream2: DataStream[T2_co]) -> None:
        if stream1._env is not stream2._env:
            raise GraphError(
                "Only streams of the same environment can be connected.",
                fix="Create both streams from one env = StreamExecutionEnvironment.get_execution_environment().",
            )
        self.stream1 = stream1
        self.stream2 = stream2

    def key_by(
        self,
        key_selector1: Callable[[T1_co], K] | KeySelector[T1_co, K],
        key_selector2: Callable[[T2_co], K] | KeySelector[T2_co, K],
        key_type: Any = None,
    ) -> ConnectedStreams[T1_co, T2_co]:
        """Partition both streams by key, so that records with equal keys share keyed state.

        Args:
            key_selector1: Returns the key of a record of the first stream.
            key_selector2: Returns the key of a record of the second stream.
            key_type: The type of the keys.
        """
        return ConnectedStreams(
            self.stream1.key_by(key_selector1, key_type), self.stream2.key_by(key_selector2, key_type)
        )

    def map(self, func: CoMapFunction[T1_co, T2_co, R], output_type: Any = None) -> DataStream[R]:
        """Apply ``map1`` to the records of the first stream and ``map2`` to those of the second.

        As in PyFlink, a result of ``None`` is not emitted.

        Args:
            func: The function.
            output_type: The type of the results. By default it is taken from the return annotations.
        """
        self._expect(func, CoMapFunction, "map")
        return self._add(
            "Co-Map", CoMapOperator(func, self._keyed()), output_type or hints.mapped(func, "map1", "map2")
        )

    def flat_map(self, func: CoFlatMapFunction[T1_co, T2_co, R], output_type: Any = None) -> DataStream[R]:
        """Apply ``flat_map1`` to the records of the first stream and ``flat_map2`` to those of the second.

        Args:
            func: The function. Each method yields any number of results.
            output_type: The type of the results. By default it is taken from the return annotations.
        """
        self._expect(func, CoFlatMapFunction, "flat_map")
        output_type = output_type or hints.yielded(func, "flat_map1", "flat_map2")
        return self._add("Co-Flat Map", CoFlatMapOperator(func, self._keyed()), output_type)

    def process(
        self,
        func: CoProcessFunction[T1_co, T2_co, R] | KeyedCoProcessFunction[Any, T1_co, T2_co, R],
        output_type: Any = None,
    ) -> DataStream[R]:
        """Apply a function with access to timestamps and side outputs, and, on keyed streams, to state and timers.

        Args:
            func: A ``KeyedCoProcessFunction`` if both streams are keyed, otherwise a ``CoProcessFunction``.
            output_type: The type of the results. By default it is taken from the return annotations.

        Raises:
            GraphError: If the function is of the wrong kind, or only one of the streams is keyed.
        """
        keyed = self._keyed()
        wanted: type = KeyedCoProcessFunction if keyed else CoProcessFunction
        other: type = CoProcessFunction if keyed else KeyedCoProcessFunction
        if isinstance(func, other):
            fix = "they are keyed: use a KeyedCoProcessFunction" if keyed else "they are not keyed: call key_by first"
            raise GraphError(f"{describe(func)} is a {other.__name__} on connected streams, but {fix}.")
        self._expect(func, wanted, "process")
        output_type = output_type or hints.yielded(func, "process_element1", "process_element2")
        return self._add("Keyed Co-Process" if keyed else "Co-Process", CoProcessOperator(func, keyed), output_type)

    def _keyed(self) -> bool:
        from penstock.datastream.data_stream import KeyedStream

        first, second = isinstance(self.stream1, KeyedStream), isinstance(self.stream2, KeyedStream)
        if first != second:
            raise GraphError(
                "One of the connected streams is keyed and the other is not. Key both, by calling key_by on each or on "
                "the connected streams, or key neither."
            )
        return first

    def _expect(self, func: Any, kind: type, method: str) -> None:
        if not isinstance(func, kind):
            raise GraphError(f"{method} of connected streams needs a {kind.__name__}, not {describe(func)}.")

    def _add(self, name: str, operator: Operator, output_type: Any) -> DataStream:
        inputs: list[Input] = list(self.stream1._inputs)
        inputs += [replace(edge, port=1) for edge in self.stream2._inputs]
        return self.stream1._add(name, operator, output_type, inputs)
