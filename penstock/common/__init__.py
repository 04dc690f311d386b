"""The user's small words: rows, types, lengths of time."""

from penstock.common.configuration import Configuration
from penstock.common.job import JobExecutionResult, JobID, JobStatus
from penstock.common.row import Row, RowKind
from penstock.common.time import Duration, Instant, Time, to_millis
from penstock.common.typeinfo import TypeInformation, Types
from penstock.common.watermark_strategy import TimestampAssigner, WatermarkStrategy

__all__ = [
    "Configuration",
    "Duration",
    "Instant",
    "JobExecutionResult",
    "JobID",
    "JobStatus",
    "Row",
    "RowKind",
    "Time",
    "TimestampAssigner",
    "TypeInformation",
    "Types",
    "WatermarkStrategy",
    "to_millis",
]
