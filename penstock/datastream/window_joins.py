"""Joins and co-groups over windows, step by step as in Flink's DataStream API.

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
"""What the declaration becomes with its window: a join or a co-group."""

_WINDOWED = ("apply", "trigger", "evictor", "allowed_lateness")


class _Pairing(JoinStep, Generic[WINDOWED, T1_co, T2_co]):
    """Two streams that will meet in windows. Next comes `where`."""

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
        """The key of the first stream's records."""
        check_function(key_selector, KeySelector, "where")
        first, second = self._streams
        return Where(first.key_by(key_selector, key_type), second, cast("type[WINDOWED]", self._windowed))


class Where(JoinStep, Generic[WINDOWED, T1_co, T2_co, K_co]):
    """The first stream has its key. Next comes `equal_to`."""

    _later: ClassVar = dict.fromkeys(("window", *_WINDOWED), "equal_to(key of the second stream)")

    def __init__(self, first: KeyedStream[T1_co, K_co], second: DataStream[T2_co], windowed: type[WINDOWED]) -> None:
        self._first, self._second, self._windowed = first, second, windowed

    def equal_to(
        self, key_selector: Callable[[T2_co], K_co] | KeySelector[T2_co, K_co], key_type: Any = None
    ) -> EqualTo[WINDOWED, T1_co, T2_co]:
        """The key of the second stream's records: those with equal keys meet."""
        check_function(key_selector, KeySelector, "equal_to")
        return EqualTo(self._first, self._second.key_by(key_selector, key_type), self._windowed)


class EqualTo(JoinStep, Generic[WINDOWED, T1_co, T2_co]):
    """Both streams have their keys. Next comes `window`."""

    _later: ClassVar = dict.fromkeys(_WINDOWED, "window(assigner)")

    def __init__(self, first: KeyedStream[T1_co], second: KeyedStream[T2_co], windowed: type[WINDOWED]) -> None:
        self._first, self._second, self._windowed = first, second, windowed

    def window(self, window_assigner: WindowAssigner[Any, Any]) -> WINDOWED:
        """The windows in which records of equal keys meet. Assigner, trigger and evictor are given TaggedUnions."""
        return self._windowed(self._first, self._second, window_assigner)


class _WithWindow(Generic[T1_co, T2_co]):
    """Windows of two streams. `apply` ends the declaration."""

    def __init__(
        self, first: KeyedStream[T1_co], second: KeyedStream[T2_co], window_assigner: WindowAssigner[Any, Any]
    ) -> None:
        self._first, self._second = first, second
        self._windows = WindowedStream(first, window_assigner)

    def trigger(self, trigger: Trigger[Any, Any]) -> Self:
        """When windows give results, instead of the assigner's own trigger."""
        self._windows.trigger(trigger)
        return self

    def evictor(self, evictor: Evictor[Any, Any]) -> Self:
        """What windows forget when they fire, of both streams together."""
        self._windows.evictor(evictor)
        return self

    def allowed_lateness(self, time_ms: Time | Duration | int) -> Self:
        """How long after the watermark has passed its end a window still takes records, and fires with each."""
        self._windows.allowed_lateness(time_ms)
        return self

    def _apply(self, name: str, func: Any, how: str, output_type: Any) -> DataStream:
        first, second = self._first, self._second
        description = self._windows._description(combiner=None, value_type=None, call="apply")
        operator = CoGroupOperator(description, func, how, (_paying(first._type()), _paying(second._type())))
        inputs = [*first._inputs, *(replace(edge, port=1) for edge in second._inputs)]
        return first._add(name, operator, output_type, inputs)


class WindowJoin(_WithWindow[T1_co, T2_co]):
    """An inner join: each pair of a record of the first stream with one of the second, of one key and window."""

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
        """Call `func(first, second)` with each pair. A generator function may yield any number of results."""
        flat = isinstance(func, FlatJoinFunction) or inspect.isgeneratorfunction(func)
        check_function(func, FlatJoinFunction if isinstance(func, FlatJoinFunction) else JoinFunction, "apply")
        hinted = hints.yielded(func, "join") if flat else hints.returned(func, "join")
        return self._apply("Window Join", func, FLAT_JOIN if flat else JOIN, output_type or hinted)


class WindowCoGroup(_WithWindow[T1_co, T2_co]):
    """All records of one key and window, those of each stream for themselves; one of the two may have none."""

    def apply(
        self,
        func: CoGroupFunction[T1_co, T2_co, R] | Callable[[Iterable[T1_co], Iterable[T2_co]], Iterable[R] | None],
        output_type: Any = None,
    ) -> DataStream[R]:
        """Call `func(records of the first, records of the second)` with each window."""
        check_function(func, CoGroupFunction, "apply")
        return self._apply("Co-Group", func, CO_GROUP, output_type or hints.yielded(func, "co_group"))


class JoinedStreams(_Pairing[WindowJoin[T1_co, T2_co], T1_co, T2_co]):
    """Given by `first.join(second)`."""

    _windowed = WindowJoin


class CoGroupedStreams(_Pairing[WindowCoGroup[T1_co, T2_co], T1_co, T2_co]):
    """Given by `first.co_group(second)`."""

    _windowed = WindowCoGroup
