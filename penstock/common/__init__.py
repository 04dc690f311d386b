"""The user's small words: rows, types, lengths of time."""

from penstock.common.configuration import Configuration
from penstock.common.job import JobExecutionResult, JobID, JobStatus
from penstock.common.row import Row, RowKind
from penstock.common.serialization import Encoder, SimpleStringSchema
from penstock.common.time import Duration, Instant, Time, to_millis
from penstock.common.typeinfo import TypeInformation, Types

__all__ = [
    "Configuration",
    "Duration",
    "Encoder",
    "Instant",
    "JobExecutionResult",
    "JobID",
    "JobStatus",
    "Row",
    "RowKind",
    "SimpleStringSchema",
    "Time",
    "TypeInformation",
    "Types",
    "to_millis",
]
