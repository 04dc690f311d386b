"""Endpoints that change a job: cancel, savepoint, stop, checkpoint and rescale, and the polls of their results."""

from __future__ import annotations

from starlette.requests import Request

from penstock.cluster.gateway import Conflict, Operation
from penstock.common.options.service import WEB_CANCEL
from penstock.driver.control_messages import Cancel, MakeSavepoint, Operable, Rescale, Stop, TakeCheckpoint
from penstock.driver.job_snapshot import JobSnapshot
from penstock.rest import contract
from penstock.rest.bodies import decoded, hex_id, location, whole
from penstock.rest.errors import BadRequest, Forbidden
from penstock.rest.service import Service
from penstock.rest.views.shared import ENDED


async def refuse_job_graph(service: Service, request: Request) -> None:
    """POST /jobs. Flink's Java client sends a serialized job graph here."""
    raise BadRequest(
        "POST /jobs carries a serialized Java job graph, which Penstock cannot run.",
        fix="Upload the Python program with POST /jars/upload and start it with POST /jars/:jarid/run, or use "
        "`penstock run -d job.py`.",
    )


async def cancel(service: Service, request: Request) -> None:
    """PATCH /jobs/:jobid?mode=cancel, and GET /jobs/:jobid/yarn-cancel."""
    mode = request.query_params.get("mode", "cancel")
    if mode != "cancel":
        raise BadRequest("The only mode is 'cancel'.", fix="To stop a job with a savepoint, POST /jobs/:jobid/stop.")
    _check_cancel(service)
    await service.gateway.cancel(_job(service, request))


async def savepoint(service: Service, request: Request) -> contract.TriggerResponse:
    """POST /jobs/:jobid/savepoints."""
    body = await decoded(request, contract.SavepointTriggerRequestBody)
    directory = _directory(body.target_directory)
    if body.cancel_job:
        _check_cancel(service)
        asked: MakeSavepoint | Cancel = Cancel(savepoint=True, directory=directory)
    else:
        asked = MakeSavepoint(directory=directory)
    return await _triggered(service, request, asked, body.trigger_id)


async def stop(service: Service, request: Request) -> contract.TriggerResponse:
    """POST /jobs/:jobid/stop."""
    body = await decoded(request, contract.StopWithSavepointRequestBody)
    asked = Stop(directory=_directory(body.target_directory), drain=bool(body.drain))
    return await _triggered(service, request, asked, body.trigger_id)


async def checkpoint(service: Service, request: Request) -> contract.TriggerResponse:
    """POST /jobs/:jobid/checkpoints. Every checkpoint is complete and incremental, so the type makes no difference."""
    body = await decoded(request, contract.CheckpointTriggerRequestBody)
    return await _triggered(service, request, TakeCheckpoint(), body.trigger_id)


async def rescale(service: Service, request: Request) -> contract.TriggerResponse:
    """PATCH /jobs/:jobid/rescaling?parallelism=n."""
    parallelism = whole(request, "parallelism")
    if parallelism is None:
        raise BadRequest("The query parameter 'parallelism' is missing.")
    return await _triggered(service, request, Rescale(parallelism=parallelism))


async def heartbeat(service: Service, request: Request) -> None:
    """PATCH /jobs/:jobid/clientHeartbeat. Jobs do not depend on their client, so only the job's id is checked."""
    await decoded(request, contract.JobClientHeartbeatRequestBody)
    _job(service, request)


async def operation(service: Service, request: Request) -> contract.AsynchronousOperationResult:
    """GET …/:triggerid."""
    trigger_id = request.path_params["triggerid"]
    return _result(service, await service.gateway.operation(_job(service, request), trigger_id))


async def dispose_savepoint(service: Service, request: Request) -> contract.TriggerResponse:
    """POST /savepoint-disposal."""
    body = await decoded(request, contract.SavepointDisposalRequest)
    path = location("savepoint path", body.savepoint_path)
    return contract.TriggerResponse(request_id=await service.gateway.dispose_savepoint(path))


async def disposal(service: Service, request: Request) -> contract.AsynchronousOperationResult:
    """GET /savepoint-disposal/:triggerid."""
    return _result(service, await service.gateway.operation("", request.path_params["triggerid"]))


async def shut_down(service: Service, request: Request) -> None:
    """DELETE /cluster. The service stops after it has answered: its shutdown waits for open requests."""
    await service.gateway.shut_down()


def _result(service: Service, found: Operation) -> contract.AsynchronousOperationResult:
    if not found.done:
        return contract.AsynchronousOperationResult(status=contract.QueueStatus(id="IN_PROGRESS"), operation={})
    result: dict[str, object] = {}
    if found.failure_kind:
        trace = service.masking.text(f"{found.failure_kind}: {found.failure} {found.fix}".rstrip())
        result = {
            "failure-cause": {"class": found.failure_kind, "stack-trace": trace, "serialized-throwable": ""},
        }
    elif found.savepoint:
        result = {"location": found.savepoint}
    elif found.checkpoint >= 0:
        result = {"checkpointId": found.checkpoint}
    return contract.AsynchronousOperationResult(status=contract.QueueStatus(id="COMPLETED"), operation=result)


def _job(service: Service, request: Request) -> str:
    """Return the id in the path. Raises UnknownJob."""
    return service.gateway.job(request.path_params["jobid"]).id


def _directory(given: str | None) -> str | None:
    return location("target directory", given) if given else None


async def _triggered(
    service: Service, request: Request, asked: Operable, chosen: str | None = None
) -> contract.TriggerResponse:
    """Start an operation under the id that the client chose, if any. Raises UnknownJob, Conflict.

    A client can repeat a request whose answer was lost, also if the operation has ended the job in the meantime.
    """
    job = service.gateway.job(request.path_params["jobid"])
    trigger_id = hex_id("trigger id", chosen) if chosen else ""
    if job.state in ENDED and trigger_id not in {each.trigger_id for each in job.operations}:
        raise ended(job)
    if job.state not in ENDED:
        trigger_id = await service.gateway.trigger(job.id, asked, trigger_id)
    return contract.TriggerResponse(request_id=trigger_id)


def ended(job: JobSnapshot) -> Conflict:
    """Return the error for an action that needs a job which has not ended."""
    return Conflict(f"Job {job.id} has ended: it is {job.state}.", fix="Only a running job can do this.")


def _check_cancel(service: Service) -> None:
    if not service.cancel:
        raise Forbidden(f"This service cancels no jobs, because {WEB_CANCEL.key} is false.")
