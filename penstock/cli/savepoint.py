"""`penstock savepoint`: take a savepoint of a running job, or inspect, list, compare and delete savepoints."""

from __future__ import annotations

import json
import os
import re
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from penstock.cli.jobs import AsJson
from penstock.cli.jobs import savepoint as savepoint_of
from penstock.cli.overrides import YarnId
from penstock.cli.shown_errors import ShownErrors
from penstock.savepoint.format import Found, dispose_savepoint, savepoint_storage
from penstock.tables.savepoint import Savepoint

_OF_A_JOB = "JOB"
"""The placeholder shown in the help. Any argument that is not another command is a job."""


class _JobOrCommand(TyperGroup):
    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] in self.commands and args[0] != _OF_A_JOB:
            return super().resolve_command(ctx, args)
        return _OF_A_JOB, self.commands[_OF_A_JOB], args


savepoint_app = typer.Typer(
    name="savepoint",
    cls=_JobOrCommand,
    short_help="Take a savepoint of a running job, or inspect, list, compare and delete savepoints.",
    help="Take a savepoint of the running job JOB below DIR, or inspect, list, compare and delete savepoints. If the "
    "name of a job equals that of a command, pass the job's id.",
    subcommand_metavar="JOB [DIR] | COMMAND [ARGS]...",
    no_args_is_help=True,
    add_completion=False,
)
_PATH = typer.Argument(help="The savepoint's directory, or a URI such as s3://bucket/path.")


@savepoint_app.callback(invoke_without_command=True)
def savepoint(
    context: typer.Context,
    dispose: Annotated[
        str | None, typer.Option("-d", "--dispose", metavar="PATH", help="Delete this savepoint.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="With -d: print the result as JSON.")] = False,
    yarn_id: YarnId = None,
) -> None:
    if as_json and context.invoked_subcommand is not None:
        raise typer.BadParameter("Pass this option after the job or the command.", param_hint="--json")
    if dispose is not None and context.invoked_subcommand is not None:
        raise typer.BadParameter(
            "This option deletes a savepoint and cannot be combined with a command.", param_hint="-d"
        )
    if dispose is not None:
        with ShownErrors():
            dispose_savepoint(savepoint_storage(dispose))
            typer.echo(json.dumps({"removed": dispose}, indent=2) if as_json else f"Removed {dispose}.")


savepoint_app.command(name=_OF_A_JOB)(savepoint_of)


@savepoint_app.command()
def inspect(path: Annotated[str, _PATH], as_json: AsJson = False) -> None:
    """Print the contents of a savepoint: job, operators, states, sizes, positions."""
    with ShownErrors():
        found = Savepoint.load(path)
        typer.echo(json.dumps(_contents(found), indent=2) if as_json else found.describe())


def _contents(savepoint: Savepoint) -> dict[str, Any]:
    data = savepoint.metadata
    positions = savepoint.positions()
    return {
        "path": savepoint.path,
        "id": data.id,
        "job": data.job,
        "created": data.created,
        "penstock": data.penstock,
        "lineage": data.lineage,
        "checkpoint": data.checkpoint,
        "bytes": data.size,
        "operators": {
            uid: {
                "name": operator.snapshot.name,
                "parallelism": operator.snapshot.parallelism,
                "max_parallelism": operator.snapshot.max_parallelism,
                "bytes": operator.size,
                "states": dict(sorted(operator.snapshot.states.items())),
                "operator_state": operator.operator_state(),
            }
            for uid, operator in data.operators.items()
        },
        "sources": {
            uid: {"name": source.name, "records": source.records, "positions": positions[uid]}
            for uid, source in data.sources.items()
        },
    }


@savepoint_app.command(name="list")
def list_(
    directory: Annotated[str, typer.Argument(help="The directory that contains savepoints.")], as_json: AsJson = False
) -> None:
    """List the savepoints in a directory, oldest first."""
    if not re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", directory) and not os.path.isdir(directory):
        raise typer.BadParameter(f"Directory '{directory}' does not exist.", param_hint="DIRECTORY")
    with ShownErrors():
        savepoints = Savepoint.list(directory)
    if as_json:
        typer.echo(json.dumps([_line(found) for found in savepoints], indent=2))
    else:
        for found in savepoints:
            what = found.problem if found.metadata is None else f"{found.metadata.job}, {found.metadata.size:,} bytes"
            typer.echo(f"{found.where}  {what}")


def _line(found: Found) -> dict[str, Any]:
    data = found.metadata
    return {
        "path": found.where,
        "job": None if data is None else data.job,
        "bytes": None if data is None else data.size,
        "created": None if data is None else data.created,
        "problem": found.problem,
    }


@savepoint_app.command()
def diff(
    one: Annotated[str, _PATH],
    other: Annotated[str, _PATH],
    as_json: Annotated[bool, typer.Option("--json", help="Print the differences as JSON.")] = False,
) -> None:
    """Print the differences between two savepoints, including state types. The exit code is 1 if they differ."""
    with ShownErrors():
        differences = Savepoint.load(one).compared(Savepoint.load(other))
        if as_json:
            typer.echo(json.dumps([each._asdict() for each in differences], indent=2))
        else:
            for each in differences:
                typer.echo(str(each))
    raise typer.Exit(1 if differences else 0)
