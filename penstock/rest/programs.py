"""Endpoints of uploaded programs, which Flink's API calls jars."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import field
from starlette.requests import Request

from penstock.cluster.gateway import RunRequest
from penstock.common.options import canonical, without_effect
from penstock.common.options.program import PARALLELISM
from penstock.common.options.service import (
    DRIVER_MEMORY,
    DRIVER_MEMORY_OF_SPARK,
    SERVICE_PREFIXES,
    WEB_SUBMIT,
    memory_of_spark,
)
from penstock.rest import contract
from penstock.rest.bodies import decoded, hex_id, location, truth, whole
from penstock.rest.errors import BadRequest, Forbidden
from penstock.rest.plans import plan_info
from penstock.rest.program_arguments import entry_of, split_arguments
from penstock.rest.service import Service
from penstock.rest.uploads import received_file

_CLAIM_MODES = {"CLAIM": "CLAIM", "NO_CLAIM": "NO_CLAIM", "LEGACY": "NO_CLAIM"}
"""In Flink's mode LEGACY, Flink neither owns nor deletes the savepoint. So does a job of Penstock with NO_CLAIM."""


async def list_programs(service: Service, request: Request) -> contract.JarListInfo:
    """GET /jars."""
    return contract.JarListInfo(
        address=f"{request.url.scheme}://{request.headers['host']}",
        files=[
            contract.JarFileInfo(
                id=program.id,
                name=program.name,
                uploaded=program.uploaded_ms,
                entry=[contract.JarEntryInfo(name=program.name, description="")],
            )
            for program in await service.gateway.programs()
        ],
    )


async def upload(service: Service, request: Request) -> contract.JarUploadResponseBody:
    """POST /jars/upload."""
    _check_submit(service)
    async with received_file(service, request) as received:
        program = await service.gateway.upload(received.name, received.file)
    # Flink returns a path on the server. Clients take its last segment as the id.
    return contract.JarUploadResponseBody(filename=f"/flink-web-upload/{program.id}", status="success")


async def remove(service: Service, request: Request) -> None:
    """DELETE /jars/:jarid."""
    _check_submit(service)
    await service.gateway.remove_program(request.path_params["jarid"])


async def run(service: Service, request: Request) -> contract.JarRunResponseBody:
    """POST /jars/:jarid/run."""
    _check_submit(service)
    job_id = await service.gateway.run(await _run_request(request))
    request.state.job = job_id
    return contract.JarRunResponseBody(jobid=job_id, application_id=job_id)


async def plan(service: Service, request: Request) -> contract.JobPlanInfo:
    """GET or POST /jars/:jarid/plan. The program runs in another process up to the start of its job."""
    _check_submit(service)
    body = await decoded(request, _PlanBody)
    run_request = _request(request, body)
    # An id is the hash of a program, an underscore and its name.
    return plan_info(run_request.program.partition("_")[2], await service.gateway.plan(run_request))


async def dry_run(service: Service, request: Request) -> msgspec.Raw:
    """POST /penstock/v1/jars/:jarid/dry-run: compare the program with a savepoint, in another process."""
    _check_submit(service)
    run_request = await _run_request(request)
    if not run_request.savepoint:
        raise BadRequest("A dry run needs 'savepointPath'.")
    return msgspec.Raw((await service.gateway.dry_run(run_request)).encode())


async def _run_request(request: Request) -> RunRequest:
    body = await decoded(request, _RunBody)
    savepoint = body.savepoint_path or request.query_params.get("savepointPath", "")
    ignore = body.allow_non_restored_state
    if ignore is None:
        ignore = truth(request, "allowNonRestoredState")
    mode = body.claim_mode or body.restore_mode
    return msgspec.structs.replace(
        _request(request, body),
        savepoint=location("savepoint path", savepoint) if savepoint else "",
        claim_mode=_CLAIM_MODES[mode] if mode else "",
        allow_non_restored_state=bool(ignore),
    )


class _PlanBody(contract.JarPlanRequestBody, kw_only=True, frozen=True):
    program_args: str | None = field(name="programArgs", default=None)
    """All arguments as one text, as clients of Flink 1.x send them."""


class _RunBody(contract.JarRunRequestBody, kw_only=True, frozen=True):
    program_args: str | None = field(name="programArgs", default=None)


def _request(request: Request, body: _RunBody | _PlanBody) -> RunRequest:
    """Combine body and query. As in Flink, the body takes precedence."""
    arguments = _arguments(body.program_args_list, body.program_args)
    if arguments is None:
        separated = [part for given in request.query_params.getlist("programArg") for part in given.split(",") if part]
        arguments = _arguments(separated or None, request.query_params.get("program-args")) or []
    entry = entry_of(body.entry_class or request.query_params.get("entry-class", ""), arguments)
    parallelism = body.parallelism if body.parallelism is not None else whole(request, "parallelism")
    configuration = {**_of_the_job(body.flink_configuration or {}), **entry.settings}
    if parallelism is not None:
        if parallelism < 1:
            raise BadRequest("'parallelism' is not a positive integer.")
        configuration[PARALLELISM.key] = str(parallelism)
    return RunRequest(
        program=request.path_params["jarid"],
        entry=entry.entry,
        arguments=entry.arguments,
        configuration=configuration,
        job_id=hex_id("job id", body.job_id) if body.job_id else "",
    )


def _arguments(separated: list[str] | None, text: str | None) -> list[str] | None:
    """Return the program arguments of a body or a query, or None if it has none. Raises BadRequest."""
    if not text:
        return separated
    if separated:
        raise BadRequest("The program arguments are given twice.", fix="Pass only a list of them: 'programArgsList'.")
    return split_arguments(text)


def _of_the_job(given: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a job. Raises BadRequest for those of the service, which would have no effect."""
    settings = canonical(given)
    memory = settings.pop(DRIVER_MEMORY.key, None)
    if memory is not None:
        settings.setdefault(
            DRIVER_MEMORY_OF_SPARK, memory_of_spark(DRIVER_MEMORY.type.parse(DRIVER_MEMORY.key, memory))
        )
    for key in settings:
        if key.startswith(SERVICE_PREFIXES) and not without_effect([key]):
            raise BadRequest(
                f"{key} is a setting of the service, so a job cannot set it.",
                fix="Put it into the configuration file of the service, or pass it to `penstock cluster start -D`.",
            )
    return settings


def _check_submit(service: Service) -> None:
    if not service.submit:
        raise Forbidden(f"This service accepts no programs, because {WEB_SUBMIT.key} is false.")
