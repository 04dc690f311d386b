"""Environment methods of PyFlink 1 and of Flink's Java API that programs still call."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.files.file_source import FileSource
from penstock.connectors.files.formats import StreamFormat
from penstock.connectors.source import Source
from penstock.datastream.data_stream import DataStream
from penstock.datastream.functions import SourceFunction
from penstock.datastream.job_listeners import JobListeners
from penstock.datastream.time_characteristic import TimeCharacteristic
from penstock.graph.logical import GraphError


class EnvironmentInputs(ABC):
    """The methods of ``StreamExecutionEnvironment`` for older programs."""

    _listeners: JobListeners
    _time_characteristic: TimeCharacteristic

    @abstractmethod
    def from_source(
        self,
        source: Source[Any],
        watermark_strategy: WatermarkStrategy | None = None,
        source_name: str | None = None,
        type_info: Any = None,
    ) -> DataStream[Any]:
        """Create a stream from a source."""

    @abstractmethod
    def from_collection(self, collection: Iterable[Any], type_info: Any = None) -> DataStream[Any]:
        """Create a bounded stream from an iterable."""

    @abstractmethod
    def from_sequence(self, start: int, end: int) -> DataStream[int]:
        """Create a bounded stream of consecutive integers."""

    # -- sources -------------------------------------------------------------------------------------------------------

    def add_source(
        self, source_func: Any, source_name: str = "Custom Source", type_info: Any = None
    ) -> DataStream[Any]:
        """Create a stream from a ``FlinkKafkaConsumer``, or from a source. Use ``from_source`` in new programs.

        Args:
            source_func: A ``FlinkKafkaConsumer`` or a ``Source``.
            source_name: The name of the source operator.
            type_info: The type of the records.

        Raises:
            GraphError: For anything else, such as a ``SourceFunction``.
        """
        source = source_func.to_source() if hasattr(source_func, "to_source") else source_func
        if isinstance(source, Source):
            return self.from_source(source, None, source_name, type_info)
        kind = "a SourceFunction, which wraps a Java object" if isinstance(source, SourceFunction) else repr(source)
        raise GraphError(
            f"add_source cannot read from {kind}.",
            fix="Use env.from_source(...) with a connector or your own penstock.datastream.connectors.Source, "
            "env.from_collection(...), or env.from_spark(df) for anything that Spark reads.",
        )

    def read_text_file(self, file_path: str, charset_name: str = "UTF-8") -> DataStream[str]:
        """Create a bounded stream of the lines of a file, or of all files in a folder.

        Args:
            file_path: The path of the file or folder.
            charset_name: The encoding of the text.
        """
        source = FileSource.for_record_stream_format(StreamFormat.text_line_format(charset_name), file_path).build()
        return self.from_source(source, None, "Text file source")

    def from_parallel_collection(self, collection: Iterable[Any], type_info: Any = None) -> DataStream[Any]:
        """Create a bounded stream from an iterable, like ``from_collection``.

        Args:
            collection: The records.
            type_info: The type of the records.
        """
        return self.from_collection(collection, type_info)

    def generate_sequence(self, start: int, end: int) -> DataStream[int]:
        """Create a bounded stream of consecutive integers, like ``from_sequence``.

        Args:
            start: The first integer.
            end: The last integer, inclusive.
        """
        return self.from_sequence(start, end)

    # -- listeners and time --------------------------------------------------------------------------------------------

    def register_job_listener(self, job_listener: Any) -> None:
        """Call an object when a job of this environment starts and ends.

        Args:
            job_listener: A ``JobListener``, or any object with ``on_job_submitted(client, error)`` or
                ``on_job_executed(result, error)``.
        """
        self._listeners.add(job_listener)

    def get_job_listeners(self) -> list[Any]:
        """Return the registered listeners."""
        return self._listeners.all()

    def clear_job_listeners(self) -> None:
        """Remove all listeners."""
        self._listeners.clear()

    def set_stream_time_characteristic(self, characteristic: TimeCharacteristic) -> None:
        """Set the time of windows that ``time_window`` and ``time_window_all`` create from now on.

        Args:
            characteristic: ``EventTime``, the default, or ``ProcessingTime``.

        Raises:
            GraphError: For ``IngestionTime``, which sources do not assign.
        """
        characteristic = TimeCharacteristic(characteristic)
        if characteristic is TimeCharacteristic.IngestionTime:
            raise GraphError(
                "TimeCharacteristic.IngestionTime is not available: sources do not assign the time of reading.",
                fix="Use TimeCharacteristic.ProcessingTime, or assign timestamps with "
                "ds.assign_timestamps_and_watermarks(...).",
            )
        self._time_characteristic = characteristic

    def get_stream_time_characteristic(self) -> TimeCharacteristic:
        """Return the time of windows that ``time_window`` and ``time_window_all`` create."""
        return self._time_characteristic
