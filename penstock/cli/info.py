"""`penstock info`: print the end-to-end guarantee of a program's job, with that of each source and sink."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from penstock.cli.first_job import first_job
from penstock.cli.overrides import Setting, overrides_of
from penstock.cli.shipping import Chosen
from penstock.connectors.guarantees import in_words
from penstock.datastream.guarantees import guarantee_of


def info(
    program: Annotated[Path, typer.Argument(exists=True, dir_okay=False, readable=True, help="A Python file.")],
    arguments: Annotated[list[str] | None, typer.Argument(help="Passed to the program.")] = None,
    setting: Setting = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the guarantee as JSON.")] = False,
) -> None:
    """Print the end-to-end guarantee of a program's first job, and the reason for it. The job does not run."""
    guarantee = first_job(Chosen(program, "", arguments or []), guarantee_of, overrides_of(setting))
    typer.echo(json.dumps(msgspec.to_builtins(guarantee), indent=2) if as_json else in_words(guarantee))
