"""Options of a program: its name, its parallelism, how its operators run."""

from __future__ import annotations

from penstock.common.options.definition import option, optional
from penstock.common.setting_types import Choice, Size, Text, Truth, Whole

MOST_KEY_GROUPS = 1 << 15
"""Flink's bound, for subtasks as well: a key group fits two bytes, the first two of every state entry."""
DEFAULT_MASTER = "local[*]"
"""Spark's master where `spark.master` is not set."""

PARALLELISM = optional(
    "parallelism.default",
    Whole(1, MOST_KEY_GROUPS),
    "Spark's cores",
    "subtasks of an operator that has no parallelism of its own",
)
JOB_NAME = option(
    "pipeline.name", Text(may_be_empty=False), "penstock-job", "the job's name, if `execute` is given none"
)
MAX_PARALLELISM = optional(
    "pipeline.max-parallelism",
    Whole(1, MOST_KEY_GROUPS),
    "from the parallelism",
    "number of key groups; fixed for the life of state",
)
RUNTIME_MODE = option(
    "execution.runtime-mode",
    Choice("STREAMING", "BATCH", "AUTOMATIC"),
    "STREAMING",
    "STREAMING, BATCH (only final results) or AUTOMATIC",
)
OPERATOR_CHAINING = option(
    "pipeline.operator-chaining.enabled", Truth(), "true", "whether operators are fused into chains"
)
AUTO_GENERATE_UIDS = option(
    "pipeline.auto-generate-uids", Truth(), "true", "false: a program with an operator that has no uid is refused"
)
SEGMENT_SIZE = option("taskmanager.memory.segment-size", Size(1, 1 << 30), "32768", "wanted bytes of a buffer")
