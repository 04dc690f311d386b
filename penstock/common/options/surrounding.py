"""Settings from the configuration file and the environment variable."""

from __future__ import annotations

import os
from pathlib import Path

from penstock.common.setting_types import BadSetting

CONF_VARIABLE = "PENSTOCK_CONF"
"""The environment variable that names the configuration file."""
PROPERTIES_VARIABLE = "PENSTOCK_PROPERTIES"
"""The environment variable that contains settings."""
SYSTEM_FILE = Path("/etc/penstock/penstock.conf")
"""The configuration file for all users of this host."""


def configuration_file() -> Path | None:
    """Return the configuration file of this user, or None without one.

    It is the file that PENSTOCK_CONF names, otherwise the first that exists of `penstock/penstock.conf` below
    XDG_CONFIG_HOME (`~/.config`) and `/etc/penstock/penstock.conf`. If PENSTOCK_CONF is empty, no file is read.
    """
    named = os.environ.get(CONF_VARIABLE)
    if named is not None:
        return Path(named) if named else None
    for path in (_user_file(), SYSTEM_FILE):
        if path is not None and os.path.lexists(path):
            return path
    return None


def _user_file() -> Path | None:
    folder = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    # A relative one is invalid: the settings would depend on the current directory.
    return Path(folder) / "penstock" / "penstock.conf" if os.path.isabs(folder) else None


def surrounding_settings() -> dict[str, str]:
    """Return the settings from the file and the environment variable."""
    settings: dict[str, str] = {}
    path = configuration_file()
    if path is not None:
        try:
            settings |= parse_lines(path.read_text(), str(path))
        except OSError as error:
            named = f", named by {CONF_VARIABLE}" if os.environ.get(CONF_VARIABLE) else ""
            raise BadSetting(f"Cannot read '{path}'{named}: {error.strerror}.") from None
        except UnicodeDecodeError:
            raise BadSetting(f"Cannot read '{path}': it is not a text file in UTF-8.") from None
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
