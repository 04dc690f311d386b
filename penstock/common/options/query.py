"""Options for queryable state."""

from __future__ import annotations

from penstock.common.options.definition import option
from penstock.common.setting_types import Truth

QUERYABLE_STATE = option(
    "queryable-state.enable",
    Truth(),
    "false",
    "Whether states can be read from outside the job. A job that declares a queryable state needs it.",
)
