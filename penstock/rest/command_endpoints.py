"""Endpoints below /penstock/v1/ for the `penstock` command: the cluster, a line per job, rescale by operator, drain."""

from __future__ import annotations

import os

from starlette.requests import Request

import penstock
from penstock.driver.control_messages import Rescale
from penstock.driver.job_snapshot import JobSnapshot
from penstock.rest import contract
from penstock.rest.bodies import decoded
from penstock.rest.command_types import ClusterDescription, JobLine, RescaleRequest
from penstock.rest.endpoints import Endpoint, Nothing
from penstock.rest.errors import BadRequest
from penstock.rest.service import Service

COMMAND_ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint("GET", "/penstock/v1/cluster", ClusterDescription),
    Endpoint("POST", "/penstock/v1/drain", Nothing),
    Endpoint("GET", "/penstock/v1/jobs", list[JobLine]),
    Endpoint("POST", "/penstock/v1/jobs/:jobid/rescaling", contract.TriggerResponse, body=RescaleRequest, status=202),
)


async def cluster(service: Service, request: Request) -> ClusterDescription:
    """GET /penstock/v1/cluster."""
    state = service.gateway.state()
    return ClusterDescription(
        version=penstock.__version__,
        pid=os.getpid(),
        leading=state.leading,
        leader=state.leader,
        ready=state.ready,
        draining=state.draining,
        problem=state.problem,
        application=state.application,
    )


async def drain(service: Service, request: Request) -> None:
    """POST /penstock/v1/drain: accept no more jobs. Those that run are not affected."""
    await service.gateway.drain()


async def jobs(service: Service, request: Request) -> list[JobLine]:
    """GET /penstock/v1/jobs."""
    return [_line(service, each) for each in service.gateway.jobs()]


async def rescale(service: Service, request: Request) -> contract.TriggerResponse:
    """POST /penstock/v1/jobs/:jobid/rescaling."""
    body = await decoded(request, RescaleRequest)
    job = service.gateway.job(request.path_params["jobid"])
    if not body.parallelism:
        raise BadRequest("The body names no operator.", fix="Pass a number, or the parallelism of operators by uid.")
    return contract.TriggerResponse(
        request_id=await service.gateway.trigger(job.id, Rescale(parallelism=body.parallelism))
    )


def _line(service: Service, job: JobSnapshot) -> JobLine:
    return JobLine(
        id=job.id,
        name=job.name,
        status=job.state,
        started=job.started_ms,
        ended=job.ended_ms,
        attempt=job.attempt,
        epochs=job.epochs,
        restarts=job.restarts,
        # Sources have one task per partition, so their number is not chosen.
        parallelism={vertex.uid: vertex.parallelism for vertex in job.vertices if vertex.level > 0},
        reason=service.masking.text(job.reason),
        checkpoints=service.masking.text(job.checkpointing.storage),
    )
