"""`ds.to_spark(schema)`: any writer of Spark's as a sink, through the write-ahead log.

Rows wait in the log of their epoch. When its checkpoint is complete, the driver makes a DataFrame of them and hands it
to the writer. A driver that dies just then lets the next one hand it over again; so what holds is up to the format.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructType

from penstock.connectors.arrow_rows import ArrowWriter
from penstock.connectors.sink import AT_LEAST_ONCE, EXACTLY_ONCE, Sink, SinkWriter
from penstock.driver.committing import Commit, CommitContext
from penstock.errors import PenstockError
from penstock.graph.logical import GraphError
from penstock.runtime.context import RuntimeContext
from penstock.spark.epoch_frames import epoch_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FILES = ("parquet", "json", "csv", "orc", "text", "avro", "xml")
_DELTA = ("txnAppId", "txnVersion")


class Epoch(NamedTuple):
    """Which epoch a DataFrame has the rows of."""

    number: int
    key: str
    """Names these rows for good: it is the same when they are handed over again, and no other epoch of any run or sink
    has it. A system that stores it with them can leave out what it has."""
    again: bool
    """Whether a driver before this one may have handed them over."""


class SparkWriterFailed(PenstockError):
    """Spark could not write an epoch's rows.

    Operator action: see what Spark says; the rows are in the job's checkpoint and are written when it is restarted.
    """


class Target(NamedTuple):
    """What is done with an epoch's rows, and what that guarantees."""

    name: str
    write: Callable[[DataFrame, Epoch], Any]
    guarantee: str
    why: str


class SparkSink(Sink):
    reads_only = True

    def __init__(self, session: Callable[[], SparkSession], schema: StructType, target: Target) -> None:
        self._session = session
        self._schema = schema
        self._target = target
        self._arrow = arrow_schema(schema)
        self._types = [field.dataType.simpleString() + ("" if field.nullable else " not null") for field in schema]
        self.guarantee, self.why = target.guarantee, target.why

    def __getstate__(self) -> dict[str, Any]:
        return {"_arrow": self._arrow, "_types": self._types}

    def create_writer(self, context: RuntimeContext) -> SinkWriter:
        return ArrowWriter(self._arrow, self._types, context)

    def commit(self, commits: list[Commit], context: CommitContext) -> None:
        first = commits[0]
        token = hashlib.blake2b(f"{first.lineage} {context.uid}".encode(), digest_size=8).hexdigest()
        epoch = Epoch(first.epoch, f"{token}-{first.epoch:012d}", first.again)
        frame = epoch_frame(self._session(), commits, context, self._schema, self._arrow)
        try:
            self._target.write(frame, epoch)
        except Exception as error:  # Spark's, or of the user's function
            raise SparkWriterFailed(
                f"The sink '{context.uid}' ({self._target.name}) could not write epoch {epoch.number}: {_said(error)}",
                fix="The rows stay in the checkpoint, and are written when the job is started again.",
            ) from error


def _said(error: Exception) -> str:
    """What an error of Spark's says, without the frames of the JVM."""
    lines = [line for line in str(error).splitlines() if not line.startswith(_FRAMES)]
    return f"{type(error).__name__}: {' '.join(' '.join(lines).split()).removeprefix(': ')}"[:4000]


_FRAMES = ("\tat ", "\t...", "Caused by: ", "An error occurred while calling ", "JVM stacktrace:")


def arrow_schema(schema: StructType) -> Any:
    try:
        return to_arrow_schema(schema, timezone="UTC", error_on_duplicated_field_names_in_struct=True)
    except Exception as error:  # PySpark's own, of several classes
        raise GraphError(f"to_spark: the schema {schema.simpleString()} has no Arrow types: {error}") from None


def struct_of(schema: Any, session: Callable[[], SparkSession]) -> StructType:
    """A StructType as it is; a string is parsed by Spark."""
    if isinstance(schema, str):
        try:
            session()
            schema = StructType.fromDDL(schema)
        except Exception as error:  # the parser's, from the JVM
            raise GraphError(f"to_spark: {schema!r} is no schema. {_said(error)}", fix=_SCHEMA) from None
    if not isinstance(schema, StructType) or not schema.fields:
        raise GraphError(f"to_spark needs the schema of the rows, not {schema!r}.", fix=_SCHEMA)
    return schema


_SCHEMA = "Give columns and types as in 'id long, name string', or a StructType."


