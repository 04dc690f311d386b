"""All options by key, and the checks of keys and values that come from outside."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.common.options import checkpoints, program, restarts, running, state
from penstock.common.options.definition import Option
from penstock.common.setting_types import BadSetting

OPTIONS: dict[str, Option[Any]] = {
    option.key: option
    for subject in (program, checkpoints, restarts, state, running)
    for option in vars(subject).values()
    if isinstance(option, Option)
}

ALIASES = {alias: option.key for option in OPTIONS.values() for alias in option.aliases}
"""Other spellings that are understood."""


def check_keys(keys: Iterable[str]) -> None:
    """Refuse what is no setting, with the nearest that is one. `spark.*` is Spark's own affair."""
    prefixes = ("spark.", state.CUSTOM_BACKEND_OPTIONS, checkpoints.STORE_OPTIONS)
    for key in keys:
        if key in OPTIONS or key in ALIASES or key.startswith(prefixes):
            continue
        near = difflib.get_close_matches(key, [*OPTIONS, *ALIASES], n=1, cutoff=0.6)
        hint = (
            f"Did you mean '{ALIASES.get(near[0], near[0])}'?"
            if near
            else "docs/reference/settings.md lists the settings there are."
        )
        raise BadSetting(f"There is no setting '{key}'.", fix=hint)


def check_values(settings: Mapping[str, str]) -> None:
    """Refuse a value that its setting cannot have, with the key and what it accepts."""
    for key, text in settings.items():
        key = ALIASES.get(key, key)
        if key in OPTIONS:
            OPTIONS[key].type.parse(key, text)


def canonical(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings with aliases replaced. The proper spelling wins where both are given."""
    named = {ALIASES[key]: value for key, value in settings.items() if key in ALIASES}
    return named | {key: value for key, value in settings.items() if key not in ALIASES}


def store_options(settings: Mapping[str, str]) -> dict[str, Any]:
    """What was set for the store of the checkpoints: `true`, `false` and JSON objects as what they are, else text."""
    options: dict[str, Any] = {}
    for key, text in settings.items():
        if key.startswith(checkpoints.STORE_OPTIONS):
            value: Any = {"true": True, "false": False}.get(text.lower(), text)
            if text.startswith("{"):
                try:
                    value = json.loads(text)
                except ValueError:
                    raise BadSetting(f"The value of {key} begins with {{ but is no JSON object.") from None
            options[key.removeprefix(checkpoints.STORE_OPTIONS)] = value
    return options
