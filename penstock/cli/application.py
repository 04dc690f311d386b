"""`penstock run`: run a program in this process, and serve the REST interface for it with `--web`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import typer

from penstock.cli.service_address import command_settings
from penstock.cli.service_packages import has_page, service_packages
from penstock.cli.shipping import Chosen
from penstock.cli.shown_errors import ShownErrors
from penstock.common.job_client import JobClient
from penstock.common.options.service import REST_AUTH
from penstock.datastream.launch import LaunchContext, launch
from penstock.datastream.program_runner import run_program
from penstock.errors import SourceLocation
from penstock.rest.token_file import service_token, token_file
from penstock.web.login import login_url

if TYPE_CHECKING:
    from penstock.rest.assembly import AddPage
    from penstock.spark.job import Job

Observe = Callable[["Job", JobClient], Callable[[], None]]


def run_jobs(chosen: Chosen, settings: Mapping[str, str], observe: Observe | None = None) -> int:
    """Run a program with the settings of the command line, and warn about jobs that it declared but did not execute."""
    not_executed: dict[int, SourceLocation | None] = {}
    launch(LaunchContext(settings=settings, observe=observe, not_executed=not_executed))
    code = run_program(chosen.program, chosen.arguments, chosen.module)
    for place in list(not_executed.values()) if code == 0 else ():
        where = "" if place is None else f" at {place.file}:{place.line}"
        logging.getLogger("penstock").warning(
            "The program declared a stream%s but did not run it, because it never called env.execute().", where
        )
    return code


def run_with_rest(chosen: Chosen, settings: Mapping[str, str], given: list[str] | None) -> int:
    """Run a program and serve the REST interface for its jobs until it ends."""
    with ShownErrors():
        with service_packages():
            from penstock.rest.application_service import served_application
        of_command = command_settings(given)
        with served_application(of_command, page_if_installed()) as (gateway, address):

            def observe(job: Job, client: JobClient) -> Callable[[], None]:
                gateway.attach(job, client)
                return lambda: gateway.detach(job.id)

            token = f", with the token in {token_file(of_command)}" if REST_AUTH.read(of_command) else ""
            typer.echo(f"REST: {address}{token}", err=True)
            if has_page():
                typer.echo(f"Page: {login_url(address, service_token(of_command))}", err=True)
            else:
                typer.echo("Without a web page. To add it: pip install 'penstock[web]'", err=True)
            return run_jobs(chosen, settings, observe)


def page_if_installed() -> AddPage | None:
    """Return what adds the page to a service, if its packages are installed."""
    if not has_page():
        return None
    from penstock.web.mount import add_page

    return add_page
