"""The function classes for windows and joins."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Generic, TypeAlias

from penstock.common.type_parameters import IN, IN1, IN2, KEY, OUT, W
from penstock.datastream.function_base import Function, Results, ResultsAndSideOutputs
from penstock.runtime.joins import JoinContext
from penstock.runtime.windows.contexts import WindowContext


class ProcessJoinFunction(Function, Generic[IN1, IN2, OUT]):
    """A function for interval joins that receives each pair of records with nearby timestamps."""

    Context: TypeAlias = JoinContext

    @abstractmethod
    def process_element(self, left: IN1, right: IN2, ctx: JoinContext) -> ResultsAndSideOutputs[OUT]:
        """Yield any number of results for a pair of records.

        Args:
            left: The record of the left stream.
            right: The record of the right stream.
            ctx: Provides the timestamps of both records.
        """


class JoinFunction(Function, Generic[IN1, IN2, OUT]):
    """A function for window joins that receives each pair of records that share a key and a window."""

    @abstractmethod
    def join(self, first: IN1, second: IN2) -> OUT:
        """Return the result for a pair of records."""


class FlatJoinFunction(Function, Generic[IN1, IN2, OUT]):
    """A ``JoinFunction`` that returns any number of results for each pair."""

    @abstractmethod
    def join(self, first: IN1, second: IN2) -> Results[OUT]:
        """Yield any number of results for a pair of records."""


class CoGroupFunction(Function, Generic[IN1, IN2, OUT]):
    """A function that receives all records that share a key and a window, grouped by stream."""

    @abstractmethod
    def co_group(self, first: Iterable[IN1], second: Iterable[IN2]) -> Results[OUT]:
        """Yield any number of results for a window. Either group can be empty."""


class WindowFunction(Function, Generic[IN, OUT, KEY, W]):
    """A function that receives the records of one key and window."""

    @abstractmethod
    def apply(self, key: KEY, window: W, inputs: Iterable[IN]) -> Results[OUT]:
        """Yield any number of results for a window."""


class AllWindowFunction(Function, Generic[IN, OUT, W]):
    """A function that receives the records of one window of a stream without keys."""

    @abstractmethod
    def apply(self, window: W, inputs: Iterable[IN]) -> Results[OUT]:
        """Yield any number of results for a window."""


class ProcessWindowFunction(Function, Generic[IN, OUT, KEY, W]):
    """A function that receives the records of one key and window, with a context.

    It can yield ``tag, value`` to emit to a side output.
    """

    Context: TypeAlias = WindowContext

    @abstractmethod
    def process(self, key: KEY, context: WindowContext[W], elements: Iterable[IN]) -> ResultsAndSideOutputs[OUT]:
        """Yield any number of results for a window.

        Args:
            key: The key.
            context: Provides the window, its state, the current watermark and processing time.
            elements: The records in the window.
        """

    def clear(self, context: WindowContext[W]) -> None:
        """Clear the state in ``context.window_state()``. It is called when the window is discarded."""


class ProcessAllWindowFunction(Function, Generic[IN, OUT, W]):
    """A function that receives the records of one window of a stream without keys, with a context."""

    Context: TypeAlias = WindowContext

    @abstractmethod
    def process(self, context: WindowContext[W], elements: Iterable[IN]) -> ResultsAndSideOutputs[OUT]:
        """Yield any number of results for a window.

        Args:
            context: Provides the window, its state, the current watermark and processing time.
            elements: The records in the window.
        """

    def clear(self, context: WindowContext[W]) -> None:
        """Clear the state in ``context.window_state()``. It is called when the window is discarded."""
