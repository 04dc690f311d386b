"""Options shared by several commands: `-D KEY=VALUE`, and Flink options that Penstock accepts but does not need."""

from __future__ import annotations

from typing import Annotated

import typer

Setting = Annotated[list[str] | None, typer.Option("-D", metavar="KEY=VALUE", help="A setting. Can be repeated.")]


def _note_yarn_id(given: str | None) -> str | None:
    if given is not None:
        typer.echo("Note: -yid has no effect. Penstock finds its jobs without a YARN application id.", err=True)
    return given


YarnId = Annotated[
    str | None,
    typer.Option(
        "-yid",
        "--yarnapplicationId",
        metavar="APP",
        help="Accepted for compatibility with Flink; has no effect.",
        callback=_note_yarn_id,
    ),
]


def overrides_of(settings: list[str] | None) -> dict[str, str]:
    """Return the given settings by key."""
    overrides = {}
    for setting in settings or []:
        key, equals, value = setting.partition("=")
        if not equals or not key.strip():
            raise typer.BadParameter(f"'{setting}' is not a setting: write key=value.", param_hint="-D")
        overrides[key.strip()] = value.strip()
    return overrides
