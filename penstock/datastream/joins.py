"""Interval joins, declared step by step as in Flink's DataStream API.

left.key_by(k).interval_join(right.key_by(k)).between(Duration.of_hours(-1), Duration.of_hours(1)).process(function)
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self

from penstock.common.time import Duration, Time, to_millis
from penstock.common.type_parameters import R, T, T1_co, T2_co
from penstock.datastream import hints
from penstock.datastream.checks import check_function
from penstock.datastream.functions import ProcessJoinFunction
from penstock.graph.logical import GraphError
from penstock.runtime.joins import IntervalJoinOperator, JoinContext, JoinInput
from penstock.runtime.output_tag import OutputTag, SideOutput

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock.datastream.data_stream import DataStream, KeyedStream


TimeLength = Duration | Time | timedelta | int
"""An int is milliseconds."""


class JoinStep:
    """An incomplete join declaration. ``_later`` holds the methods of later steps."""

    _later: ClassVar[dict[str, str]] = {}
    """By method, the calls that must precede it."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            missing = self._later.get(name)
            if missing is None:
                raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'", name=name, obj=self)
            raise GraphError(f"{name} was called on a join before {missing}.", fix=f"Write .{missing}.{name}(...).")


class IntervalJoin(JoinStep, Generic[T1_co, T2_co]):
    """An interval join without bounds.

    ``left.interval_join(right)`` returns it. Set the bounds with ``between``.
    """

    _later: ClassVar = dict.fromkeys(
        (
            "process",
            "lower_bound_exclusive",
            "upper_bound_exclusive",
            "side_output_left_late_data",
            "side_output_right_late_data",
        ),
        "between(lower, upper)",
    )

    def __init__(self, left: DataStream[T1_co], right: DataStream[T2_co]) -> None:
        self._left, self._right = _keyed(left, "left"), _keyed(right, "right")
        of_one_environment(left, right)

    def between(self, lower_bound: TimeLength, upper_bound: TimeLength) -> IntervalJoined[T1_co, T2_co]:
        """Set the interval relative to the timestamp of the left record.

        A left record at time t is paired with right records from ``t + lower_bound`` to ``t + upper_bound``, inclusive.

        Args:
            lower_bound: The start of the interval. It can be negative. An int is milliseconds.
            upper_bound: The end of the interval. It can be negative. An int is milliseconds.

        Raises:
            GraphError: If the lower bound is greater than the upper bound.

        Example:
            >>> join.between(Duration.of_hours(-1), Duration.of_minutes(1))  # an hour before to a minute after
        """
        lower, upper = _length(lower_bound, "lower"), _length(upper_bound, "upper")
        if lower > upper:
            raise GraphError(
                f"The lower bound of the interval join ({lower} ms) is greater than the upper bound ({upper} ms).",
                fix=f"Write between({upper}, {lower}); both are relative to the left record's timestamp.",
            )
        return IntervalJoined(self._left, self._right, lower, upper)


class IntervalJoined(Generic[T1_co, T2_co]):
    """An interval join with bounds. ``process`` ends the declaration."""

    def __init__(self, left: KeyedStream[T1_co], right: KeyedStream[T2_co], lower: int, upper: int) -> None:
        self._left, self._right = left, right
        self._lower, self._upper = lower, upper
        self._lower_inclusive = self._upper_inclusive = True
        self._left_late: OutputTag | None = None
        self._right_late: OutputTag | None = None

    def lower_bound_exclusive(self) -> Self:
        """Exclude pairs at exactly the lower bound."""
        self._lower_inclusive = False
        return self

    def upper_bound_exclusive(self) -> Self:
        """Exclude pairs at exactly the upper bound."""
        self._upper_inclusive = False
        return self

    def side_output_left_late_data(self, output_tag: OutputTag) -> Self:
        """Send late records of the left stream to a side output instead of dropping them.

        Args:
            output_tag: The tag of the side output.
        """
        self._left_late = _tag(output_tag, "side_output_left_late_data")
        return self

    def side_output_right_late_data(self, output_tag: OutputTag) -> Self:
        """Send late records of the right stream to a side output instead of dropping them.

        Args:
            output_tag: The tag of the side output.
        """
        self._right_late = _tag(output_tag, "side_output_right_late_data")
        return self

    def process(
        self,
        func: ProcessJoinFunction[T1_co, T2_co, R]
        | Callable[[T1_co, T2_co, JoinContext], Iterable[R | SideOutput] | None],
        output_type: Any = None,
    ) -> DataStream[R]:
        """Apply a function to each pair. A result has the later of the two timestamps.

        Args:
            func: A ``ProcessJoinFunction``, or a generator function of the left record, the right record and a context.
            output_type: The type of the results. By default it is taken from the function's return annotation.

        Raises:
            GraphError: If exclusive bounds leave no time between them.
        """
        check_function(func, ProcessJoinFunction, "process")
        lower = self._lower if self._lower_inclusive else self._lower + 1
        upper = self._upper if self._upper_inclusive else self._upper - 1
        if lower > upper:
            raise GraphError(
                f"An interval join between {self._lower} and {self._upper} ms with exclusive bounds is empty: no "
                f"millisecond lies between them.",
                fix="Remove lower_bound_exclusive() or upper_bound_exclusive(), or set the bounds further apart.",
            )
        left, right = self._left, self._right
        operator = IntervalJoinOperator(
            func, lower, upper, JoinInput(left._type(), self._left_late), JoinInput(right._type(), self._right_late)
        )
        inputs = [*left._inputs, *(replace(edge, port=1) for edge in right._inputs)]
        return left._add("Interval Join", operator, output_type or hints.yielded(func, "process_element"), inputs)


def _keyed(stream: DataStream[T], which: str) -> KeyedStream[T]:
    from penstock.datastream.data_stream import KeyedStream

    if not isinstance(stream, KeyedStream):
        given = "is not keyed" if hasattr(stream, "key_by") else f"is not a stream but {type(stream).__name__}"
        raise GraphError(
            f"The {which} stream of an interval join {given}.",
            fix="Write left.key_by(...).interval_join(right.key_by(...)). The join pairs records with equal keys.",
        )
    return stream


def of_one_environment(first: DataStream, second: DataStream) -> None:
    """Raise GraphError unless both streams belong to the same environment."""
    if not hasattr(second, "_env"):
        raise GraphError(
            f"A stream can only be joined with another stream, not with {type(second).__name__}.",
            fix="Create a stream, for example with env.from_collection(...).",
        )
    if first._env is not second._env:
        raise GraphError(
            "Only streams of the same environment can be joined.",
            fix="Create both streams from one env = StreamExecutionEnvironment.get_execution_environment().",
        )


def _length(bound: TimeLength, which: str) -> int:
    try:
        return to_millis(bound)
    except (TypeError, ValueError) as error:
        raise GraphError(
            f"The {which} bound of the interval join is invalid: {error}",
            fix="Write between(Duration.of_hours(-1), ...).",
        ) from None


def _tag(output_tag: OutputTag, method: str) -> OutputTag:
    if not isinstance(output_tag, OutputTag):
        raise GraphError(
            f"{method} needs an OutputTag, not {type(output_tag).__name__}.", fix=f'Write {method}(OutputTag("late")).'
        )
    return output_tag
