"""Python sources as a Spark streaming data source whose offsets are positions and whose rows are ranges.

Only ranges pass through Spark. The task that runs the source's chain reads the records, so they never cross a process
boundary on the way to it.
"""

from __future__ import annotations

import base64
import pickle
import signal
import threading
from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from penstock.common.program import enter_program
from penstock.connectors.source import Positions, Source, SplitRange, ranges
from penstock.errors import PenstockError
from penstock.runtime.failures import describe_error, user_traceback
from penstock.spark.credit_files import CreditsOfSource

RANGE_SCHEMA = "split string, start string, end string"
_FORMAT = "penstock"
_SOURCE = "penstock.secret.source"
_PROGRAM = "penstock.secret.program"
"""Spark redacts options with the word `secret` in its logs. A source can hold a password."""
PLANNING_FAILED = "PENSTOCK-SOURCE "
"""Marks a failure's text on its way through the JVM."""
NOT_RETRYABLE = "not-retryable:"
"""Follows that mark if the failure would recur: the restart strategy does not apply then."""


def planned_stream(
    spark: SparkSession,
    name: str,
    pickled: bytes,
    parallelism: int,
    records_per_epoch: int,
    credits: str | None,
    program: bytes,
) -> DataFrame:
    """Return the ranges of each epoch as a streaming DataFrame.

    `credits`: the source's credit file, if it has one. `program`: the classes that the planner process cannot import.
    """
    spark.dataSource.register(PlannedSource)
    reader = spark.readStream.format(_FORMAT).option(_SOURCE, base64.b64encode(pickled).decode())
    reader = reader.option("name", name).option("parallelism", parallelism)
    reader = reader.option(_PROGRAM, base64.b64encode(program).decode())
    if records_per_epoch:
        reader = reader.option("limit", records_per_epoch)
    if credits is not None:
        reader = reader.option("credits", credits)
    return reader.load()


def _hear_signals() -> None:
    """Let Spark end this process with SIGTERM. The driver's JVM and its child processes ignore it by default."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_IGN:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


class PlannedSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return _FORMAT

    def schema(self) -> str:
        return RANGE_SCHEMA

    def streamReader(self, schema: Any) -> Planner:
        limit = self.options.get("limit")
        _hear_signals()
        return Planner(
            self.options["name"],
            self.options[_SOURCE],
            self.options[_PROGRAM],
            int(self.options["parallelism"]),
            None if limit is None else int(limit),
            self.options.get("credits"),
        )


class Planner(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Runs in a separate process that Spark starts next to the driver; `read` runs in the tasks."""

    def __init__(
        self, name: str, encoded: str, program: str, parallelism: int, limit: int | None, credits: str | None
    ) -> None:
        self._name = name
        self._encoded = encoded
        self._program = program
        self._parallelism = parallelism
        self._limit = limit
        self._credits = None if credits is None else CreditsOfSource(credits)
        self._opened: Source | None = None

    @property
    def _source(self) -> Source:
        if self._opened is None:
            # This job's driver wrote these bytes a moment ago.
            enter_program(base64.b64decode(self._program))
            self._opened = pickle.loads(base64.b64decode(self._encoded))
        return self._opened

    def prepareForTriggerAvailableNow(self) -> None:
        """Do nothing: a bounded source ends by itself."""

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable() if self._limit is None else ReadMaxRows(self._limit)

    def initialOffset(self) -> Positions:
        with _named(self._name):
            return self._source.start(self._parallelism)

    def latestOffset(self, start: Positions, limit: ReadLimit) -> Positions:
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        with _named(self._name):
            if self._credits is None:
                return self._source.advance(start, most)
            end = self._source.advance(start, self._credits.limit(most))
            if end != start:
                self._credits.tell(self._source.backlog(end))
            return end

    def partitions(self, start: Positions, end: Positions) -> list[InputPartition]:
        """Return at most as many partitions as the job's parallelism. A task can read several splits in turn."""
        changed = ranges(start, end)
        shares = [changed[number :: self._parallelism] for number in range(self._parallelism)]
        return [InputPartition(share) for share in shares if share]

    def read(self, partition: InputPartition) -> Iterator[SplitRange]:
        yield from partition.value

    def commit(self, end: Positions) -> None:
        with _named(self._name):
            self._source.commit(end)

    def stop(self) -> None:
        if self._credits is not None:
            self._credits.close()
        if self._opened is not None:
            self._opened.close()


class _named:
    """Adds the source's name to a failure of the user's source, and keeps only the user's frames."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, Exception):
            parts = (
                f"Source '{self._name}' failed while planning an epoch:",
                user_traceback(error),
                describe_error(error),
            )
            encoded = base64.b64encode("\n".join(filter(None, parts)).encode()).decode()
            mark = NOT_RETRYABLE if isinstance(error, PenstockError) and not error.retryable else ""
            raise RuntimeError(PLANNING_FAILED + mark + encoded) from None
