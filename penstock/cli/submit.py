"""`penstock run -d` and `penstock run -m`: pack a program, send it to a service, and follow its job."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Literal

import typer

from penstock.cli.cluster_jobs import ClusterJobs, patiently
from penstock.cli.jobs import absolute, progress
from penstock.cli.service_address import command_settings, service_of
from penstock.cli.shipping import PROGRAMS, Chosen
from penstock.cli.shown_errors import ShownErrors
from penstock.cluster.program import pack
from penstock.cluster.records import new_job_id
from penstock.common.configuration import Configuration
from penstock.common.json_text import in_utf_8
from penstock.common.options import canonical
from penstock.common.options.checkpoints import CHECKPOINTS_DIRECTORY, RECOVERY_PATH, SAVEPOINTS_DIRECTORY
from penstock.common.options.program import PYTHON_ARCHIVES, PYTHON_FILES, PYTHON_REQUIREMENTS
from penstock.common.options.running import QUIET
from penstock.common.options.service import CLUSTER_DIRECTORY, REST_MAX_CONTENT, REST_TIMEOUT
from penstock.datastream.dependencies import configured_dependencies
from penstock.datastream.program_runner import INTERRUPTED
from penstock.errors import PenstockError
from penstock.rest import contract
from penstock.rest.client import NotNow, RestClient, ServiceUnreachable
from penstock.rest.command_types import JobLine

_SHIPPED = (PYTHON_FILES.key, PYTHON_ARCHIVES.key, PYTHON_REQUIREMENTS.key)
_OF_THE_COMMAND = (CLUSTER_DIRECTORY.key, REST_TIMEOUT.key)
"""Settings that tell this command how to reach the service, as those that start with `rest.` do."""
_LOCATIONS = (CHECKPOINTS_DIRECTORY.key, SAVEPOINTS_DIRECTORY.key, RECOVERY_PATH.key)
"""Settings with a path or URI, relative to the current directory of this command."""


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
    wait: bool,
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
        wait: Whether a detached command returns only when the job runs or has ended.
        as_json: Whether to print JSON instead of the id.
    """
    with ShownErrors():
        for argument in chosen.arguments:
            if in_utf_8(argument) != argument:
                raise CannotShip(
                    f"The argument {argument!r} of the program is not UTF-8 text, so it cannot be sent to a service.",
                    fix="Pass file names in another form, for example with quote() of urllib.parse.",
                )
        of_command = command_settings(given)
        client = service_of(of_command, address)
        with progress(f"Submitting {chosen.program.name}"):
            program, entry = _uploaded(client, chosen, settings, REST_MAX_CONTENT.read(of_command))
            job = _run(
                client,
                program,
                entry,
                arguments=chosen.arguments,
                settings=_of_the_job(settings),
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
        quiet = Configuration.from_dict(settings).get(QUIET)
        if detached and not quiet:
            typer.echo(f"Submitted to {where}. Follow its log with `penstock logs -f {short}`.", err=True)
        if detached and not wait:
            return 0
        return _followed(ClusterJobs(client), job, short, until_it_runs=detached, quiet=quiet)


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
    dependencies = configured_dependencies(Configuration.from_dict(settings))
    requirements, wheels = dependencies.requirements or ("", "")
    with tempfile.TemporaryDirectory(prefix="penstock-") as folder:
        name = chosen.module.rpartition(".")[2] if chosen.module else chosen.program.resolve().stem
        packed = pack(
            chosen.program,
            Path(folder) / f"{name}.zip",
            module=chosen.module,
            py_files=dependencies.files,
            archives=dependencies.archives,
            requirements=requirements,
            wheels=wheels,
            most_bytes=most_bytes,
        )
        return client.upload(packed), None


def _of_the_job(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that travel with the job. The service refuses those that concern only itself."""
    return {
        key: absolute(value) or "" if key in _LOCATIONS else value
        for key, value in canonical(settings).items()
        if key not in (*_SHIPPED, *_OF_THE_COMMAND) and not key.startswith("rest.")
    }


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
    # Chosen here: a request that is sent again with the same id submits no other job.
    job_id = new_job_id()
    body = contract.JarRunRequestBody(
        job_id=job_id,
        entry_class=entry,
        program_args_list=arguments,
        savepoint_path=savepoint,
        claim_mode=claim_mode,
        allow_non_restored_state=allow_non_restored_state if savepoint else None,
        flink_configuration=settings,
    )
    try:
        path = f"/jars/{program}/run"
        return patiently(lambda: client.post(path, contract.JarRunResponseBody, body), lambda answer: True).jobid
    except (ServiceUnreachable, NotNow) as error:
        if not isinstance(error, NotNow) or error.status == HTTPStatus.SERVICE_UNAVAILABLE:
            typer.echo(
                f"The service did not answer. It might have accepted job {job_id}: `penstock list` shows it if so.",
                err=True,
            )
        raise


def _followed(jobs: ClusterJobs, job: str, short: str, *, until_it_runs: bool, quiet: bool) -> int:
    """Print the states of a job until it ends, or until it runs, and return the exit code: 0 unless it failed.

    `quiet`: print the reason of a failure only. `short` is how another command names the job.
    """
    last = ""

    def changed(line: JobLine) -> None:
        nonlocal last
        if line.status != last and not quiet:
            last = line.status
            typer.echo(f"Job '{line.name}' is {line.status}.", err=True)

    try:
        line = jobs.wait(job, changed, until="RUNNING" if until_it_runs else "")
    except KeyboardInterrupt:
        typer.echo(f"Detached. The job keeps running: `penstock cancel {short}` cancels it.", err=True)
        return INTERRUPTED
    if line.reason:
        typer.echo(line.reason, err=True)
    return 1 if line.status == "FAILED" else 0
