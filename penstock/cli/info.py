"""`penstock info`: print the end-to-end guarantee of a program's job, with that of each source and sink."""

from __future__ import annotations

import json
from typing import Annotated

import msgspec
import typer

from penstock.cli.first_job import first_job
from penstock.cli.overrides import Setting, overrides_of
from penstock.cli.shipping import Arguments, Program, PyFiles, PythonModule, chosen_program, dependency_settings
from penstock.connectors.guarantees import in_words
from penstock.datastream.guarantees import guarantee_of


def info(
    program: Program = None,
    arguments: Arguments = None,
    setting: Setting = None,
    py_files: PyFiles = None,
    module: PythonModule = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the guarantee as JSON.")] = False,
) -> None:
    """Print the end-to-end guarantee of a program's first job, and the reason for it. The job does not run."""
    settings = overrides_of(setting) | dependency_settings(py_files, None, None)
    guarantee = first_job(chosen_program(program, arguments, None, module), guarantee_of, settings)
    typer.echo(json.dumps(msgspec.to_builtins(guarantee), indent=2) if as_json else in_words(guarantee))
