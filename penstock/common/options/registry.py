"""All options by key, and validation of keys and values from outside the code."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.common.options import checkpoints, program, query, restarts, running, service, state
from penstock.common.options.definition import Option
from penstock.common.setting_types import BadSetting

OPTIONS: dict[str, Option[Any]] = {
    option.key: option
    for subject in (program, checkpoints, restarts, state, query, running, service)
    for option in vars(subject).values()
    if isinstance(option, Option)
}

ALIASES = {alias: option.key for option in OPTIONS.values() for alias in option.aliases}
"""Alternative spellings, by alias."""


def check_keys(keys: Iterable[str]) -> None:
    """Reject unknown settings and suggest the closest known one. `spark.*` keys are left to Spark."""
    prefixes = ("spark.", state.CUSTOM_BACKEND_OPTIONS, checkpoints.STORE_OPTIONS)
    for key in keys:
        if key in OPTIONS or key in ALIASES or key.startswith(prefixes):
            continue
        near = difflib.get_close_matches(key, [*OPTIONS, *ALIASES], n=1, cutoff=0.6)
        hint = (
            f"Did you mean '{ALIASES.get(near[0], near[0])}'?"
            if near
            else "See docs/reference/settings.md for all settings."
        )
        raise BadSetting(f"Unknown setting '{key}'.", fix=hint)


def check_values(settings: Mapping[str, str]) -> None:
    """Reject invalid values, naming the key and the accepted values."""
    for key, text in settings.items():
        key = ALIASES.get(key, key)
        if key in OPTIONS:
            OPTIONS[key].type.parse(key, text)


def canonical(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings with aliases replaced. If both spellings are set, the canonical one wins."""
    named = {ALIASES[key]: value for key, value in settings.items() if key in ALIASES}
    return named | {key: value for key, value in settings.items() if key not in ALIASES}


def store_options(settings: Mapping[str, str]) -> dict[str, Any]:
    """Return the checkpoint store's options; `true`, `false` and JSON objects are parsed, other values stay strings."""
    options: dict[str, Any] = {}
    for key, text in settings.items():
        if key.startswith(checkpoints.STORE_OPTIONS):
            value: Any = {"true": True, "false": False}.get(text.lower(), text)
            if text.startswith("{"):
                try:
                    value = json.loads(text)
                except ValueError:
                    raise BadSetting(f"The value of {key} starts with {{ but is not a JSON object.") from None
            options[key.removeprefix(checkpoints.STORE_OPTIONS)] = value
    return options
