"""`penstock info`: what a program's job promises end to end, source by source and sink by sink. Nothing is run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from penstock.cli.first_job import first_job
from penstock.cli.overrides import Setting, overrides_of
from penstock.connectors.guarantees import in_words
from penstock.datastream.guarantees import guarantee_of


def info(
    program: Annotated[Path, typer.Argument(exists=True, dir_okay=False, readable=True, help="A Python file.")],
    arguments: Annotated[list[str] | None, typer.Argument(help="Passed to the program.")] = None,
    setting: Setting = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Say what the first job that a program runs promises: exactly-once or less, and because of what."""
    guarantee = first_job(program, arguments or [], guarantee_of, overrides_of(setting))
    typer.echo(json.dumps(msgspec.to_builtins(guarantee), indent=2) if as_json else in_words(guarantee))
