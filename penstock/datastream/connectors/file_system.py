"""File sources and sinks, in PyFlink's module."""

from penstock.absent import explain_absent
from penstock.common.serialization import BulkWriterFactory
from penstock.connectors.files.buckets import BucketAssigner, BucketContext
from penstock.connectors.files.compacting import FileCompactor, FileCompactStrategy
from penstock.connectors.files.file_sink import FileSink, OutputFileConfig, StreamingFileSink
from penstock.connectors.files.file_source import (
    FileEnumeratorProvider,
    FileSource,
    FileSourceBuilder,
    FileSplitAssignerProvider,
)
from penstock.connectors.files.formats import BulkFormat, StreamFormat
from penstock.connectors.files.rolling import DefaultRollingPolicy, OnCheckpointRollingPolicy, RollingPolicy

__all__ = [
    "BucketAssigner",
    "BucketContext",
    "BulkFormat",
    "BulkWriterFactory",
    "DefaultRollingPolicy",
    "FileCompactStrategy",
    "FileCompactor",
    "FileEnumeratorProvider",
    "FileSink",
    "FileSource",
    "FileSourceBuilder",
    "FileSplitAssignerProvider",
    "OnCheckpointRollingPolicy",
    "OutputFileConfig",
    "RollingPolicy",
    "StreamFormat",
    "StreamingFileSink",
]

explain_absent(__name__)
