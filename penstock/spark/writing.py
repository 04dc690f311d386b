"""``ds.to_spark(schema)``: any Spark writer as a sink, through the write-ahead log.

Rows wait in the log of their epoch. When its checkpoint is complete, the driver builds a DataFrame of them and passes
it to the writer. If the driver dies at that point, the next one passes it again. The guarantee therefore depends on the
format.
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
    """The epoch that a DataFrame's rows belong to."""

    number: int
    key: str
    """A permanent, unique ID of these rows. It is the same when the rows are passed again, and no other epoch of any
    run or sink has it. A system that stores it with the rows can skip duplicates."""
    again: bool
    """Whether an earlier driver might have passed these rows already."""


class SparkWriterFailed(PenstockError):
    """Spark could not write an epoch's rows.

    Operator action: fix the cause in Spark's message. The rows are in the job's checkpoint and are written when the
    job restarts.
    """


class Target(NamedTuple):
    """What to do with an epoch's rows, and the resulting guarantee."""

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
        except Exception as error:  # from Spark or the user's function
            raise SparkWriterFailed(
                f"Sink '{context.uid}' ({self._target.name}) could not write epoch {epoch.number}: {_said(error)}",
                fix="The rows stay in the checkpoint and are written when the job starts again.",
            ) from error


def _said(error: Exception) -> str:
    """Return the message of a Spark error without JVM frames."""
    lines = [line for line in str(error).splitlines() if not line.startswith(_FRAMES)]
    return f"{type(error).__name__}: {' '.join(' '.join(lines).split()).removeprefix(': ')}"[:4000]


_FRAMES = ("\tat ", "\t...", "Caused by: ", "An error occurred while calling ", "JVM stacktrace:")


def arrow_schema(schema: StructType) -> Any:
    try:
        return to_arrow_schema(schema, timezone="UTC", error_on_duplicated_field_names_in_struct=True)
    except Exception as error:  # several PySpark classes
        raise GraphError(f"to_spark: the schema {schema.simpleString()} has no Arrow types: {error}") from None


def struct_of(schema: Any, session: Callable[[], SparkSession]) -> StructType:
    """Return the schema as a StructType. Spark parses a string."""
    if isinstance(schema, str):
        try:
            session()
            schema = StructType.fromDDL(schema)
        except Exception as error:  # from the parser in the JVM
            raise GraphError(f"to_spark: {schema!r} is not a valid schema. {_said(error)}", fix=_SCHEMA) from None
    if not isinstance(schema, StructType) or not schema.fields:
        raise GraphError(f"to_spark needs the schema of the rows, not {schema!r}.", fix=_SCHEMA)
    return schema


_SCHEMA = "Pass columns and types as in 'id long, name string', or a StructType."


class ToSpark:
    """Configures where the rows go, like Spark's ``DataFrameWriter``.

    End the chain of calls with :meth:`save`, :meth:`save_as_table` or :meth:`foreach_epoch`.

    Example:
        .. code-block:: python

            ds.to_spark("id long, name string").format("json").save("/data/out")
    """

    def __init__(self, end: Callable[[str, Sink], Any], session: Callable[[], SparkSession], schema: Any) -> None:
        self._end = end
        self._session = session
        self._schema = struct_of(schema, session)
        self._format = "parquet"
        self._options: dict[str, Any] = {}
        self._columns: tuple[str, ...] = ()
        arrow_schema(self._schema)

    def format(self, source: str) -> ToSpark:
        """Set the format of the writer; the default is ``parquet``."""
        self._format = source
        return self

    def option(self, key: str, value: Any) -> ToSpark:
        """Set an option of the writer.

        Raises:
            GraphError: The option is ``txnAppId`` or ``txnVersion``, which Penstock sets itself.
        """
        if key in _DELTA:
            raise GraphError(f"to_spark sets {key} itself, to identify the job and the epoch.", fix="Leave it out.")
        self._options[key] = value
        return self

    def options(self, **options: Any) -> ToSpark:
        """Set several options of the writer; see :meth:`option`."""
        for key, value in options.items():
            self.option(key, value)
        return self

    def partition_by(self, *columns: str) -> ToSpark:
        """Partition the output by these columns.

        Raises:
            GraphError: The schema has no such column.
        """
        unknown = [column for column in columns if column not in self._schema.names]
        if unknown:
            raise GraphError(f"to_spark: no column {unknown[0]!r} in the schema, only {', '.join(self._schema.names)}.")
        self._columns = columns
        return self

    def mode(self, save_mode: str) -> ToSpark:
        """Set the save mode. Only ``append`` is possible for a stream.

        Raises:
            GraphError: The mode is not ``append``.
        """
        if save_mode != "append":
            raise GraphError(
                f"to_spark: each epoch adds rows, so the only mode is 'append', not {save_mode!r}.",
                fix="To do something else with an epoch's rows, use foreach_epoch(lambda df, epoch: ...).",
            )
        return self

    def save(self, path: str | None = None) -> Any:
        """End the stream in a path, or in a format without one.

        File formats write each epoch to a separate directory below ``path``: ``epoch=...``.

        Args:
            path: Directory for the files; optional for formats that are not files.

        Raises:
            GraphError: The format needs a path, or does not support the schema.
        """
        if self._format.lower() in _FILES:
            return self._finish(self._to_files(path))
        return self._finish(self._elsewhere(lambda writer: writer.save(path), path or ""))

    def save_as_table(self, name: str) -> Any:
        """End the stream in a table of Spark's catalog."""
        return self._finish(self._elsewhere(lambda writer: writer.saveAsTable(name), name))

    def foreach_epoch(self, function: Callable[[DataFrame, Epoch], Any]) -> Any:
        """End the stream in a function that the driver calls with the rows of each epoch.

        The function is not called for epochs without rows.

        Args:
            function: Called with a DataFrame, which is valid only during the call, and its :class:`Epoch`.

        Raises:
            GraphError: ``function`` is not callable.
        """
        if not callable(function):
            raise GraphError(f"foreach_epoch needs a function of (df, epoch), not {function!r}.")
        name = getattr(function, "__name__", type(function).__name__)
        why = "its function is called again with the same epoch.key if the driver dies before the commit is recorded"
        return self._finish(Target(f"foreach_epoch {name}", function, AT_LEAST_ONCE, why))

    def _finish(self, target: Target) -> Any:
        return self._end(f"To Spark: {target.name}", SparkSink(self._session, self._schema, target))

    def _to_files(self, path: str | None) -> Target:
        if not path:
            raise GraphError(f"to_spark: {self._format} needs a path.", fix="Pass one: .save('/path').")
        if self._format.lower() == "text" and [type(field.dataType) for field in self._schema] != [StringType]:
            raise GraphError("to_spark: text files have one string column.", fix="Use the schema 'value string'.")
        base = path.rstrip("/")

        def write(frame: DataFrame, epoch: Epoch) -> None:
            # Replace the output of an unfinished attempt, including all its partitions.
            writer = frame.write.format(self._format).options(**self._options).mode("overwrite")
            writer = writer.option("partitionOverwriteMode", "static").partitionBy(*self._columns)
            writer.save(f"{base}/epoch={epoch.key}")

        why = "each epoch has a separate directory, which is replaced when the epoch is written again"
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
            why = "Delta skips a txnVersion that it has already seen for a txnAppId, and these identify job and epoch"
            return Target(f"{self._format} {place}".strip(), write, EXACTLY_ONCE, why)
        why = f"Spark's writer '{self._format}' cannot detect that it gets an epoch again after the driver died"
        return Target(f"{self._format} {place}".strip(), write, AT_LEAST_ONCE, why)
