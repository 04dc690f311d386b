"""Log files of the service and of jobs, as plain text: complete, as a byte range, or followed while they grow.

A name in a path selects a file from the list of the gateway. It never becomes a path.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Sequence
from typing import BinaryIO
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from penstock.cluster.gateway import LogFile
from penstock.cluster.other_hosts import NoAgent
from penstock.driver.job_snapshot import JobSnapshot
from penstock.rest import contract
from penstock.rest.bodies import truth
from penstock.rest.errors import BadRequest
from penstock.rest.exchange import Exchange
from penstock.rest.service import Service
from penstock.rest.views import NotFound
from penstock.rest.views.metrics import executor_of

_CHUNK = 256 << 10
_POLL_S = 0.25
_LAST_S = 4 * _POLL_S
"""How long another Dispatcher sends nothing once it has sent all of a log."""
_RELAYED = frozenset({"accept-ranges", "content-type", "content-length", "content-range", "x-content-type-options"})
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")
_AUDIT = "audit.log"
_OF_ATTEMPT = re.compile(r"(\d+)-jobmanager\.")
_ENDED = frozenset({"FINISHED", "FAILED", "CANCELED"})
_NOT_KEPT = {
    ".log": "This process writes its log to its standard error, and keeps no file with it.\n",
    ".out": "This process keeps no file with its standard output.\n",
}
"""The Dispatcher has one file for both, and an application only the terminal of its user."""


async def service_logs(service: Service, request: Request) -> contract.LogListInfo:
    """GET /jobmanager/logs."""
    return listed(await service.gateway.logs(""))


async def service_log(service: Service, request: Request) -> Response:
    """GET /jobmanager/log."""
    return await _latest_text(service, request, await service.gateway.logs(""), ".log")


async def service_stdout(service: Service, request: Request) -> Response:
    """GET /jobmanager/stdout."""
    return await _latest_text(service, request, await service.gateway.logs(""), ".out")


async def service_log_by_name(service: Service, request: Request) -> Response:
    """GET /jobmanager/logs/:name."""
    return await text(service, request, named(await service.gateway.logs(""), request.path_params["name"]))


async def executor_logs(service: Service, request: Request) -> contract.LogListInfo:
    """GET /taskmanagers/:taskmanagerid/logs."""
    return listed(await _of_executor(service, request))


async def executor_log(service: Service, request: Request) -> Response:
    """GET /taskmanagers/:taskmanagerid/log."""
    return await _latest_text(service, request, await _of_executor(service, request), ".log")


async def executor_stdout(service: Service, request: Request) -> Response:
    """GET /taskmanagers/:taskmanagerid/stdout."""
    return await _latest_text(service, request, await _of_executor(service, request), ".out")


async def executor_log_by_name(service: Service, request: Request) -> Response:
    """GET /taskmanagers/:taskmanagerid/logs/:name."""
    return await text(service, request, named(await _of_executor(service, request), request.path_params["name"]))


async def job_logs(service: Service, request: Request) -> contract.LogListInfo:
    """GET /penstock/v1/jobs/:jobid/logs."""
    return listed(await service.gateway.logs(service.gateway.job(request.path_params["jobid"]).id))


async def job_log_by_name(service: Service, request: Request) -> Response:
    """GET /penstock/v1/jobs/:jobid/logs/:name?follow=true, with an optional `Range` header."""
    job = service.gateway.job(request.path_params["jobid"]).id
    found = named(await service.gateway.logs(job), request.path_params["name"])
    return await text(service, request, found, job)


async def job_log_url(service: Service, request: Request) -> contract.LogUrlResponse:
    """GET /jobs/:jobid/jobmanager/log-url. A job without a log file has that of the service."""
    job = service.gateway.job(request.path_params["jobid"]).id
    latest = _latest(await service.gateway.logs(job), ".log")
    return _url(request, "/jobmanager/log" if latest is None else f"/penstock/v1/jobs/{job}/logs/{latest.name}")


async def executor_log_url(service: Service, request: Request) -> contract.LogUrlResponse:
    """GET /jobs/:jobid/taskmanagers/:taskmanagerid/log-url."""
    wanted = service.gateway.job(request.path_params["jobid"])
    executor_of([wanted], request.path_params)
    return _url(request, f"/taskmanagers/{request.path_params['taskmanagerid']}/log")


def _url(request: Request, path: str) -> contract.LogUrlResponse:
    return contract.LogUrlResponse(url=f"{request.url.scheme}://{request.headers['host']}{quote(path)}")


async def _of_executor(service: Service, request: Request) -> Sequence[LogFile]:
    """Return the log files of the job that an executor works for: local executors write to the files of their job."""
    _, job, _ = executor_of(service.gateway.jobs(), request.path_params)
    return await service.gateway.logs(job.id)


def listed(files: Sequence[LogFile]) -> contract.LogListInfo:
    return contract.LogListInfo(
        logs=[contract.LogInfo(name=file.name, size=file.size, mtime=file.modified_ms) for file in files]
    )


def named(files: Sequence[LogFile], name: str) -> LogFile:
    for file in files:
        if file.name == name:
            return file
    raise NotFound("No log file has this name.", fix="List the names with the path that ends in /logs.")


def _latest(files: Sequence[LogFile], suffix: str) -> LogFile | None:
    found = [file for file in files if file.name.endswith(suffix) and file.name != _AUDIT]
    return max(found, key=lambda file: file.modified_ms, default=None)


async def _latest_text(service: Service, request: Request, files: Sequence[LogFile], suffix: str) -> Response:
    latest = _latest(files, suffix)
    if latest is None:
        return PlainTextResponse(_NOT_KEPT[suffix], headers={"x-content-type-options": "nosniff"})
    return await text(service, request, latest)


async def text(service: Service, request: Request, log: LogFile, job: str = "") -> Response:
    """Return the text of a log, or the part that the request asks for. A followed one ends with the job, if given."""
    follow = bool(truth(request, "follow"))
    if log.url:
        return await _relayed(service, request, log, job, follow)
    try:
        file = await asyncio.to_thread(open, log.path, "rb")
    except OSError:
        raise NotFound("The log file was removed.", fix="List the names again.") from None
    size = os.fstat(file.fileno()).st_size
    headers = {"accept-ranges": "bytes", "x-content-type-options": "nosniff"}
    start, end, status = 0, size, 200
    if given := request.headers.get("range"):
        try:
            start, end = _bounds(given, size)
        except BadRequest:
            file.close()
            raise
        if start >= size and not follow:
            file.close()
            return Response(status_code=416, headers={"content-range": f"bytes */{size}"})
        if not follow:
            status = 206
            headers["content-range"] = f"bytes {start}-{end - 1}/{size}"
    file.seek(min(start, size))
    if follow:
        content = _followed(service, log, file, job)
    else:
        content = _part(file, end - start)
        headers["content-length"] = str(end - start)
    return StreamingResponse(content, status, headers, media_type="text/plain; charset=utf-8")


async def _relayed(service: Service, request: Request, log: LogFile, job: str, follow: bool) -> Response:
    """Return the answer of the Dispatcher that has the file."""
    try:
        answer = await service.agents.log(log.url, follow=follow, part=request.headers.get("range", ""))
    except NoAgent as error:
        raise NotFound(f"The log file is on another host: {error}.", fix="Try again.") from None
    headers = {name: value for name, value in answer.headers.items() if name in _RELAYED}
    return StreamingResponse(_parts(service, answer, log, job), answer.status, headers)


async def _parts(service: Service, answer: Exchange, log: LogFile, job: str) -> AsyncIterator[bytes]:
    """Yield the text that another Dispatcher sends. It does not know when the attempt ends."""
    try:
        while True:
            ended = service.stopping or (bool(job) and _is_over(service.gateway.job(job), log))
            try:
                async with asyncio.timeout(_LAST_S):
                    part = await answer.read()
            except TimeoutError:
                if ended:
                    return
                continue
            if not part:
                return
            yield part
    finally:
        answer.close()


def _bounds(given: str, size: int) -> tuple[int, int]:
    """Return the first byte and the one after the last."""
    match = _RANGE.fullmatch(given.strip())
    if match is None or not (match[1] or match[2]):
        raise BadRequest("The Range header is not valid.", fix="Use one range, such as bytes=0-999 or bytes=-1000.")
    if not match[1]:
        return max(size - int(match[2]), 0), size
    start = int(match[1])
    end = min(int(match[2]) + 1, size) if match[2] else size
    if match[2] and int(match[2]) < start:
        raise BadRequest("The Range header ends before it starts.")
    return start, end


async def _part(file: BinaryIO, remaining: int) -> AsyncIterator[bytes]:
    with file:
        while remaining > 0:
            data = await asyncio.to_thread(file.read, min(_CHUNK, remaining))
            if not data:
                # The file was truncated. The announced length is then missing, which clients detect.
                return
            remaining -= len(data)
            yield data


async def _followed(service: Service, log: LogFile, file: BinaryIO, job: str) -> AsyncIterator[bytes]:
    """Yield the content as the file grows, until the job has ended or its next attempt has begun.

    A rotated file is continued in its successor.
    """
    try:
        while True:
            ended = service.stopping or (bool(job) and _is_over(service.gateway.job(job), log))
            while data := await asyncio.to_thread(file.read, _CHUNK):
                yield data
            if ended:
                return
            successor = await asyncio.to_thread(_successor, file, log)
            if successor is not None:
                yield await asyncio.to_thread(file.read)
                file.close()
                file = successor
                continue
            await asyncio.sleep(_POLL_S)
    finally:
        file.close()


def _is_over(job: JobSnapshot, log: LogFile) -> bool:
    """Return whether the attempt of a job that writes this file has ended."""
    attempt = _OF_ATTEMPT.match(log.name)
    return job.state in _ENDED or (attempt is not None and int(attempt[1]) < job.attempt)


def _successor(file: BinaryIO, log: LogFile) -> BinaryIO | None:
    try:
        found = os.stat(log.path)
        if os.path.samestat(found, os.fstat(file.fileno())):
            if found.st_size < file.tell():
                # Files that several processes have open are copied and truncated.
                file.seek(0)
            return None
        return open(log.path, "rb")
    except OSError:
        return None
