"""`penstock savepoint`: look at savepoints, compare and remove them. No job need run."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from penstock.checkpoint.inspecting import Savepoint
from penstock.checkpoint.savepoints import dispose_savepoint, savepoint_storage
from penstock.common.mistakes import short_form
from penstock.errors import PenstockError

savepoint_app = typer.Typer(
    name="savepoint", help="Look at savepoints, compare and remove them.", no_args_is_help=True, add_completion=False
)
_PATH = typer.Argument(help="Its directory, or a URI such as s3://bucket/path.")


@savepoint_app.callback(invoke_without_command=True)
def savepoint(
    dispose: Annotated[str | None, typer.Option("-d", "--dispose", metavar="PATH", help="Remove this one.")] = None,
) -> None:
    if dispose is not None:
        with _Told():
            dispose_savepoint(savepoint_storage(dispose))
            typer.echo(f"Removed {dispose}.")


@savepoint_app.command()
def inspect(path: Annotated[str, _PATH]) -> None:
    """Say what is in a savepoint: job, operators, states, sizes, positions."""
    with _Told():
        typer.echo(Savepoint.load(path).describe())


@savepoint_app.command(name="list")
def list_(directory: Annotated[str, typer.Argument(help="Where savepoints are.")]) -> None:
    """List the savepoints in a directory, oldest first."""
    with _Told():
        for found in Savepoint.list(directory):
            what = found.problem if found.metadata is None else f"{found.metadata.job}, {found.metadata.size:,} bytes"
            typer.echo(f"{found.where}  {what}")


@savepoint_app.command()
def diff(
    one: Annotated[str, _PATH],
    other: Annotated[str, _PATH],
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Say in what two savepoints differ, types of states too; exit code 1 if they do."""
    with _Told():
        differences = Savepoint.load(one).compared(Savepoint.load(other))
        if as_json:
            typer.echo(json.dumps([each._asdict() for each in differences], indent=2))
        else:
            for each in differences:
                typer.echo(str(each))
    raise typer.Exit(1 if differences else 0)


class _Told:
    """Shows an error of ours as programs show it, and ends the command with exit code 1."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, PenstockError):
            typer.echo(short_form(error), err=True)
            raise typer.Exit(1) from None
