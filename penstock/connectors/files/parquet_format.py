"""Parquet read as Rows or as records of a type."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.common.fields import columns_of
from penstock.common.row import Row
from penstock.common.typeinfo import RowTypeInfo
from penstock.connectors.files.compression import UnreadableFile
from penstock.connectors.files.formats import BulkFormat
from penstock.errors import PenstockError


class ParquetFormat(BulkFormat):
    """Memory holds one column chunk of each column and `batch_size` records."""

    def __init__(self, columns: Sequence[str] | None, value_type: Any, batch_size: int) -> None:
        if type(batch_size) is not int or batch_size < 1:
            raise PenstockError(f"Parquet: batch_size must be a whole number above 0, not {batch_size!r}.")
        if columns is None and value_type is not None:
            columns = list(columns_of(value_type))
        self._columns = None if columns is None else list(columns)
        self._record = None if isinstance(value_type, RowTypeInfo) else value_type
        self._batch_size = batch_size

    def read(self, path: str) -> Iterator[Any]:
        try:
            # Not mapped and not read ahead: both would hold more of the file than is being read.
            with pq.ParquetFile(path, memory_map=False, pre_buffer=False) as file:
                yield from self._records(file, path)
        except FileNotFoundError as error:
            raise UnreadableFile(
                f"The file {path} is gone. A file must stay where it is until it has been read."
            ) from error
        except (pa.ArrowInvalid, OSError) as error:
            raise UnreadableFile(f"The file {path} cannot be read as Parquet: {error}") from error

    def _records(self, file: pq.ParquetFile, path: str) -> Iterator[Any]:
        there = file.schema_arrow.names
        columns = there if self._columns is None else self._columns
        missing = [name for name in columns if name not in there]
        if missing:
            raise UnreadableFile(f"The file {path} has no column {', '.join(missing)}; it has {', '.join(there)}.")
        names = tuple(columns)
        for batch in file.iter_batches(self._batch_size, columns=columns):
            values = zip(*(batch.column(name).to_pylist() for name in names)) if names else ()
            if self._record is None:
                yield from Row.many(names, values)
            else:
                for each in values:
                    yield self._make(dict(zip(names, each)), path)

    def _make(self, fields: dict[str, Any], path: str) -> Any:
        try:
            return msgspec.convert(fields, self._record)
        except msgspec.ValidationError as error:
            raise UnreadableFile(f"The file {path} has a record that is no {self._record!r}: {error}") from error
