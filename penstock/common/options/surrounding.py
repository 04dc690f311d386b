"""Settings from the configuration file and the environment variable."""

from __future__ import annotations

import os
from pathlib import Path

from penstock.common.setting_types import BadSetting

CONF_VARIABLE = "PENSTOCK_CONF"
"""The environment variable that names the configuration file."""
PROPERTIES_VARIABLE = "PENSTOCK_PROPERTIES"
"""The environment variable that contains settings."""


def surrounding_settings() -> dict[str, str]:
    """Return the settings from the file and the environment variable."""
    settings: dict[str, str] = {}
    path = os.environ.get(CONF_VARIABLE)
    if path:
        try:
            settings |= parse_lines(Path(path).read_text(), path)
        except OSError as error:
            raise BadSetting(f"Cannot read '{path}', named by {CONF_VARIABLE}: {error.strerror}.") from None
    settings |= parse_lines(os.environ.get(PROPERTIES_VARIABLE, ""), PROPERTIES_VARIABLE)
    return settings


def parse_lines(text: str, where: str) -> dict[str, str]:
    """Parse lines of the form `key: value`. Empty lines and lines that start with # are ignored."""
    settings = {}
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        key, colon, value = line.partition(":")
        if not colon or not key.strip():
            raise BadSetting(f"{where}, line {number}: '{line}' is not a setting; write `key: value`.")
        settings[key.strip()] = value.split(" #")[0].strip().strip("'\"")
    return settings
