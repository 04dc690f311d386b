"""Write records as ORC."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyarrow import orc

from penstock.common.arrow_columns import Columns
from penstock.common.arrow_schema import schema_of
from penstock.common.serialization import BulkWriter, BulkWriterFactory, OutputFile
from penstock.errors import PenstockError

CODECS = {"NONE": "uncompressed", "SNAPPY": "snappy", "ZLIB": "zlib", "LZ4": "lz4", "ZSTD": "zstd"}
"""Arrow's codecs, by the values of the ORC property `orc.compress`."""


class OrcWriterFactory(BulkWriterFactory):
    """Creates writers of ORC files that share a schema."""

    format = "orc"

    def __init__(self, schema: Any, codec: str) -> None:
        if codec.upper() not in CODECS:
            raise PenstockError(
                f"ORC: orc.compress is '{codec}'.", fix=f"Set it to one of {', '.join(CODECS)}, or leave it out."
            )
        self._codec = codec.upper()
        self._columns = Columns(schema_of(schema))

    def __reduce__(self) -> tuple[Any, ...]:
        return OrcWriterFactory, (self._columns.schema, self._codec)

    def prepare(self, value: Any) -> Any:
        """Return a record as a row of the schema."""
        return self._columns.prepare(value)

    def create(self, file: OutputFile) -> BulkWriter:
        """Return a writer for this file."""
        return _OrcWriter(file, self._columns, CODECS[self._codec])


class _OrcWriter(BulkWriter):
    def __init__(self, file: OutputFile, columns: Columns, compression: str) -> None:
        self._columns = columns
        self._writer = orc.ORCWriter(pa.PythonFile(file, mode="w"), compression=compression)

    def write(self, prepared: list[Any]) -> None:
        self._writer.write(pa.Table.from_batches([self._columns.batch(prepared)]))

    def finish(self) -> None:
        self._writer.close()
