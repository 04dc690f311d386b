"""Settings that surround a program: those of the file and of the environment variable."""

from __future__ import annotations

import os
from pathlib import Path

from penstock.common.setting_types import BadSetting


def surrounding_settings() -> dict[str, str]:
    """What the file and the environment set."""
    settings: dict[str, str] = {}
    path = os.environ.get("PENSTOCK_CONF")
    if path:
        try:
            settings |= parse_lines(Path(path).read_text(), path)
        except OSError as error:
            raise BadSetting(f"PENSTOCK_CONF names '{path}', which cannot be read: {error.strerror}.") from None
    settings |= parse_lines(os.environ.get("PENSTOCK_PROPERTIES", ""), "PENSTOCK_PROPERTIES")
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
