"""Commands for running jobs: `penstock list`, `stop`, `cancel`, `rescale`, `checkpoint`, and `savepoint JOB`."""

from __future__ import annotations

import json
import os
import re
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from typer.core import TyperCommand

from penstock.cli.found_jobs import FoundJobs
from penstock.cli.listed_job import ListedJob
from penstock.cli.overrides import Setting, YarnId
from penstock.cli.service_address import Address
from penstock.cli.shown_errors import ShownErrors
from penstock.datastream.program_runner import INTERRUPTED
from penstock.driver.control_messages import Cancel, Done, MakeSavepoint, Request, Rescale, Stop, TakeCheckpoint

Job = Annotated[str, typer.Argument(metavar="JOB", help="The job's id, a prefix of the id, or its name.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
_WHERE = "Directory for the savepoint. By default the job's settings apply."


def list_(
    as_json: Annotated[bool, typer.Option("--json", help="Print all details as JSON.")] = False,
    all_jobs: Annotated[
        bool, typer.Option("-a", "--all", help="Include jobs that have ended, as far as the service remembers them.")
    ] = False,
    address: Address = None,
    setting: Setting = None,
) -> None:
    """List the running jobs: those that you started by hand on this host, and those of the service."""
    with ShownErrors():
        jobs = [job for job in FoundJobs(setting, address).all() if all_jobs or not job.ended]
    if as_json:
        typer.echo(json.dumps([dict(job.details) for job in jobs], indent=2))
    elif not jobs:
        where = f"The service at {address}" if address else "This user"
        typer.echo(f"{where} has no running jobs{'' if address else ' on this host'}.", err=True)
    else:
        rows = [("ID", "NAME", "STATUS", "SINCE", "EPOCHS", "PARALLELISM", "RESTARTS"), *(job.row() for job in jobs)]
        widths = [max(map(len, column)) for column in zip(*rows)]
        for row in rows:
            typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())
        for job in jobs:
            if job.reason and not job.ended:
                typer.echo(f"{job}: {job.reason.splitlines()[0]}")


def savepoint(
    job: Job,
    directory: Annotated[str | None, typer.Argument(metavar="DIR", help=_WHERE)] = None,
    address: Address = None,
    setting: Setting = None,
    as_json: AsJson = False,
    yarn_id: YarnId = None,
) -> None:
    """Take a savepoint of a running job, which continues, and print its path."""
    asked = MakeSavepoint(directory=absolute(directory))
    _report(_have_done(job, address, setting, "Taking a savepoint of", asked), as_json)


def stop(
    job: Job,
    drain: Annotated[
        bool, typer.Option("-d", "--drain", help="End the input first, so that all timers and windows fire.")
    ] = False,
    directory: Annotated[
        str | None, typer.Option("-p", "--savepoint-path", "--savepointPath", metavar="DIR", help=_WHERE)
    ] = None,
    address: Address = None,
    setting: Setting = None,
    as_json: AsJson = False,
    yarn_id: YarnId = None,
) -> None:
    """Stop a running job with a savepoint and print its path."""
    asked = Stop(directory=absolute(directory), drain=drain)
    _report(_have_done(job, address, setting, "Stopping", asked), as_json)


def cancel(
    job: Job,
    savepoint: Annotated[
        str | None,
        typer.Option(
            "-s",
            "--with-savepoint",
            "--withSavepoint",
            metavar="[DIR]",
            help="Take a savepoint first and print its path.",
        ),
    ] = None,
    address: Address = None,
    setting: Setting = None,
    as_json: AsJson = False,
    yarn_id: YarnId = None,
) -> None:
    """Cancel a running job, immediately or with a savepoint."""
    asked = Cancel(savepoint=savepoint is not None, directory=absolute(savepoint))
    _report(_have_done(job, address, setting, "Cancelling", asked), as_json)


def rescale(
    job: Job,
    parallelism: Annotated[
        list[str],
        typer.Argument(metavar="N|UID=N", help="Parallelism of all operators, or of one operator by uid or name."),
    ],
    address: Address = None,
    setting: Setting = None,
    as_json: AsJson = False,
    yarn_id: YarnId = None,
) -> None:
    """Change the parallelism of a running job. Return when the job runs with it, and has a checkpoint that says so."""
    asked = Rescale(parallelism=_wanted(parallelism))
    _report(_have_done(job, address, setting, "Rescaling", asked), as_json)


def checkpoint(
    job: Job,
    address: Address = None,
    setting: Setting = None,
    as_json: AsJson = False,
    yarn_id: YarnId = None,
) -> None:
    """Take a checkpoint of a running job now, and print its number."""
    _report(_have_done(job, address, setting, "Taking a checkpoint of", TakeCheckpoint()), as_json)


_WITH_SAVEPOINT = ("-s", "--with-savepoint", "--withSavepoint")
_WITH_A_VALUE = ("-D", "-m", "--jobmanager", "-yid", "--yarnapplicationId")


class CancelCommand(TyperCommand):
    """Lets `-s` omit its directory, as in Flink: a lone argument is the job, not the savepoint directory."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        place = next((place for place, word in enumerate(args) if word in _WITH_SAVEPOINT), None)
        if place is not None:
            words = [
                word
                for before, word in zip(["", *args], args)
                if before not in _WITH_A_VALUE and not word.startswith("-")
            ]
            followed = args[place + 1 : place + 2] and not args[place + 1].startswith("-")
            if not followed or len(words) < 2:
                args = [*args[: place + 1], "", *args[place + 1 :]]
        return super().parse_args(ctx, args)


def _have_done(
    given: str, address: str | None, setting: list[str] | None, doing: str, request: Request
) -> tuple[ListedJob, Done]:
    with ShownErrors():
        job = FoundJobs(setting, address).one(given)
        try:
            with progress(f"{doing} '{job.name or given}'"):
                return job, job.perform(request)
        except KeyboardInterrupt:
            typer.echo("Stopped waiting. The job will still complete the request.", err=True)
            raise typer.Exit(INTERRUPTED) from None


def _report(result: tuple[ListedJob, Done], as_json: bool) -> None:
    job, done = result
    if as_json:
        typer.echo(json.dumps({"id": job.id, "savepoint": done.savepoint, "checkpoint": done.checkpoint}, indent=2))
    elif done.savepoint is not None:
        typer.echo(done.savepoint)
    elif done.checkpoint is not None:
        typer.echo(str(done.checkpoint))


def progress(doing: str) -> Progress:
    """Show the current action and its duration on a terminal, until it is done. Use stderr: stdout is for the path."""
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    progress.add_task(doing)
    return progress


def absolute(directory: str | None) -> str | None:
    """Return an absolute path, because the job can have another working directory than this command."""
    if not directory or re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", directory):
        return directory or None
    return os.path.abspath(directory)


def _wanted(given: list[str]) -> int | dict[str, int]:
    if len(given) == 1 and "=" not in given[0]:
        return _number(given[0])
    wanted: dict[str, int] = {}
    for text in given:
        uid, equals, number = text.rpartition("=")
        if not equals or not uid or uid in wanted:
            raise typer.BadParameter(
                f"'{text}' is invalid: pass one number, or UID=N for each operator.", param_hint="N"
            )
        wanted[uid] = _number(number)
    return wanted


def _number(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) < 1:
        raise typer.BadParameter(f"'{text}' is not a valid number of subtasks.", param_hint="N")
    return int(text)
