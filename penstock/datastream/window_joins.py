"""Window joins and co-groups, declared step by step as in Flink's DataStream API.

first.join(second).where(key1).equal_to(key2).window(assigner).apply(function)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar, cast, overload

from penstock.common.time import Duration, Time
from penstock.common.type_parameters import K, K_co, R, T1_co, T2_co
from penstock.datastream import hints
from penstock.datastream.checks import check_function
from penstock.datastream.functions import CoGroupFunction, FlatJoinFunction, JoinFunction, KeySelector
from penstock.datastream.joins import JoinStep, of_one_environment
from penstock.datastream.windowed import WindowedStream, _paying
from penstock.runtime.co_group import CO_GROUP, FLAT_JOIN, JOIN, CoGroupOperator
from penstock.runtime.windows.assigners import WindowAssigner
from penstock.runtime.windows.evictors import Evictor
from penstock.runtime.windows.triggers import Trigger

if TYPE_CHECKING:
    from penstock.datastream.data_stream import DataStream, KeyedStream

WINDOWED = TypeVar("WINDOWED", bound="_WithWindow[Any, Any]", covariant=True)
"""The type of the declaration once it has a window: a join or a co-group."""

_WINDOWED = ("apply", "trigger", "evictor", "allowed_lateness")


class _Pairing(JoinStep, Generic[WINDOWED, T1_co, T2_co]):
    """Two streams to be joined in windows. Call ``where`` next."""

    _later: ClassVar = {
        "equal_to": "where(key of the first stream)",
        **dict.fromkeys(("window", *_WINDOWED), "where(key of the first stream).equal_to(key of the second)"),
    }
    _windowed: ClassVar[type[_WithWindow[Any, Any]]]

    def __init__(self, stream1: DataStream[T1_co], stream2: DataStream[T2_co]) -> None:
        of_one_environment(stream1, stream2)
        self._streams = stream1, stream2

    def where(
        self, key_selector: Callable[[T1_co], K] | KeySelector[T1_co, K], key_type: Any = None
    ) -> Where[WINDOWED, T1_co, T2_co, K]:
        """Set the key of the first stream's records.

        Args:
            key_selector: A function that returns the key of a record, or a ``KeySelector``.
            key_type: The type of the keys.
        """
        check_function(key_selector, KeySelector, "where")
        first, second = self._streams
        return Where(first.key_by(key_selector, key_type), second, cast("type[WINDOWED]", self._windowed))


class Where(JoinStep, Generic[WINDOWED, T1_co, T2_co, K_co]):
    """A window join whose first stream has a key. Call ``equal_to`` next."""

    _later: ClassVar = dict.fromkeys(("window", *_WINDOWED), "equal_to(key of the second stream)")

    def __init__(self, first: KeyedStream[T1_co, K_co], second: DataStream[T2_co], windowed: type[WINDOWED]) -> None:
        self._first, self._second, self._windowed = first, second, windowed

    def equal_to(
        self, key_selector: Callable[[T2_co], K_co] | KeySelector[T2_co, K_co], key_type: Any = None
    ) -> EqualTo[WINDOWED, T1_co, T2_co]:
        """Set the key of the second stream's records. Records with equal keys are joined.

        Args:
            key_selector: A function that returns the key of a record, or a ``KeySelector``.
            key_type: The type of the keys.
        """
        check_function(key_selector, KeySelector, "equal_to")
        return EqualTo(self._first, self._second.key_by(key_selector, key_type), self._windowed)


class EqualTo(JoinStep, Generic[WINDOWED, T1_co, T2_co]):
    """A window join whose streams both have keys. Call ``window`` next."""

    _later: ClassVar = dict.fromkeys(_WINDOWED, "window(assigner)")

    def __init__(self, first: KeyedStream[T1_co], second: KeyedStream[T2_co], windowed: type[WINDOWED]) -> None:
        self._first, self._second, self._windowed = first, second, windowed

    def window(self, window_assigner: WindowAssigner[Any, Any]) -> WINDOWED:
        """Set the windows in which records with equal keys are joined.

        Args:
            window_assigner: Assigns each record to its windows. The assigner, trigger and evictor receive each record
                as a ``TaggedUnion``.
        """
        return self._windowed(self._first, self._second, window_assigner)


class _WithWindow(Generic[T1_co, T2_co]):
    """Windows over two streams. ``apply`` ends the declaration."""

    def __init__(
        self, first: KeyedStream[T1_co], second: KeyedStream[T2_co], window_assigner: WindowAssigner[Any, Any]
    ) -> None:
        self._first, self._second = first, second
        self._windows = WindowedStream(first, window_assigner)

    def trigger(self, trigger: Trigger[Any, Any]) -> Self:
        """Set when windows emit results, overriding the assigner's default trigger.

        Args:
            trigger: The trigger.
        """
        self._windows.trigger(trigger)
        return self

    def evictor(self, evictor: Evictor[Any, Any]) -> Self:
        """Set which records of both streams a window removes when it fires.

        Args:
            evictor: The evictor.
        """
        self._windows.evictor(evictor)
        return self

    def allowed_lateness(self, time_ms: Time | Duration | int) -> Self:
        """Set how long a window accepts late records after the watermark passes its end.

        Each late record fires the window again.

        Args:
            time_ms: The lateness. An int is milliseconds.
        """
        self._windows.allowed_lateness(time_ms)
        return self

    def _apply(self, name: str, func: Any, how: str, output_type: Any) -> DataStream:
        first, second = self._first, self._second
        description = self._windows._description(combiner=None, value_type=None, call="apply")
        operator = CoGroupOperator(description, func, how, (_paying(first._type()), _paying(second._type())))
        inputs = [*first._inputs, *(replace(edge, port=1) for edge in second._inputs)]
        return first._add(name, operator, output_type, inputs)


class WindowJoin(_WithWindow[T1_co, T2_co]):
    """An inner join that pairs records of both streams that share a key and a window."""

    @overload
    def apply(
        self,
        func: FlatJoinFunction[T1_co, T2_co, R] | Callable[[T1_co, T2_co], Generator[R, Any, Any]],
        output_type: Any = None,
    ) -> DataStream[R]: ...

    @overload
    def apply(
        self, func: JoinFunction[T1_co, T2_co, R] | Callable[[T1_co, T2_co], R], output_type: Any = None
    ) -> DataStream[R]: ...

    def apply(
        self,
        func: JoinFunction[T1_co, T2_co, Any] | FlatJoinFunction[T1_co, T2_co, Any] | Callable[[T1_co, T2_co], Any],
        output_type: Any = None,
    ) -> DataStream[Any]:
        """Apply a function to each pair.

        Args:
            func: A ``JoinFunction``, a ``FlatJoinFunction``, or a function of both records. A generator function can
                yield any number of results.
            output_type: The type of the results. By default it is taken from the function's return annotation.
        """
        flat = isinstance(func, FlatJoinFunction) or inspect.isgeneratorfunction(func)
        check_function(func, FlatJoinFunction if isinstance(func, FlatJoinFunction) else JoinFunction, "apply")
        hinted = hints.yielded(func, "join") if flat else hints.returned(func, "join")
        return self._apply("Window Join", func, FLAT_JOIN if flat else JOIN, output_type or hinted)


class WindowCoGroup(_WithWindow[T1_co, T2_co]):
    """A co-group: collects all records that share a key and a window, separately for each stream."""

    def apply(
        self,
        func: CoGroupFunction[T1_co, T2_co, R] | Callable[[Iterable[T1_co], Iterable[T2_co]], Iterable[R] | None],
        output_type: Any = None,
    ) -> DataStream[R]:
        """Apply a function to the records of each window.

        Args:
            func: A ``CoGroupFunction``, or a function of the first and the second stream's records. Either can be
                empty.
            output_type: The type of the results. By default it is taken from the function's return annotation.
        """
        check_function(func, CoGroupFunction, "apply")
        return self._apply("Co-Group", func, CO_GROUP, output_type or hints.yielded(func, "co_group"))


class JoinedStreams(_Pairing[WindowJoin[T1_co, T2_co], T1_co, T2_co]):
    """A window join of two streams.

    ``first.join(second)`` returns it.

    Example:
        >>> clicks.join(ads).where(ad_of_click).equal_to(ad_id).window(assigner).apply(lambda click, ad: (click, ad))
    """

    _windowed = WindowJoin


class CoGroupedStreams(_Pairing[WindowCoGroup[T1_co, T2_co], T1_co, T2_co]):
    """A co-group of two streams.

    ``first.co_group(second)`` returns it.
    """

    _windowed = WindowCoGroup
