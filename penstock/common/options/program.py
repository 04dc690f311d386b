"""Options for a program: its name, its parallelism, and how operators run."""

from __future__ import annotations

from penstock.common.options.definition import option, optional
from penstock.common.setting_types import Choice, Size, Text, Truth, Whole

MOST_KEY_GROUPS = 1 << 15
"""Flink's limit, for subtasks as well: a key group takes two bytes, the first two of every state entry."""
DEFAULT_MASTER = "local[*]"
"""Spark's master if `spark.master` is not set."""

PARALLELISM = optional(
    "parallelism.default",
    Whole(1, MOST_KEY_GROUPS),
    "Spark's cores",
    "Number of subtasks of operators that do not set their own parallelism.",
)
JOB_NAME = option("pipeline.name", Text(may_be_empty=False), "penstock-job", "Job name if none is passed to `execute`.")
MAX_PARALLELISM = optional(
    "pipeline.max-parallelism",
    Whole(1, MOST_KEY_GROUPS),
    "derived from the parallelism",
    "Number of key groups. Cannot change once the job has state.",
)
RUNTIME_MODE = option(
    "execution.runtime-mode",
    Choice("STREAMING", "BATCH", "AUTOMATIC"),
    "STREAMING",
    "`STREAMING`, `BATCH` (emit final results only) or `AUTOMATIC`.",
)
OPERATOR_CHAINING = option(
    "pipeline.operator-chaining.enabled", Truth(), "true", "Whether to fuse operators into chains."
)
AUTO_GENERATE_UIDS = option(
    "pipeline.auto-generate-uids", Truth(), "true", "`false`: reject programs that have an operator without a uid."
)
SEGMENT_SIZE = option("taskmanager.memory.segment-size", Size(1, 1 << 30), "32768", "Target size of a buffer in bytes.")
