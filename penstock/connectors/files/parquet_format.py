"""Parquet files, read as Rows or as records of a given type."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.common.fields import columns_of
from penstock.common.row import Row
from penstock.common.typeinfo import RowTypeInfo
from penstock.connectors.files.formats import BulkFormat
from penstock.connectors.files.input_file import BrokenContents, InputFile, UnreadableFile, gone
from penstock.errors import PenstockError


class ParquetFormat(BulkFormat):
    """Holds one column chunk per column and `batch_size` records in memory."""

    def __init__(self, columns: Sequence[str] | None, value_type: Any, batch_size: int) -> None:
        if type(batch_size) is not int or batch_size < 1:
            raise PenstockError(f"Parquet: batch_size must be a positive int, not {batch_size!r}.")
        if columns is None and value_type is not None:
            columns = list(columns_of(value_type))
        self._columns = None if columns is None else list(columns)
        self._record = None if isinstance(value_type, RowTypeInfo) else value_type
        self._batch_size = batch_size

    def read(self, file: InputFile) -> Iterator[Any]:
        rows = 0
        try:
            # Memory mapping and pre-buffering would hold more of the file in memory than is being read.
            with pq.ParquetFile(file.path, memory_map=False, pre_buffer=False) as parquet:
                columns = self._names(parquet.schema_arrow.names)
                for batch in parquet.iter_batches(self._batch_size, columns=columns):
                    yield from self._records(batch, tuple(columns), rows, file)
                    rows += batch.num_rows
        except FileNotFoundError as error:
            raise gone(file.path) from error
        except (pa.ArrowInvalid, OSError) as error:
            # An error of the operating system does not concern the contents, and can be temporary.
            if isinstance(error, OSError) and error.errno is not None:
                raise UnreadableFile(f"The file {file.path} cannot be read: {error}.") from error
            raise BrokenContents(f"from row {rows + 1} on", b"", f"It cannot be read as Parquet: {error}") from error

    def _names(self, there: list[str]) -> list[str]:
        columns = there if self._columns is None else self._columns
        missing = [name for name in columns if name not in there]
        if missing:
            reason = f"it has no column {', '.join(missing)}; its columns are {', '.join(there)}"
            raise BrokenContents("from row 1 on", b"", reason)
        return columns

    def _records(self, batch: pa.RecordBatch, names: tuple[str, ...], before: int, file: InputFile) -> Iterator[Any]:
        values = list(zip(*(batch.column(name).to_pylist() for name in names))) if names else []
        if self._record is None:
            yield from Row.many(names, values)
            return
        for each in values:
            fields = dict(zip(names, each))
            try:
                record = msgspec.convert(fields, self._record)
            except msgspec.ValidationError as error:
                # Search for the row only on error, to avoid counting valid records.
                row = before + 1 + next(place for place, value in enumerate(values) if value is each)
                record = file.unreadable(f"row {row}", msgspec.json.encode(fields, enc_hook=str), error)
            yield record
