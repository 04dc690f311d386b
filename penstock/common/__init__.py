"""Types shared by the whole API: rows, type information, durations, schemas, configuration and the job client."""

from penstock.absent import explain_absent
from penstock.common import serialization
from penstock.common.completable_future import CompletableFuture
from penstock.common.config_options import ConfigOption, ConfigOptions
from penstock.common.configuration import Configuration

# Programs import the messages of rows from here and from common.serialization, where PyFlink 1 had them.
from penstock.common.csv_messages import CsvRowDeserializationSchema as CsvRowDeserializationSchema
from penstock.common.csv_messages import CsvRowSerializationSchema as CsvRowSerializationSchema
from penstock.common.execution_config import ExecutionConfig
from penstock.common.input_dependency_constraint import InputDependencyConstraint
from penstock.common.job import JobExecutionResult, JobID, JobStatus
from penstock.common.job_client import JobClient
from penstock.common.json_messages import JsonRowDeserializationSchema as JsonRowDeserializationSchema
from penstock.common.json_messages import JsonRowSerializationSchema as JsonRowSerializationSchema
from penstock.common.renamed_from import RenamedFrom
from penstock.common.restart_strategy import RestartStrategies, RestartStrategyConfiguration
from penstock.common.row import Row, RowKind
from penstock.common.serialization import (
    ByteArraySchema,
    DeserializationSchema,
    Encoder,
    JsonSchema,
    RowFieldExtractorSchema,
    SerializationSchema,
    SimpleStringSchema,
)
from penstock.common.serializer import TypeSerializer
from penstock.common.time import Duration, Instant, Time, to_millis
from penstock.common.typeinfo import TypeInformation, Types
from penstock.common.watermark_strategy import (
    TimestampAssigner,
    Watermark,
    WatermarkGenerator,
    WatermarkOutput,
    WatermarkStrategy,
)

__all__ = [
    "ByteArraySchema",
    "CompletableFuture",
    "ConfigOption",
    "ConfigOptions",
    "Configuration",
    "DeserializationSchema",
    "Duration",
    "Encoder",
    "ExecutionConfig",
    "InputDependencyConstraint",
    "Instant",
    "JobClient",
    "JobExecutionResult",
    "JobID",
    "JobStatus",
    "JsonSchema",
    "RenamedFrom",
    "RestartStrategies",
    "RestartStrategyConfiguration",
    "Row",
    "RowFieldExtractorSchema",
    "RowKind",
    "SerializationSchema",
    "SimpleStringSchema",
    "Time",
    "TimestampAssigner",
    "TypeInformation",
    "TypeSerializer",
    "Types",
    "Watermark",
    "WatermarkGenerator",
    "WatermarkOutput",
    "WatermarkStrategy",
    "to_millis",
]

for _schema in (
    CsvRowDeserializationSchema,
    CsvRowSerializationSchema,
    JsonRowDeserializationSchema,
    JsonRowSerializationSchema,
):
    setattr(serialization, _schema.__name__, _schema)

explain_absent(__name__)
