"""Endpoints that describe the service itself: its configuration, environment and threads."""

from __future__ import annotations

import time
from datetime import datetime

from starlette.requests import Request

from penstock.cluster.gateway import Conflict
from penstock.driver.control_messages import DescribeEnvironment
from penstock.driver.process_facts import Environment, python_environment, thread_dump
from penstock.rest import contract
from penstock.rest.service import Service
from penstock.rest.views.processes import environment_info, thread_dump_info
from penstock.rest.views.taskmanagers import FLINK_COMMIT, FLINK_VERSION


async def dashboard(service: Service, request: Request) -> contract.DashboardConfiguration:
    """GET /config."""
    now = datetime.now().astimezone()
    offset = now.utcoffset()
    assert offset is not None
    return contract.DashboardConfiguration(
        refresh_interval=service.refresh_ms,
        timezone_name=now.tzname() or time.tzname[0],
        timezone_offset=int(offset.total_seconds() * 1000),
        flink_version=FLINK_VERSION,
        flink_revision=FLINK_COMMIT,
        features=contract.Features(
            web_submit=service.submit, web_cancel=service.cancel, web_rescale=True, web_history=False
        ),
    )


async def configuration(service: Service, request: Request) -> list[contract.ConfigurationInfoEntry]:
    """GET /jobmanager/config."""
    settings = service.masking.settings(service.gateway.settings)
    return [contract.ConfigurationInfoEntry(key=key, value=settings[key]) for key in sorted(settings)]


async def environment(service: Service, request: Request) -> contract.EnvironmentInfo:
    """GET /jobmanager/environment."""
    return environment_info(python_environment())


async def threads(service: Service, request: Request) -> contract.ThreadDumpInfo:
    """GET /jobmanager/thread-dump."""
    return thread_dump_info(thread_dump())


async def job_environment(service: Service, request: Request) -> contract.EnvironmentInfo:
    """GET /jobs/:jobid/jobmanager/environment. A job without a process has the service's."""
    job = service.gateway.job(request.path_params["jobid"])
    try:
        answer = await service.gateway.ask(job.id, DescribeEnvironment())
    except Conflict:
        return environment_info(python_environment())
    assert isinstance(answer, Environment)
    return environment_info(answer)
