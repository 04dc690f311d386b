"""Options for a program: its name, its parallelism, and how operators run."""

from __future__ import annotations

from penstock.common.options.definition import option, optional
from penstock.common.setting_types import Choice, Length, Pairs, Size, Text, Truth, Whole

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
    "pipeline.operator-chaining.enabled",
    Truth(),
    "true",
    "Whether to fuse operators into chains.",
    aliases=("pipeline.operator-chaining",),
)
AUTO_GENERATE_UIDS = option(
    "pipeline.auto-generate-uids", Truth(), "true", "`false`: reject programs that have an operator without a uid."
)
AUTO_WATERMARK_INTERVAL = option(
    "pipeline.auto-watermark-interval",
    Length(),
    "0 ms",
    "When watermarks follow the records. `0 ms`: right behind each record that advances event time. Longer: at the "
    "end of each epoch, as in Flink; the length has no other effect.",
)
SEGMENT_SIZE = option("taskmanager.memory.segment-size", Size(1, 1 << 30), "32768", "Target size of a buffer in bytes.")
GLOBAL_JOB_PARAMETERS = optional(
    "pipeline.global-job-parameters",
    Pairs(),
    "none",
    "Parameters that functions read with `get_job_parameter` of their context: `name:value,other:value`. "
    "`env.get_config().set_global_job_parameters` replaces them.",
)
CACHED_FILES = option(
    "pipeline.cached-files",
    Text(),
    "",
    "Files and folders that functions find with `SparkFiles.get(name)`, separated by semicolons: "
    "`name:words,path:/data/words.txt,executable:false;name:…`. `env.register_cached_file` adds one.",
    default_text="none",
)
PYTHON_EXECUTABLE = option(
    "python.executable",
    Text(),
    "",
    "Path of the Python interpreter on the hosts of the workers, unless `spark.pyspark.python` is set.",
    default_text="the path of the driver's interpreter",
)
PYTHON_FILES = option(
    "python.files",
    Text(),
    "",
    "Python modules and packages that the driver and all workers can import: `.py`, `.zip`, `.egg` and `.whl` files, "
    "and folders, separated by commas. `penstock run --py-files` sets it.",
    default_text="none",
)
PYTHON_ARCHIVES = option(
    "python.archives",
    Text(),
    "",
    "Archives to unpack for all workers, separated by commas: `data.zip`, or `data.zip#name` to name its folder. "
    "`penstock run --archives` sets it.",
    default_text="none",
)
PYTHON_REQUIREMENTS = option(
    "python.requirements",
    Text(),
    "",
    "A requirements file. pip installs its packages, wheels only, when the job starts, and they are shipped to all "
    "workers. `requirements.txt#folder` installs from the wheels in a folder, without an index. "
    "`penstock run --requirements` sets it.",
    default_text="none",
)
