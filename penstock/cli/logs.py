"""`penstock logs`: the log files of a cluster's job."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from penstock.cli.found_jobs import FoundJobs
from penstock.cli.jobs import Job
from penstock.cli.overrides import Setting
from penstock.cli.service_address import Address
from penstock.cli.shown_errors import ShownErrors

_BYTES_PER_LINE = 1024
"""More than an average line has, so that the part that is read contains enough lines."""
_MOST_BYTES = 64 << 20


def logs(
    job: Job,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Go on until the job ends, through all further attempts.")
    ] = False,
    lines: Annotated[int, typer.Option("-n", "--lines", min=0, help="Number of lines to print first.")] = 100,
    attempt: Annotated[
        int | None,
        typer.Option(
            "--attempt", min=1, help="The attempt, from 1. By default the last one, and with -f those after it."
        ),
    ] = None,
    stdout: Annotated[
        bool, typer.Option("--stdout", help="The standard output of the program instead of its log.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the lines as a JSON array.")] = False,
    address: Address = None,
    setting: Setting = None,
) -> None:
    """Print the end of the log of a job of the service. The job can have ended.

    A name means the running job with that name, or else the newest one.
    """
    if follow and as_json:
        raise typer.BadParameter("An array has an end: pass --json or --follow, not both.", param_hint="--json")
    with ShownErrors():
        log = FoundJobs(setting, address).one(job, ended=True).log(stdout, attempt, follow)
        most = min(max(lines, 1) * _BYTES_PER_LINE, _MOST_BYTES)
        shown = last_lines(log.tail(most), lines)
        if as_json:
            typer.echo(json.dumps(shown.decode(errors="replace").splitlines(), indent=2))
        elif not follow:
            _write(shown)
        else:
            try:
                for part in log.follow(len(shown)):
                    _write(part)
            except KeyboardInterrupt:
                raise typer.Exit(0) from None


def last_lines(text: bytes, number: int) -> bytes:
    """Return the last lines of a text. The last one can be incomplete."""
    return b"".join(text.splitlines(keepends=True)[-number:]) if number else b""


def _write(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
