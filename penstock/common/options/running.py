"""Options for running jobs: slots, commands, the console, flow control."""

from __future__ import annotations

from penstock.common.options.definition import option, optional
from penstock.common.setting_types import MOST_LONG, Length, Text, Truth, Whole

SLOTS_WAIT = option(
    "penstock.slots.wait",
    Truth(),
    "false",
    "`true`: start no epoch while Spark has fewer slots than the widest operator has subtasks. `false`: tasks take "
    "turns.",
)
SLOT_TIMEOUT = option("slot.request.timeout", Length(), "5 min", "How long a job waits for slots before it fails.")
CONTROL_ENABLED = option("penstock.control.enabled", Truth(), "true", "`false`: the job accepts no commands.")
CONTROL_DIRECTORY = option(
    "penstock.control.dir",
    Text(),
    "",
    "Directory in which commands such as `penstock stop` find the jobs of this host. Accessible to this user only.",
    default_text="`penstock-control-<uid>` below the temporary directory",
)
QUIET = option(
    "penstock.console.quiet",
    Truth(),
    "false",
    "`true`: print warnings and errors only, and no progress. `penstock run --quiet` sets it.",
)
MAX_EPOCH_RECORDS = option(
    "penstock.epoch.max-records",
    Whole(0, MOST_LONG),
    "0",
    "Maximum number of records an epoch reads from a Python source, a collection or a batch DataFrame.",
    default_text="0 (unlimited)",
)
FLOW_ENABLED = optional(
    "penstock.flow.enabled",
    Truth(),
    "true, except with `penstock.epoch.max-records`, or for bounded input without a checkpoint interval",
    "Whether to throttle sources to keep epochs close to their target time.",
)
LEAST_DEFAULT_EPOCH_MS = 1000
"""Lower limit of the default target. Even an empty epoch on Spark takes 0.15 s or more, so shorter epochs work off a
backlog far more slowly."""
TARGET_EPOCH_TIME = optional(
    "penstock.flow.target-epoch-time",
    Length(1),
    f"the checkpoint interval, but at least {LEAST_DEFAULT_EPOCH_MS // 1000} s",
    "Target duration of an epoch. Setting it enables flow control.",
)
