"""Parquet, under PyFlink's names. A row type is ``Types.ROW_NAMED(...)``, a dataclass, or a pyarrow Schema."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from penstock.absent import explain_absent
from penstock.common.arrow_schema import schema_of
from penstock.common.configuration import Configuration
from penstock.common.serialization import BulkWriterFactory
from penstock.connectors.files.parquet_format import ParquetFormat

__all__ = ["ParquetBulkWriters", "ParquetColumnarRowInputFormat"]


class ParquetBulkWriters:
    """Writers of Parquet files for a ``FileSink``."""

    @staticmethod
    def for_row_type(
        row_type: Any, hadoop_config: Configuration | None = None, utc_timestamp: bool = False
    ) -> BulkWriterFactory:
        """Return a writer factory for a row type. Timestamps are written unchanged.

        Args:
            row_type: ``Types.ROW_NAMED(...)``, a dataclass, or a pyarrow ``Schema``.
            hadoop_config: Accepted for PyFlink compatibility and ignored.
            utc_timestamp: Accepted for PyFlink compatibility and ignored.
        """
        return BulkWriterFactory.parquet(row_type)


class ParquetColumnarRowInputFormat(ParquetFormat):
    """Reads Parquet files as Rows with the columns of a row type.

    Args:
        row_type: ``Types.ROW_NAMED(...)``, a dataclass, or a pyarrow ``Schema``.
        hadoop_config: Accepted for PyFlink compatibility and ignored.
        batch_size: The number of rows to read at a time.
        is_utc_timestamp: Accepted for PyFlink compatibility and ignored.
        is_case_sensitive: Accepted for PyFlink compatibility and ignored.
    """

    def __init__(
        self,
        row_type: Any,
        hadoop_config: Configuration | None = None,
        batch_size: int = 2048,
        is_utc_timestamp: bool = False,
        is_case_sensitive: bool = True,
    ) -> None:
        schema: pa.Schema = schema_of(row_type)
        super().__init__(schema.names, None, batch_size)


explain_absent(__name__)