class ToSpark:
    """Says where the rows go: as a DataFrameWriter does, with `save`, `save_as_table` or `foreach_epoch` at its end."""

    def __init__(self, end: Callable[[str, Sink], Any], session: Callable[[], SparkSession], schema: Any) -> None:
        self._end = end
        self._session = session
        self._schema = struct_of(schema, session)
        self._format = "parquet"
        self._options: dict[str, Any] = {}
        self._columns: tuple[str, ...] = ()
        arrow_schema(self._schema)

    def format(self, source: str) -> ToSpark:
        """The writer; `parquet` if none is given."""
        self._format = source
        return self

    def option(self, key: str, value: Any) -> ToSpark:
        if key in _DELTA:
            raise GraphError(f"to_spark sets {key} itself: to what names the job and the epoch.", fix="Leave it out.")
        self._options[key] = value
        return self

    def options(self, **options: Any) -> ToSpark:
        for key, value in options.items():
            self.option(key, value)
        return self

    def partition_by(self, *columns: str) -> ToSpark:
        unknown = [column for column in columns if column not in self._schema.names]
        if unknown:
            raise GraphError(f"to_spark: there is no column {unknown[0]!r}; there are {', '.join(self._schema.names)}.")
        self._columns = columns
        return self

    def mode(self, save_mode: str) -> ToSpark:
        """`append`, which is what a stream does."""
        if save_mode != "append":
            raise GraphError(
                f"to_spark: each epoch adds to what there is, so its mode is 'append', not {save_mode!r}.",
                fix="To do something else with an epoch's rows use foreach_epoch(lambda df, epoch: ...).",
            )
        return self

    def save(self, path: str | None = None) -> Any:
        """End the stream here. Files of an epoch go to a directory of their own below `path`: `epoch=...`."""
        if self._format.lower() in _FILES:
            return self._finish(self._to_files(path))
        return self._finish(self._elsewhere(lambda writer: writer.save(path), path or ""))

    def save_as_table(self, name: str) -> Any:
        """End the stream in a table of Spark's catalog."""
        return self._finish(self._elsewhere(lambda writer: writer.saveAsTable(name), name))

    def foreach_epoch(self, function: Callable[[DataFrame, Epoch], Any]) -> Any:
        """End the stream in a function that is called in the driver with each epoch's rows and its `Epoch`.

        Not for an epoch without rows. The DataFrame is to be used within the call.
        """
        if not callable(function):
            raise GraphError(f"foreach_epoch needs a function of (df, epoch), not {function!r}.")
        name = getattr(function, "__name__", type(function).__name__)
        why = "its function gets an epoch again if the driver dies before it is noted, with the same epoch.key"
        return self._finish(Target(f"foreach_epoch {name}", function, AT_LEAST_ONCE, why))

    def _finish(self, target: Target) -> Any:
        return self._end(f"To Spark: {target.name}", SparkSink(self._session, self._schema, target))

    def _to_files(self, path: str | None) -> Target:
        if not path:
            raise GraphError(f"to_spark: {self._format} needs a path.", fix="Give one: .save('/path').")
        if self._format.lower() == "text" and [type(field.dataType) for field in self._schema] != [StringType]:
            raise GraphError("to_spark: text files have one column, of strings.", fix="Use a schema 'value string'.")
        base = path.rstrip("/")

        def write(frame: DataFrame, epoch: Epoch) -> None:
            # What an attempt left that did not come to its end is replaced, with all its partitions.
            writer = frame.write.format(self._format).options(**self._options).mode("overwrite")
            writer = writer.option("partitionOverwriteMode", "static").partitionBy(*self._columns)
            writer.save(f"{base}/epoch={epoch.key}")

        why = "each epoch has a directory of its own, which is replaced when the epoch is written again"
        return Target(f"{self._format} {path}", write, EXACTLY_ONCE, why)

    def _elsewhere(self, save: Callable[[Any], None], place: str) -> Target:
        delta = self._format.lower() == "delta"

        def write(frame: DataFrame, epoch: Epoch) -> None:
            writer = frame.write.format(self._format).options(**self._options).mode("append")
            if self._columns:
                writer = writer.partitionBy(*self._columns)
            if delta:
                token = epoch.key.partition("-")[0]
                writer = writer.option("txnAppId", f"penstock-{token}").option("txnVersion", epoch.number)
            save(writer)

        if delta:
            why = "Delta leaves out a txnVersion that it has seen of a txnAppId, and these name the job and the epoch"
            return Target(f"{self._format} {place}".strip(), write, EXACTLY_ONCE, why)
        why = f"Spark's writer '{self._format}' cannot tell that it is given an epoch again after the driver has died"
        return Target(f"{self._format} {place}".strip(), write, AT_LEAST_ONCE, why)
