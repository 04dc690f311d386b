"""Options of a program: its name, its parallelism, how its operators run."""

from __future__ import annotations

from penstock.common.options.definition import option, optional
from penstock.common.setting_types import Choice, Size, Text, Truth, Whole

MOST_SUBTASKS = 32_768

PARALLELISM = optional(
    "parallelism.default",
    Whole(1, MOST_SUBTASKS),
    "Spark's cores",
    "subtasks of an operator that has no parallelism of its own",
)
JOB_NAME = option(
    "pipeline.name", Text(may_be_empty=False), "penstock-job", "the job's name, if `execute` is given none"
)
MAX_PARALLELISM = optional(
    "pipeline.max-parallelism",
    Whole(1, MOST_SUBTASKS),
    "from the parallelism",
    "number of key groups; fixed for the life of state",
)
OPERATOR_CHAINING = option(
    "pipeline.operator-chaining.enabled", Truth(), "true", "whether operators are fused into chains"
)
AUTO_GENERATE_UIDS = option(
    "pipeline.auto-generate-uids",
    Truth(),
    "true",
    "false: a program with an operator that has no uid is refused",
)
RUNTIME_MODE = option(
    "execution.runtime-mode",
    Choice("STREAMING", "BATCH", "AUTOMATIC"),
    "STREAMING",
    "STREAMING, BATCH (only final results) or AUTOMATIC",
)
SEGMENT_SIZE = option("taskmanager.memory.segment-size", Size(1, 1 << 30), "32768", "wanted bytes of a buffer")
