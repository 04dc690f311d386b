"""Sinks that transform their stream before they write it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any


class StreamTransformer(ABC):
    """Transforms a stream."""

    @abstractmethod
    def apply(self, ds: Any) -> Any:
        """Return the stream to write.

        Args:
            ds: The stream that the program passes to the sink.
        """


class SupportsPreprocessing(ABC):
    """A sink with a transformer. ``ds.sink_to(sink)`` writes the transformed stream."""

    @abstractmethod
    def get_transformer(self) -> StreamTransformer | None:
        """Return the transformer, or None."""
