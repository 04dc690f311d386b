"""All options by key, and validation of keys and values from outside the code."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.common.options import checkpoints, metrics, program, query, restarts, running, service, state
from penstock.common.options.definition import Option
from penstock.common.options.flink.rulings import exact, ruling_of
from penstock.common.setting_types import BadSetting

OPTIONS: dict[str, Option[Any]] = {
    option.key: option
    for subject in (program, checkpoints, restarts, state, query, running, metrics, service)
    for option in vars(subject).values()
    if isinstance(option, Option)
}

ALIASES = {alias: option.key for option in OPTIONS.values() for alias in option.aliases}
"""Alternative spellings, by alias."""


_PASSED_ON = ("spark.", state.CUSTOM_BACKEND_OPTIONS, checkpoints.STORE_OPTIONS)
"""Settings with these prefixes go to Spark, to a user-defined backend and to the checkpoint store."""
_NEAR = 0.85
"""How similar a known key must be to be suggested: a few letters of a usual key differ, or its ending. With more than a
thousand keys of Flink's, anything less finds a key that only looks alike."""


def is_effective(key: str) -> bool:
    """Return whether Penstock, Spark or a plug-in reads the setting."""
    return key in OPTIONS or key in ALIASES or key.startswith(_PASSED_ON)


def is_known(key: str) -> bool:
    """Return whether the key is a setting of Penstock's, Spark's or Flink's."""
    return is_effective(key) or ruling_of(key) is not None


def near_miss(key: str) -> str | None:
    """Return the known key that an unknown one resembles, or None if none does."""
    near = difflib.get_close_matches(key, [*OPTIONS, *ALIASES, *exact()], n=1, cutoff=_NEAR)
    return ALIASES.get(near[0], near[0]) if near else None


def check_keys(keys: Iterable[str]) -> None:
    """Reject unknown settings and suggest a known one if it is a near miss. `spark.*` keys are left to Spark."""
    for key in keys:
        if not is_known(key):
            near = near_miss(key)
            hint = f"Did you mean '{near}'?" if near else "See docs/reference/settings.md for all settings."
            raise BadSetting(f"Unknown setting '{key}'.", fix=hint)


def check_values(settings: Mapping[str, str]) -> None:
    """Reject invalid values, naming the key and the accepted values, and settings of Flink that would be ignored."""
    for key, text in settings.items():
        key = ALIASES.get(key, key)
        if key in OPTIONS:
            OPTIONS[key].type.parse(key, text)
        elif not is_effective(key):
            ruling = ruling_of(key)
            if ruling is not None and ruling.refuses(text):
                raise BadSetting(f"Penstock cannot apply the setting {key}. {ruling.why}", fix=ruling.fix)


def without_effect(keys: Iterable[str]) -> dict[str, str]:
    """Return those of the keys that Penstock accepts although they change nothing, with the reason."""
    rulings = {key: ruling_of(key) for key in sorted(keys) if not is_effective(key)}
    return {key: ruling.why for key, ruling in rulings.items() if ruling is not None}


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
