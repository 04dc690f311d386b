"""`penstock run -d` and `penstock run -m`: pack a program, send it to a service, and follow its job."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import typer

from penstock.cli.cluster_jobs import ClusterJobs
from penstock.cli.jobs import progress
from penstock.cli.service_address import command_settings, service_of
from penstock.cli.shipping import PROGRAMS, Chosen
from penstock.cli.shown_errors import ShownErrors
from penstock.cluster.program import pack
from penstock.common.options.program import PYTHON_ARCHIVES, PYTHON_FILES, PYTHON_REQUIREMENTS
from penstock.common.options.service import REST_MAX_CONTENT
from penstock.datastream.program_runner import INTERRUPTED
from penstock.errors import PenstockError
from penstock.rest import contract
from penstock.rest.client import RestClient
from penstock.rest.command_types import JobLine

_SHIPPED = (PYTHON_FILES.key, PYTHON_ARCHIVES.key, PYTHON_REQUIREMENTS.key)
_OF_THE_SERVICE = ("rest.", "cluster.")
"""Settings with these prefixes choose the service, and do not concern the job."""


class CannotShip(PenstockError):
    """The program cannot be sent to a service in this form. Operator action: follow the message."""

    retryable = False


def submit(
    chosen: Chosen,
    *,
    settings: Mapping[str, str],
    given: list[str] | None,
    address: str | None,
    savepoint: str | None,
    claim_mode: Literal["CLAIM", "NO_CLAIM"] | None,
    allow_non_restored_state: bool,
    detached: bool,
    as_json: bool,
) -> int:
    """Submit a program as a job, follow the job unless it is detached, and return the exit code.

    Args:
        chosen: The program.
        settings: The settings of the job, from the command line.
        given: The options -D of the command line, which also choose the service.
        address: The option -m.
        savepoint: The absolute path of the savepoint to start from.
        claim_mode: Who owns the savepoint.
        allow_non_restored_state: Whether to drop state that the program does not declare.
        detached: Whether to return once the service has the job.
        as_json: Whether to print JSON instead of the id.
    """
    with ShownErrors():
        of_command = command_settings(given)
        client = service_of(of_command, address)
        with progress(f"Submitting {chosen.program.name}"):
            program, entry = _uploaded(client, chosen, settings, REST_MAX_CONTENT.read(of_command))
            job = _run(
                client,
                program,
                entry,
                arguments=chosen.arguments,
                settings={
                    key: value
                    for key, value in settings.items()
                    if key not in _SHIPPED and not key.startswith(_OF_THE_SERVICE)
                },
                savepoint=savepoint,
                claim_mode=claim_mode,
                allow_non_restored_state=allow_non_restored_state,
            )
        where = f"{client.host}:{client.port}"
        if as_json:
            typer.echo(json.dumps({"id": job, "cluster": where}, indent=2))
        else:
            typer.echo(job)
        short = f"{job[:8]} -m {address}" if address else job[:8]
        if detached:
            typer.echo(f"Submitted to {where}. Follow its log with `penstock logs -f {short}`.", err=True)
            return 0
        return _followed(ClusterJobs(client), job, short)


def _uploaded(
    client: RestClient, chosen: Chosen, settings: Mapping[str, str], most_bytes: int
) -> tuple[str, str | None]:
    """Upload a program with its dependencies, and return its id and the module that runs, if it is not packed."""
    if chosen.program.is_file() and chosen.program.suffix in PROGRAMS:
        if any(key in settings for key in _SHIPPED):
            raise CannotShip(
                f"{chosen.program.name} is packed already, so dependencies cannot be added.",
                fix="Submit the Python file or folder instead, with the same options.",
            )
        return client.upload(chosen.program), chosen.module or None
    requirements, _, wheels = settings.get(PYTHON_REQUIREMENTS.key, "").partition("#")
    archives = [part.partition("#") for part in _parts(settings, PYTHON_ARCHIVES.key)]
    with tempfile.TemporaryDirectory(prefix="penstock-") as folder:
        name = chosen.module.rpartition(".")[2] if chosen.module else chosen.program.resolve().stem
        packed = pack(
            chosen.program,
            Path(folder) / f"{name}.zip",
            module=chosen.module,
            py_files=_parts(settings, PYTHON_FILES.key),
            archives=[(path, name) for path, _, name in archives],
            requirements=requirements,
            wheels=wheels,
            most_bytes=most_bytes,
        )
        return client.upload(packed), None


def _parts(settings: Mapping[str, str], key: str) -> list[str]:
    return [part for part in settings.get(key, "").split(",") if part]


def _run(
    client: RestClient,
    program: str,
    entry: str | None,
    *,
    arguments: list[str],
    settings: dict[str, str],
    savepoint: str | None,
    claim_mode: Literal["CLAIM", "NO_CLAIM"] | None,
    allow_non_restored_state: bool,
) -> str:
    body = contract.JarRunRequestBody(
        entry_class=entry,
        program_args_list=arguments,
        savepoint_path=savepoint,
        claim_mode=claim_mode,
        allow_non_restored_state=allow_non_restored_state if savepoint else None,
        flink_configuration=settings,
    )
    return client.post(f"/jars/{program}/run", contract.JarRunResponseBody, body).jobid


def _followed(jobs: ClusterJobs, job: str, short: str) -> int:
    """Print the states of a job until it ends, and return the exit code: 0 unless it failed.

    `short` is how another command names the job.
    """
    last = ""

    def changed(line: JobLine) -> None:
        nonlocal last
        if line.status != last:
            last = line.status
            typer.echo(f"Job '{line.name}' is {line.status}.", err=True)

    try:
        line = jobs.wait(job, changed)
    except KeyboardInterrupt:
        typer.echo(f"Detached. The job keeps running: `penstock cancel {short}` cancels it.", err=True)
        return INTERRUPTED
    if line.reason:
        typer.echo(line.reason, err=True)
    return 1 if line.status == "FAILED" else 0
