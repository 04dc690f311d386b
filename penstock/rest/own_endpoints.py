"""Endpoints that Flink does not have: below /penstock/v1/, and /health and /ready for probes."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from penstock.cluster.gateway import Event
from penstock.common.json_text import to_json
from penstock.driver.job_snapshot import JobSnapshot
from penstock.driver.prometheus import MEDIA_TYPE, exposition
from penstock.rest import contract
from penstock.rest.command_endpoints import COMMAND_ENDPOINTS
from penstock.rest.endpoints import Endpoint, Nothing
from penstock.rest.errors import BadRequest
from penstock.rest.savepoints import DifferenceDescription, DiffRequest, InspectRequest, SavepointDescription
from penstock.rest.service import Service
from penstock.rest.state_endpoints import STATE_ENDPOINTS

_KEEP_ALIVE_S = 10.0
_WAKE_S = 0.5
"""How often a stream without events looks whether the server stops."""

TEXT = "text/plain"
EVENTS = "text/event-stream"


class Health(msgspec.Struct, kw_only=True, frozen=True):
    """The state of the service."""

    leading: bool
    ready: bool
    draining: bool


OWN_ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint("GET", "/health", Nothing),
    Endpoint("GET", "/ready", Health),
    Endpoint("GET", "/jobs/:jobid/yarn-cancel", Nothing, status=202),
    Endpoint("POST", "/penstock/v1/savepoints/inspect", SavepointDescription, body=InspectRequest),
    Endpoint("POST", "/penstock/v1/savepoints/diff", list[DifferenceDescription], body=DiffRequest),
    Endpoint("POST", "/penstock/v1/jars/:jarid/dry-run", Any, body=contract.JarRunRequestBody),
    Endpoint("GET", "/penstock/v1/jobs/:jobid/logs", contract.LogListInfo),
    Endpoint("GET", "/penstock/v1/openapi.json", Any),
    *COMMAND_ENDPOINTS,
    *STATE_ENDPOINTS,
)
TEXT_ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint("GET", "/metrics", TEXT),
    Endpoint("GET", "/jobs/:jobid/metrics/prometheus", TEXT),
    Endpoint("GET", "/jobmanager/log", TEXT),
    Endpoint("GET", "/jobmanager/stdout", TEXT),
    Endpoint("GET", "/jobmanager/logs/:name", TEXT),
    Endpoint("GET", "/taskmanagers/:taskmanagerid/log", TEXT),
    Endpoint("GET", "/taskmanagers/:taskmanagerid/stdout", TEXT),
    Endpoint("GET", "/taskmanagers/:taskmanagerid/logs/:name", TEXT),
    Endpoint("GET", "/penstock/v1/jobs/:jobid/logs/:name", TEXT, query=("follow",)),
    Endpoint("GET", "/penstock/v1/events", EVENTS, query=("after",)),
)
"""Endpoints whose answer is not JSON: `answer` is its media type."""


async def health(service: Service, request: Request) -> None:
    """GET /health: the process serves requests."""


async def ready(service: Service, request: Request) -> Response:
    """GET /ready: the service accepts submissions."""
    state = service.gateway.state()
    body = Health(leading=state.leading, ready=state.ready, draining=state.draining)
    return Response(msgspec.json.encode(body), 200 if state.ready else 503, media_type="application/json")


async def events(service: Service, request: Request) -> Response:
    """GET /penstock/v1/events: server-sent events. A client that reconnects sends `Last-Event-ID`."""
    given = request.headers.get("last-event-id") or request.query_params.get("after") or "-1"
    if not given.removeprefix("-").isdecimal() or len(given) > 18:
        raise BadRequest("The id of the last event is not an integer.")
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return StreamingResponse(_lines(service, int(given)), headers=headers, media_type=EVENTS)


async def _lines(service: Service, after: int) -> AsyncIterator[bytes]:
    yield b": connected\n\n"
    queue: asyncio.Queue[Event] = asyncio.Queue(1)
    reader = asyncio.create_task(_read(service, after, queue))
    try:
        silent = 0.0
        while not service.stopping:
            try:
                event = await asyncio.wait_for(queue.get(), _WAKE_S)
            except TimeoutError:
                if reader.done():
                    return
                silent += _WAKE_S
                if silent >= _KEEP_ALIVE_S:
                    silent = 0.0
                    yield b": keep-alive\n\n"
                continue
            silent = 0.0
            data = to_json(event)
            yield b"id: %d\nevent: %s\ndata: %s\n\n" % (event.number, _one_line(event.kind), data)
    finally:
        reader.cancel()


async def _read(service: Service, after: int, queue: asyncio.Queue[Event]) -> None:
    """Pass events on. The queue bounds how far the reader runs ahead of a slow client."""
    async for event in service.gateway.events(after):
        await queue.put(event)


def _one_line(text: str) -> bytes:
    return " ".join(text.split()).encode()


async def metrics(service: Service, request: Request) -> Response:
    """GET /metrics: all jobs, for Prometheus."""
    return _exposition([*service.gateway.jobs()])


async def job_metrics(service: Service, request: Request) -> Response:
    """GET /jobs/:jobid/metrics/prometheus."""
    return _exposition([service.gateway.job(request.path_params["jobid"])])


def _exposition(jobs: list[JobSnapshot]) -> Response:
    headers = {"x-content-type-options": "nosniff", "cache-control": "no-store"}
    return Response(exposition(jobs, socket.gethostname()), headers=headers, media_type=MEDIA_TYPE)
