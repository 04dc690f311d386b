"""ORC, under PyFlink's names. A row type is ``Types.ROW_NAMED(...)``, a dataclass, or a pyarrow Schema."""

from __future__ import annotations

from typing import Any

from penstock.absent import explain_absent
from penstock.common.configuration import Configuration
from penstock.common.orc import OrcWriterFactory
from penstock.common.serialization import BulkWriterFactory

__all__ = ["OrcBulkWriters"]

_CODEC = "orc.compress"


class OrcBulkWriters:
    """Writers of ORC files for a ``FileSink``."""

    @staticmethod
    def for_row_type(
        row_type: Any, writer_properties: Configuration | None = None, hadoop_config: Configuration | None = None
    ) -> BulkWriterFactory:
        """Return a writer factory for a row type.

        Args:
            row_type: ``Types.ROW_NAMED(...)``, a dataclass, or a pyarrow ``Schema``.
            writer_properties: Properties of ORC, of which ``orc.compress`` has an effect: ``NONE``, ``SNAPPY``,
                ``ZLIB`` (the default), ``LZ4`` or ``ZSTD``.
            hadoop_config: Accepted for PyFlink compatibility and ignored.

        Raises:
            PenstockError: If the codec is unknown.
        """
        properties = writer_properties if writer_properties is not None else Configuration()
        return OrcWriterFactory(row_type, properties.get_string(_CODEC, "ZLIB"))


explain_absent(__name__)
