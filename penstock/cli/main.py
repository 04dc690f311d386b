"""The `penstock` command."""

from __future__ import annotations

import logging
import platform
from collections.abc import Mapping
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Annotated

import typer

import penstock
from penstock.cli.dry_run import dry_run
from penstock.cli.info import info
from penstock.cli.jobs import CancelCommand, cancel, list_, rescale, stop
from penstock.cli.overrides import Setting, YarnId, overrides_of
from penstock.cli.plan import plan
from penstock.cli.program import run_program
from penstock.cli.savepoint import savepoint_app
from penstock.cli.state import state_app
from penstock.common.console import console
from penstock.common.options.checkpoints import CLAIM_MODE, IGNORE_UNCLAIMED_STATE, RECOVERY_PATH
from penstock.common.options.program import PARALLELISM
from penstock.common.options.running import QUIET
from penstock.datastream.launch import LaunchContext, launch
from penstock.errors import SourceLocation
from penstock.savepoint.restoring import RecoveryClaimMode

app = typer.Typer(
    name="penstock",
    help="Stateful stream processing in Python on Spark.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


# All arguments after the program's name belong to the program.
@app.command(context_settings={"allow_interspersed_args": False})
def run(
    program: Annotated[Path, typer.Argument(exists=True, dir_okay=False, readable=True, help="A Python file.")],
    arguments: Annotated[list[str] | None, typer.Argument(help="Passed to the program.")] = None,
    parallelism: Annotated[
        int | None,
        typer.Option("-p", "--parallelism", min=1, help="Number of subtasks of operators that do not set their own."),
    ] = None,
    savepoint: Annotated[
        str | None,
        typer.Option("-s", "--from-savepoint", "--fromSavepoint", metavar="PATH", help="Start from this savepoint."),
    ] = None,
    allow_non_restored_state: Annotated[
        bool,
        typer.Option(
            "-n",
            "--allow-non-restored-state",
            "--allowNonRestoredState",
            help="Drop savepoint state that the program no longer declares.",
        ),
    ] = False,
    claim_mode: Annotated[
        RecoveryClaimMode | None,
        typer.Option("--claim-mode", help="CLAIM: the job deletes the savepoint after its own first checkpoint."),
    ] = None,
    setting: Setting = None,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Print only warnings and errors, not progress.")] = False,
    yarn_id: YarnId = None,
    dry: Annotated[
        bool, typer.Option("--dry-run", help="Compare the savepoint with the program without starting a job.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result of --dry-run as JSON.")] = False,
) -> None:
    """Run a Python program, as python would, with settings from the command line."""
    if savepoint is None and (allow_non_restored_state or claim_mode is not None):
        raise typer.BadParameter("This option needs a savepoint: pass one with -s PATH.", param_hint="-n")
    if dry and savepoint is None:
        raise typer.BadParameter("This option needs a savepoint: pass one with -s PATH.", param_hint="--dry-run")
    if as_json and not dry:
        raise typer.BadParameter("This option requires --dry-run.", param_hint="--json")
    overrides = overrides_of(setting)
    if parallelism is not None:
        overrides[PARALLELISM.key] = str(parallelism)
    if savepoint is not None:
        overrides[RECOVERY_PATH.key] = savepoint
        overrides[IGNORE_UNCLAIMED_STATE.key] = str(allow_non_restored_state).lower()
    if claim_mode is not None:
        overrides[CLAIM_MODE.key] = claim_mode.value
    if quiet:
        overrides[QUIET.key] = "true"
    if dry:
        raise typer.Exit(dry_run(program, arguments or [], as_json, overrides))
    console(quiet)
    raise typer.Exit(run_jobs(program, arguments or [], overrides))


def run_jobs(program: Path, arguments: list[str], settings: Mapping[str, str]) -> int:
    """Run a program with the settings of the command line, and warn about jobs that it declared but did not execute."""
    not_executed: dict[int, SourceLocation | None] = {}
    launch(LaunchContext(settings=settings, not_executed=not_executed))
    code = run_program(program, arguments)
    for place in list(not_executed.values()) if code == 0 else ():
        where = "" if place is None else f" at {place.file}:{place.line}"
        logging.getLogger("penstock").warning(
            "The program declared a stream%s but did not run it, because it never called env.execute().", where
        )
    return code


app.command(context_settings={"allow_interspersed_args": False})(plan)
app.command(context_settings={"allow_interspersed_args": False})(info)
app.command(name="list")(list_)
app.add_typer(savepoint_app)
app.command()(stop)
app.command(cls=CancelCommand)(cancel)
app.command()(rescale)
app.add_typer(state_app)


@app.command()
def version() -> None:
    """Print the versions of Penstock, Spark and Python."""
    spark = installed_version("pyspark")
    typer.echo(f"Penstock {penstock.__version__}, Spark {spark}, Python {platform.python_version()}")


def main() -> None:
    app()


if __name__ == "__main__":
    main()
