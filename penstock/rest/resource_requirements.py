"""PUT /jobs/:jobid/resource-requirements: the bounds of each vertex's parallelism, as Flink's autoscaler sends them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from starlette.requests import Request

from penstock.cluster.gateway import Conflict
from penstock.driver.control_messages import Rescale
from penstock.driver.job_snapshot import JobSnapshot, VertexSnapshot
from penstock.driver.rescaling import CannotRescale
from penstock.rest import contract
from penstock.rest.bodies import decoded
from penstock.rest.errors import BadRequest
from penstock.rest.job_actions import ended
from penstock.rest.service import Service
from penstock.rest.views.shared import ENDED

_REFUSAL_S = 2.0
"""How long an answer waits for the job. A job refuses what it cannot do at once, and rescales with an
epoch, after the one in progress."""
_POLL_S = 0.02


async def require_resources(service: Service, request: Request) -> None:
    """PUT /jobs/:jobid/resource-requirements: rescale vertices to their upper bounds.

    The answer has no id that a client could poll, so everything that the job would refuse is refused here.
    """
    body = await decoded(request, contract.JobResourceRequirementsBody)
    snapshot = service.gateway.job(request.path_params["jobid"])
    wanted = _wanted(snapshot, body.job_vertex_resource_requirements)
    if snapshot.state in ENDED:
        raise ended(snapshot)
    if snapshot.batch and wanted:
        raise Conflict(f"Job {snapshot.id} runs as a batch, which cannot be rescaled.", fix="Run it as a stream.")
    if wanted:
        await _rescale(service, snapshot.id, wanted)


def _wanted(job: JobSnapshot, given: Mapping[str, contract.JobVertexResourceRequirements]) -> dict[str, int]:
    """Return the new parallelism of the vertices that change, by uid. Raises BadRequest."""
    vertices = {vertex.id: vertex for vertex in job.vertices}
    wanted: dict[str, int] = {}
    for vertex_id, requirements in given.items():
        if vertex_id not in vertices:
            raise BadRequest("The job has no vertex with one of these ids.", fix="Look them up with GET /jobs/:jobid.")
        vertex = vertices[vertex_id]
        _check(vertex, requirements.parallelism)
        if vertex.level > 0 and requirements.parallelism.upper_bound != vertex.parallelism:
            wanted[vertex.uid] = requirements.parallelism.upper_bound
    if missing := len(vertices.keys() - given.keys()):
        raise BadRequest(f"The bounds of {missing} vertices of the job are missing.", fix="Pass those of all vertices.")
    return wanted


def _check(vertex: VertexSnapshot, bounds: contract.Parallelism) -> None:
    if not 1 <= bounds.lower_bound <= bounds.upper_bound:
        raise BadRequest(
            f"The bounds {bounds.lower_bound} and {bounds.upper_bound} of vertex '{vertex.name}' are not a range.",
            fix="Set 1 <= lowerBound <= upperBound.",
        )
    if vertex.level == 0:
        # Clients send the bounds of all vertices, so those of a source are valid as long as nothing has to change.
        if not bounds.lower_bound <= vertex.parallelism <= bounds.upper_bound:
            raise BadRequest(
                f"The source '{vertex.name}' has a fixed parallelism of {vertex.parallelism}: Spark chooses how many "
                "tasks read it.",
                fix=f"Pass bounds that include {vertex.parallelism}.",
            )
    elif bounds.upper_bound > vertex.max_parallelism:
        raise BadRequest(
            f"The upper bound {bounds.upper_bound} of vertex '{vertex.name}' exceeds its maximum parallelism of "
            f"{vertex.max_parallelism}.",
            fix=f"Set upperBound to at most {vertex.max_parallelism}.",
        )


async def _rescale(service: Service, job: str, wanted: dict[str, int]) -> None:
    """Start a rescale. Raises BadRequest or Conflict if the job refuses it."""
    trigger = await service.gateway.trigger(job, Rescale(parallelism=wanted))
    deadline = time.monotonic() + min(_REFUSAL_S, service.timeout_s / 2)
    pause = _POLL_S
    while not (found := await service.gateway.operation(job, trigger)).done:
        if time.monotonic() >= deadline:
            return
        await asyncio.sleep(pause)
        pause *= 1.5
    if found.failure_kind == CannotRescale.__name__:
        raise BadRequest(found.failure, fix=found.fix)
    if found.failure_kind:
        raise Conflict(found.failure, fix=found.fix)
