"""Commands for jobs that run on this host: `penstock list`, `stop`, `cancel`, `rescale`, and `savepoint JOB`."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from typer.core import TyperCommand

from penstock.cli.overrides import Setting, YarnId, overrides_of
from penstock.cli.program import INTERRUPTED
from penstock.cli.shown_errors import ShownErrors
from penstock.common.options import canonical, check_keys, surrounding_settings
from penstock.control.client import Running, ask, find_job, running_jobs
from penstock.control.place import control_directory
from penstock.driver.control_messages import Cancel, Description, MakeSavepoint, Request, Rescale, Stop

Job = Annotated[str, typer.Argument(metavar="JOB", help="The job's id, a prefix of the id, or its name.")]
_WHERE = "Directory for the savepoint. By default the job's settings apply."


def list_(
    as_json: Annotated[bool, typer.Option("--json", help="Print all details as JSON.")] = False,
    setting: Setting = None,
) -> None:
    """List the jobs running on this host."""
    with ShownErrors():
        jobs = running_jobs(_directory(setting))
    if as_json:
        typer.echo(json.dumps([_all_of(job) for job in jobs], indent=2))
    elif not jobs:
        typer.echo("This user has no running jobs on this host.", err=True)
    else:
        rows = [("ID", "NAME", "STATUS", "SINCE", "EPOCHS", "PARALLELISM", "RESTARTS"), *map(_row, jobs)]
        widths = [max(map(len, column)) for column in zip(*rows)]
        for row in rows:
            typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())


def savepoint(
    job: Job,
    directory: Annotated[str | None, typer.Argument(metavar="DIR", help=_WHERE)] = None,
    setting: Setting = None,
    yarn_id: YarnId = None,
) -> None:
    """Take a savepoint of a running job, which continues, and print its path."""
    _have_done(job, setting, "Taking a savepoint of", lambda: MakeSavepoint(directory=_absolute(directory)))


def stop(
    job: Job,
    drain: Annotated[
        bool, typer.Option("-d", "--drain", help="End the input first, so that all timers and windows fire.")
    ] = False,
    directory: Annotated[
        str | None, typer.Option("-p", "--savepoint-path", "--savepointPath", metavar="DIR", help=_WHERE)
    ] = None,
    setting: Setting = None,
    yarn_id: YarnId = None,
) -> None:
    """Stop a running job with a savepoint and print its path."""
    _have_done(job, setting, "Stopping", lambda: Stop(directory=_absolute(directory), drain=drain))


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
    setting: Setting = None,
    yarn_id: YarnId = None,
) -> None:
    """Cancel a running job, immediately or with a savepoint."""
    _have_done(
        job, setting, "Cancelling", lambda: Cancel(savepoint=savepoint is not None, directory=_absolute(savepoint))
    )


def rescale(
    job: Job,
    parallelism: Annotated[
        list[str],
        typer.Argument(metavar="N|UID=N", help="Parallelism of all operators, or of one operator by uid or name."),
    ],
    setting: Setting = None,
) -> None:
    """Change the parallelism of a running job, starting with its next epoch."""
    _have_done(job, setting, "Rescaling", lambda: Rescale(parallelism=_wanted(parallelism)))


_WITH_SAVEPOINT = ("-s", "--with-savepoint", "--withSavepoint")
_WITH_A_VALUE = ("-D", "-yid", "--yarnapplicationId")


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


def _have_done(given: str, setting: list[str] | None, doing: str, request: Callable[[], Request]) -> None:
    asked = request()
    with ShownErrors():
        directory = _directory(setting)
        job = find_job(directory, given)
        name = given if job.description is None else job.description.name
        try:
            with _shown(f"{doing} '{name}'"):
                done = ask(directory, job, asked)
        except KeyboardInterrupt:
            typer.echo("Stopped waiting. The job will still complete the request.", err=True)
            raise typer.Exit(INTERRUPTED) from None
    if done.savepoint is not None:
        typer.echo(done.savepoint)


def _shown(doing: str) -> Progress:
    """Show the current action and its duration on a terminal, until it is done. Use stderr: stdout is for the path."""
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    progress.add_task(doing)
    return progress


def _directory(setting: list[str] | None) -> str:
    overrides = overrides_of(setting)
    check_keys(overrides)
    return control_directory(canonical(surrounding_settings() | overrides))


def _absolute(directory: str | None) -> str | None:
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


def _all_of(job: Running) -> dict[str, Any]:
    if job.description is None:
        return {"id": job.id, "pid": job.pid, "status": None}
    known: dict[str, Any] = msgspec.to_builtins(job.description)
    known.pop("type")
    return known


def _row(job: Running) -> tuple[str, ...]:
    known = job.description
    if known is None:
        return (job.id, "", f"process {job.pid} does not respond", "", "", "", "")
    since = datetime.fromtimestamp(known.started / 1000).strftime("%Y-%m-%d %H:%M:%S")
    return (job.id, known.name, known.status, since, str(known.epochs), _parallelism(known), str(known.restarts))


def _parallelism(known: Description) -> str:
    numbers = sorted(set(known.parallelism.values()))
    return " to ".join(str(number) for number in dict.fromkeys([numbers[0], numbers[-1]])) if numbers else ""
