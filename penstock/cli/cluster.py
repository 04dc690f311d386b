"""`penstock cluster`: start, stop and inspect the service of this host."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from penstock.cli.application import page_if_installed
from penstock.cli.cluster_jobs import ClusterJobs
from penstock.cli.jobs import AsJson, progress
from penstock.cli.overrides import Setting
from penstock.cli.service_address import (
    Address,
    client_at,
    command_settings,
    service_if_any,
    service_of,
    service_of_this_host,
)
from penstock.cli.service_packages import has_page, service_packages
from penstock.cli.shown_errors import ShownErrors
from penstock.cluster.directory import ClusterDirectory
from penstock.cluster.launcher import child_environment
from penstock.cluster.service_lock import AlreadyRunning, holder_of, is_held, send_signal
from penstock.common.options import configuration_file
from penstock.common.options.service import REST_AUTH
from penstock.driver.control_messages import Cancel
from penstock.errors import PenstockError
from penstock.rest import contract
from penstock.rest.client import NotNow, RefusedByService, RestClient, ServiceUnreachable
from penstock.rest.command_types import ClusterDescription
from penstock.rest.token_file import service_token, token_file
from penstock.web.login import login_url

cluster_app = typer.Typer(
    name="cluster", help="Start, stop and inspect the service.", no_args_is_help=True, add_completion=False
)

_START_S = 120.0
_STOP_S = 60.0
_LAST_LINES = 20


class CannotStart(PenstockError):
    """The service ended while it started, or is not ready after two minutes.

    Operator action: read the end of its log, which the message contains, and correct the cause.
    """

    retryable = False


class CannotStop(PenstockError):
    """The service was asked to stop, but its process still runs.

    Operator action: look at its log. If you kill the process, its jobs keep running too.
    """

    retryable = False


@cluster_app.command()
def start(
    foreground: Annotated[
        bool, typer.Option("--foreground", help="Stay in the foreground and log to standard error, as systemd expects.")
    ] = False,
    setting: Setting = None,
    as_json: AsJson = False,
) -> None:
    """Start the service on this host. It takes over jobs that still run."""
    with ShownErrors():
        settings = command_settings(setting)
        run_dispatcher = _dispatcher()
        if foreground:
            run_dispatcher(settings, page=page_if_installed())
            return
        directory = ClusterDirectory.configured(settings)
        directory.create()
        if (holder := holder_of(directory.lock)) is not None:
            raise AlreadyRunning(
                f"A service already runs in {directory.root} as process {holder.pid}.",
                fix="`penstock cluster status` shows it. To run another one, set another cluster.dir and rest.port.",
            )
        with progress("Starting the service"):
            address = _start(directory, settings)
    if as_json:
        typer.echo(json.dumps({"address": address, "directory": str(directory.root)}, indent=2))
        return
    typer.echo(f"The service answers at {address}.")
    if has_page():
        typer.echo(f"Page: {login_url(address, service_token(settings))}", err=True)
    if REST_AUTH.read(settings):
        typer.echo(f"Requests need the token in {token_file(settings)}; commands of this user read it.", err=True)
    typer.echo(
        f"Its log is {directory.log}.\nSubmit a job with `penstock run -d job.py`. Stop the service with "
        "`penstock cluster stop`.",
        err=True,
    )


def _start(directory: ClusterDirectory, settings: Mapping[str, str]) -> str:
    """Start a process in the background, wait until it is ready, and return its address."""
    with open(directory.log, "ab") as log:
        before = log.tell()
        process = subprocess.Popen(
            [sys.executable, "-m", f"penstock.{'web' if has_page() else 'rest'}.dispatcher_service"],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            # It must not keep the current directory of this command in use.
            cwd=directory.root,
            start_new_session=True,
            env=child_environment(),
        )
    assert process.stdin is not None
    process.stdin.write(msgspec.json.encode(settings))
    process.stdin.close()
    deadline = time.monotonic() + _START_S
    problem = "it does not answer"
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise CannotStart(
                f"The service ended with exit code {process.returncode}. The end of {directory.log}:\n"
                + _end_of(directory.log, before),
                fix="Correct the cause, and start it again.",
            )
        holder = holder_of(directory.lock)
        if holder is not None and holder.pid == process.pid and directory.address.exists():
            address = directory.address.read_text().strip()
            problem = _problem(settings, address)
            if not problem:
                return address
        time.sleep(0.05)
    raise CannotStart(
        f"The service runs as process {process.pid}, but is not ready: {problem}. The end of {directory.log}:\n"
        + _end_of(directory.log, before),
        fix="Correct the cause. It goes on trying until you stop it with `penstock cluster stop`.",
    )


def _problem(settings: Mapping[str, str], address: str) -> str:
    """Return why the service is not ready; empty if it is."""
    try:
        found = client_at(settings, address).get("/penstock/v1/cluster", ClusterDescription)
    except (RefusedByService, ServiceUnreachable) as error:
        return error.statement()
    return "" if found.ready else found.problem or "it is not ready"


@cluster_app.command()
def stop(
    cancel_jobs: Annotated[bool, typer.Option("--cancel-jobs", help="Cancel all jobs first.")] = False,
    address: Address = None,
    setting: Setting = None,
    as_json: AsJson = False,
) -> None:
    """Stop the service. Its jobs keep running, and the next service takes them over."""
    with ShownErrors():
        settings = command_settings(setting)
        directory = ClusterDirectory.configured(settings)
        local = not address and is_held(directory.lock)
        client = service_of_this_host(settings) if local else service_of(settings, address)
        running: int | None = None
        if client is not None:
            jobs = ClusterJobs(client)
            running = _cancelled(jobs) if cancel_jobs else _running(jobs)
        with progress("Stopping the service"):
            if local:
                _stop_process(directory)
            elif client is not None:
                client.delete("/cluster", dict[str, Any])
    if as_json:
        typer.echo(json.dumps({"stopped": True, "running_jobs": running}, indent=2))
    elif running:
        jobs_run = "1 job keeps" if running == 1 else f"{running} jobs keep"
        typer.echo(
            f"The service stopped. {jobs_run} running: `penstock cluster start` takes over, and `penstock cancel` then "
            "cancels a job."
        )
    else:
        typer.echo("The service stopped." if running == 0 else "The service stopped. Its jobs keep running.")


def _running(jobs: ClusterJobs) -> int | None:
    """Return how many jobs run; None if the service does not say."""
    try:
        return sum(not job.ended for job in jobs.jobs())
    except PenstockError:
        # It hangs, or is not ready. It is stopped all the same.
        return None


def _cancelled(jobs: ClusterJobs) -> int:
    """Cancel all jobs and return how many are left: none."""
    for job in [job for job in jobs.jobs() if not job.ended]:
        with progress(f"Cancelling '{job.name}'"):
            try:
                job.perform(Cancel())
            except NotNow:
                if any(each.id == job.id and not each.ended for each in jobs.jobs()):
                    raise
    return 0


def _stop_process(directory: ClusterDirectory) -> None:
    """Ask the process of the service to stop, and wait for its end."""
    deadline = time.monotonic() + _STOP_S
    asked = None
    while is_held(directory.lock):
        holder = holder_of(directory.lock)
        if asked is None and holder is not None and send_signal(holder, signal.SIGTERM):
            asked = holder
        if time.monotonic() > deadline:
            pid = "" if asked is None else f", process {asked.pid},"
            raise CannotStop(
                f"The service{pid} did not stop within {_STOP_S:.0f} s.", fix=f"Look at {directory.log}, then kill it."
            )
        time.sleep(0.05)


@cluster_app.command()
def drain(address: Address = None, setting: Setting = None, as_json: AsJson = False) -> None:
    """Stop accepting jobs. Those that run continue, and with several Dispatchers another one leads.

    After a restart, the service accepts jobs again.
    """
    with ShownErrors():
        service_of(command_settings(setting), address).post("/penstock/v1/drain", dict[str, Any])
    typer.echo(json.dumps({"draining": True}, indent=2) if as_json else "The service accepts no more jobs.")


@cluster_app.command()
def status(address: Address = None, setting: Setting = None, as_json: AsJson = False) -> None:
    """Show the service, its jobs and its slots. The exit code is 1 if it does not run."""
    with ShownErrors():
        settings = command_settings(setting)
        directory = ClusterDirectory.configured(settings)
        client = service_if_any(settings, address)
        found: dict[str, Any] = {"running": client is not None}
        if client is not None:
            found |= _described(client)
        if not address:
            file = configuration_file()
            found |= {"directory": str(directory.root), "configuration": None if file is None else str(file)}
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    else:
        for name, text in _in_words(found):
            typer.echo(f"{name:<14} {text}")
    raise typer.Exit(0 if found["running"] else 1)


def _described(client: RestClient) -> dict[str, Any]:
    service = client.get("/penstock/v1/cluster", ClusterDescription)
    found: dict[str, Any] = {
        "address": f"{client.host}:{client.port}",
        **msgspec.to_builtins(service),
        "jobs": None,
        "slots": None,
    }
    try:
        # A standby asks the leader, which might not answer.
        overview = client.get("/overview", contract.ClusterOverviewWithVersion)
        jobs = client.get("/jobs", contract.JobIdsWithStatusOverview).jobs
    except NotNow:
        return found
    return found | {
        "jobs": dict(sorted(Counter(job.status for job in jobs).items())),
        "slots": {"total": overview.slots_total, "available": overview.slots_available},
    }


def _in_words(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    lines = []
    if found["running"]:
        role = "leads" if found["leading"] else f"stands by; {found['leader'] or 'no Dispatcher'} leads"
        state = "draining" if found["draining"] else "ready" if found["ready"] else f"not ready: {found['problem']}"
        lines = [("Dispatcher", f"{found['address']}, process {found['pid']}, {role}, {state}")]
        if found["jobs"] is not None:
            jobs = ", ".join(f"{number} {state}" for state, number in found["jobs"].items()) or "none"
            slots = f"{found['slots']['total']} in executors of the jobs, {found['slots']['available']} of them free"
            lines += [("Jobs", jobs), ("Slots", slots)]
        lines += [("Version", found["version"])]
    else:
        lines = [("Dispatcher", "not running; start it with `penstock cluster start`")]
    if "directory" in found:
        lines += [("Directory", found["directory"]), ("Configuration", found["configuration"] or "no file")]
    return lines


def _end_of(path: Path, start: int) -> str:
    """Return the last lines of a file, at most those after a position."""
    with open(path, "rb") as file:
        file.seek(max(start, path.stat().st_size - (64 << 10)))
        return "\n".join(file.read().decode(errors="replace").splitlines()[-_LAST_LINES:])


def _dispatcher() -> Callable[..., None]:
    """Return the function that runs the service. Raises ServiceNotInstalled."""
    with service_packages():
        from penstock.rest.dispatcher_service import run_dispatcher
    return run_dispatcher
