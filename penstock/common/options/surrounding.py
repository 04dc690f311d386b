"""Settings that surround a program: those of the file and of the environment variable."""

from __future__ import annotations

import os
from pathlib import Path

from penstock.common.setting_types import BadSetting

CONF_VARIABLE = "PENSTOCK_CONF"
"""The environment variable that names the file."""
PROPERTIES_VARIABLE = "PENSTOCK_PROPERTIES"
"""The environment variable with settings."""


def surrounding_settings() -> dict[str, str]:
    """What the file and the environment set."""
    settings: dict[str, str] = {}
    path = os.environ.get(CONF_VARIABLE)
    if path:
        try:
            settings |= parse_lines(Path(path).read_text(), path)
        except OSError as error:
            raise BadSetting(f"{CONF_VARIABLE} names '{path}', which cannot be read: {error.strerror}.") from None
    settings |= parse_lines(os.environ.get(PROPERTIES_VARIABLE, ""), PROPERTIES_VARIABLE)
    return settings


def parse_lines(text: str, where: str) -> dict[str, str]:
    """Lines `key: value`; empty lines and those that begin with # say nothing."""
    settings = {}
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        key, colon, value = line.partition(":")
        if not colon or not key.strip():
            raise BadSetting(f"{where}, line {number}: '{line}' is no setting; write `key: value`.")
        settings[key.strip()] = value.split(" #")[0].strip().strip("'\"")
    return settings
