"""Calls commands in the process of the test, in front of a service whose cluster is a fake."""

from typing import Any

from http_service import Service
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.driver.job_snapshot import Operation


def succeed(service: Service, **result: Any) -> None:
    """Let all operations succeed at once."""

    async def operation(job_id: str, trigger_id: str) -> Operation:
        return Operation(trigger_id=trigger_id, done=True, **result)

    service.gateway.operation = operation


def call(*arguments: str) -> Any:
    """Call a command and return its exit code and output."""
    return CliRunner().invoke(app, arguments)
