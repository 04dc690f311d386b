"""Options for queryable state."""

from __future__ import annotations

from penstock.common.options.definition import option
from penstock.common.setting_types import Length, Truth, Whole

QUERYABLE_STATE = option(
    "queryable-state.enable",
    Truth(),
    "false",
    "Whether states can be read from outside the job. A job that declares a queryable state needs it.",
)
RETAINED_FOR_QUERIES = option(
    "queryable-state.retained-checkpoints",
    Whole(1, 1000),
    "10",
    "Number of checkpoints that a state server keeps readable. Each takes the memory of its changes.",
)
PIN_AGE = option(
    "queryable-state.pin.max-age",
    Length(1),
    "1 min",
    "How long a job keeps the files of a checkpoint for a state server that gives no sign of life.",
)
PIN_CHECKPOINTS = option(
    "queryable-state.pin.max-checkpoints",
    Whole(1),
    "1000",
    "How far a state server can be behind the job before the job removes files that the server has not read.",
)
