"""Endpoints for the other Dispatchers of the cluster, below /penstock/v1/agent/. They are not part of the interface.

Each Dispatcher, leading or not, answers them itself, for the processes of its host.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import cast

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from penstock.cluster.connection import Connection
from penstock.cluster.gateway import Agent, AttemptProcess, Conflict
from penstock.driver.control_messages import Request as ControlRequest
from penstock.rest import contract
from penstock.rest.agent_types import PREFIX, ActRequest, Killed, ReadRequest
from penstock.rest.bodies import decoded
from penstock.rest.endpoints import Endpoint
from penstock.rest.errors import BadRequest
from penstock.rest.log_files import listed, named, text
from penstock.rest.service import Service
from penstock.rest.views import NotFound

_ATTEMPT = f"{PREFIX}/jobs/:jobid/attempts/:attempt"
_NAME = re.compile(r"([0-9a-f]{32})-(\d{1,6})")
_LINES = "application/x-ndjson"
_READ, _ACT = cast(type[ControlRequest], ReadRequest), cast(type[ControlRequest], ActRequest)
_WAKE_S = 0.5
"""How often a silent stream looks whether the server stops."""

AGENT_ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint("GET", f"{PREFIX}/processes", list[AttemptProcess], query=("attempts",)),
    Endpoint("GET", f"{_ATTEMPT}/control", _LINES),
    Endpoint("POST", f"{_ATTEMPT}/control", _LINES),
    Endpoint("POST", f"{_ATTEMPT}/kill", Killed),
    Endpoint("GET", f"{PREFIX}/jobs/:jobid/logs", contract.LogListInfo),
    Endpoint("GET", f"{PREFIX}/jobs/:jobid/logs/:name", "text/plain", query=("follow",)),
)


async def processes(service: Service, request: Request) -> list[AttemptProcess]:
    """GET …/processes?attempts=<job>-<attempt>,…: those of this host."""
    names = [name for name in request.query_params.get("attempts", "").split(",") if name]
    matches = [_NAME.fullmatch(name) for name in names]
    attempts = [(match[1], int(match[2])) for match in matches if match]
    if len(attempts) < len(names):
        raise BadRequest("An attempt is not given as <job id>-<number>.")
    return await asyncio.to_thread(_agent(service).processes, attempts)


async def read(service: Service, request: Request) -> Response:
    """GET …/control: pass a request that changes nothing on to the JobManager, and its answers back, as lines."""
    return await _relayed(service, request, await decoded(request, _READ))


async def act(service: Service, request: Request) -> Response:
    """POST …/control: pass any other request on."""
    return await _relayed(service, request, await decoded(request, _ACT))


async def kill(service: Service, request: Request) -> Killed:
    """POST …/kill: kill the processes of an attempt that has ended, or whose job is cancelled."""
    return Killed(gone=await asyncio.to_thread(_agent(service).kill, *_attempt(request)))


async def logs(service: Service, request: Request) -> contract.LogListInfo:
    """GET …/jobs/:jobid/logs: the log files of a job in the directory of this Dispatcher."""
    return listed(await asyncio.to_thread(_agent(service).logs, request.path_params["jobid"]))


async def log(service: Service, request: Request) -> Response:
    """GET …/jobs/:jobid/logs/:name, as the public path does. A followed log ends with the connection."""
    found = await asyncio.to_thread(_agent(service).logs, request.path_params["jobid"])
    return await text(service, request, named(found, request.path_params["name"]))


async def _relayed(service: Service, request: Request, message: ControlRequest) -> Response:
    connecting = await asyncio.to_thread(_agent(service).connection, *_attempt(request))
    opened = AsyncExitStack()
    try:
        connection = await opened.enter_async_context(connecting)
    except OSError as error:
        raise Conflict(str(error), fix="Wait until the job runs.") from None
    connection.send(message)
    return StreamingResponse(_lines(service, connection, opened), media_type=_LINES)


async def _lines(service: Service, connection: Connection, opened: AsyncExitStack) -> AsyncIterator[bytes]:
    line = asyncio.ensure_future(connection.receive())
    try:
        while not service.stopping:
            if not (await asyncio.wait({line}, timeout=_WAKE_S))[0]:
                continue
            try:
                yield line.result()
            except (OSError, EOFError):
                return
            line = asyncio.ensure_future(connection.receive())
    finally:
        line.cancel()
        await opened.aclose()


def _agent(service: Service) -> Agent:
    if service.gateway.agent is None:
        raise NotFound("Only a Dispatcher answers this path, and this is an application.")
    return service.gateway.agent


def _attempt(request: Request) -> tuple[str, int]:
    number = request.path_params["attempt"]
    if not (number.isascii() and number.isdecimal() and len(number) <= 6):
        raise BadRequest("The attempt is not a number.")
    return request.path_params["jobid"], int(number)
