"""`-D KEY=VALUE`: settings of the command line."""

from __future__ import annotations

from typing import Annotated

import typer

SETTINGS_VARIABLE = "PENSTOCK_SETTINGS"
"""Where a program's environment finds what the command line set, as JSON."""

Setting = Annotated[list[str] | None, typer.Option("-D", metavar="KEY=VALUE", help="A setting; may be repeated.")]


def overrides_of(settings: list[str] | None) -> dict[str, str]:
    """What was given, by key."""
    overrides = {}
    for setting in settings or []:
        key, equals, value = setting.partition("=")
        if not equals or not key.strip():
            raise typer.BadParameter(f"'{setting}' is no setting: write key=value.", param_hint="-D")
        overrides[key.strip()] = value.strip()
    return overrides
