"""Options of a running job: slots, commands, the console, flow control."""

from __future__ import annotations

from penstock.common.options.definition import option, optional
from penstock.common.setting_types import MOST_LONG, Length, Text, Truth, Whole

SLOTS_WAIT = option(
    "penstock.slots.wait",
    Truth(),
    "false",
    "true: while Spark has fewer slots than the widest operator has subtasks, no epoch begins; false: tasks "
    "run in turns",
)
SLOT_TIMEOUT = option("slot.request.timeout", Length(), "5 min", "how long a job waits for slots before it fails")
CONTROL_ENABLED = option("penstock.control.enabled", Truth(), "true", "false: no command reaches the job")
CONTROL_DIRECTORY = option(
    "penstock.control.dir",
    Text(),
    "",
    "where commands such as `penstock stop` find the jobs of this host; for this user alone",
    default_text="`penstock-control-<user number>` below the temporary directory",
)
QUIET = option(
    "penstock.console.quiet",
    Truth(),
    "false",
    "true: a job prints warnings and errors only, and no progress; `penstock run --quiet` sets it",
)
MAX_EPOCH_RECORDS = option(
    "penstock.epoch.max-records",
    Whole(0, MOST_LONG),
    "0",
    "records an epoch takes of a source in Python, a collection or a batch DataFrame",
    default_text="0 (all)",
)
FLOW_ENABLED = optional(
    "penstock.flow.enabled",
    Truth(),
    "true, but not with `penstock.epoch.max-records`, nor for input that ends without a checkpoint interval",
    "whether sources are held back so that epochs take the time they should",
)
LEAST_DEFAULT_EPOCH_MS = 1000
"""Of a target that is not set: an epoch on Spark costs 0.15 s and more without any record, so shorter ones work off a
backlog far more slowly."""
TARGET_EPOCH_TIME = optional(
    "penstock.flow.target-epoch-time",
    Length(1),
    f"the checkpoint interval, {LEAST_DEFAULT_EPOCH_MS // 1000} s at least",
    "how long an epoch should take; sets flow control on",
)
