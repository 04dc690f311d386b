"""The `penstock` command."""

from __future__ import annotations

import json
import platform
from importlib.metadata import version as installed_version
from typing import Annotated

import typer

import penstock
from penstock.cli.application import run_jobs, run_with_rest
from penstock.cli.check import check
from penstock.cli.cluster import cluster_app
from penstock.cli.dry_run import dry_run
from penstock.cli.info import info
from penstock.cli.jobs import AsJson, CancelCommand, absolute, cancel, checkpoint, list_, rescale, stop
from penstock.cli.logs import logs
from penstock.cli.overrides import Setting, YarnId, overrides_of
from penstock.cli.plan import plan
from penstock.cli.savepoint import savepoint_app
from penstock.cli.service_address import Address
from penstock.cli.shipping import (
    Archives,
    Arguments,
    Program,
    PyFiles,
    PythonFile,
    PythonModule,
    RequirementsFile,
    chosen_program,
    dependency_settings,
    import_dependencies,
)
from penstock.cli.sql import sql
from penstock.cli.state import state_app
from penstock.cli.state_server import state_server
from penstock.cli.submit import submit
from penstock.cli.web import web
from penstock.common.console import console
from penstock.common.options import configuration_file
from penstock.common.options.checkpoints import CLAIM_MODE, IGNORE_UNCLAIMED_STATE, RECOVERY_PATH
from penstock.common.options.program import PARALLELISM
from penstock.common.options.running import QUIET
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
    program: Program = None,
    arguments: Arguments = None,
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
        typer.Option(
            "--claim-mode",
            help="Who owns the savepoint. CLAIM: the job deletes it after its own first checkpoint. NO_CLAIM, the "
            "default: the job leaves it alone.",
        ),
    ] = None,
    setting: Setting = None,
    py_files: PyFiles = None,
    archives: Archives = None,
    requirements: RequirementsFile = None,
    python_file: PythonFile = None,
    module: PythonModule = None,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Print only warnings and errors, not progress.")] = False,
    yarn_id: YarnId = None,
    detached: Annotated[
        bool, typer.Option("-d", "--detached", help="Submit the program to a service, print the job's id, and return.")
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="With -d: return only when the job runs. The exit code is 1 if it fails.")
    ] = False,
    address: Address = None,
    web: Annotated[
        bool, typer.Option("--web", help="Serve the web page and the REST interface for this program while it runs.")
    ] = False,
    dry: Annotated[
        bool, typer.Option("--dry-run", help="With -s: compare the savepoint with the program, and start no job.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result of --dry-run, or the job's id, as JSON.")
    ] = False,
) -> None:
    """Run a Python program, as python would, or submit it to a service with -d or -m."""
    if savepoint is None and (allow_non_restored_state or claim_mode is not None):
        raise typer.BadParameter("This option needs a savepoint: pass one with -s PATH.", param_hint="-n")
    if dry and savepoint is None:
        raise typer.BadParameter("This option needs a savepoint: pass one with -s PATH.", param_hint="--dry-run")
    submitted = detached or address is not None
    if submitted and (dry or web):
        raise typer.BadParameter(
            "This option runs the program here, so -d and -m cannot be combined with it.",
            param_hint="--dry-run" if dry else "--web",
        )
    if as_json and not dry and not submitted:
        raise typer.BadParameter("This option requires --dry-run, -d or -m.", param_hint="--json")
    if wait and not detached:
        raise typer.BadParameter("This option requires -d.", param_hint="--wait")
    chosen = chosen_program(program, arguments, python_file, module)
    overrides = overrides_of(setting) | dependency_settings(py_files, archives, requirements)
    if parallelism is not None:
        overrides[PARALLELISM.key] = str(parallelism)
    if quiet:
        overrides[QUIET.key] = "true"
    if submitted:
        raise typer.Exit(
            submit(
                chosen,
                settings=overrides,
                given=setting,
                address=address,
                savepoint=absolute(savepoint),
                claim_mode=None if claim_mode is None else claim_mode.value,
                allow_non_restored_state=allow_non_restored_state,
                detached=detached,
                wait=wait,
                as_json=as_json,
            )
        )
    if savepoint is not None:
        overrides[RECOVERY_PATH.key] = savepoint
        overrides[IGNORE_UNCLAIMED_STATE.key] = str(allow_non_restored_state).lower()
    if claim_mode is not None:
        overrides[CLAIM_MODE.key] = claim_mode.value
    if dry:
        raise typer.Exit(dry_run(chosen, as_json, overrides))
    import_dependencies(overrides)
    console(quiet)
    if web:
        raise typer.Exit(run_with_rest(chosen, overrides, setting))
    raise typer.Exit(run_jobs(chosen, overrides))


app.command(context_settings={"allow_interspersed_args": False})(plan)
app.command(context_settings={"allow_interspersed_args": False})(info)
app.command()(check)
app.command(name="list")(list_)
app.command()(logs)
app.command()(checkpoint)
app.add_typer(savepoint_app)
app.command()(stop)
app.command(cls=CancelCommand)(cancel)
app.command()(rescale)
app.add_typer(state_app)
app.command(name="state-server")(state_server)
app.command()(sql)
app.add_typer(cluster_app)
app.command()(web)


@app.command()
def version(
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Print the configuration file, too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print the versions of Penstock, Spark and Python."""
    spark = installed_version("pyspark")
    if as_json:
        found = {"penstock": penstock.__version__, "spark": spark, "python": platform.python_version()}
        file = configuration_file()
        typer.echo(json.dumps(found | {"configuration": None if file is None else str(file)}, indent=2))
        return
    typer.echo(f"Penstock {penstock.__version__}, Spark {spark}, Python {platform.python_version()}")
    if verbose:
        typer.echo(f"Configuration file: {configuration_file() or 'none'}")


def main() -> None:
    app()


if __name__ == "__main__":
    main()
