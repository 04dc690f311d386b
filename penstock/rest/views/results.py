"""Views of a job's configuration, failures and results."""

from __future__ import annotations

from typing import Any

from penstock.common.options.restarts import RESTART_STRATEGY
from penstock.driver.job_snapshot import ExceptionSnapshot, JobSnapshot
from penstock.rest.contract import (
    ConfigurationInfoEntry,
    ExceptionInfo,
    JobAccumulatorsInfo,
    JobExceptionHistory,
    JobExceptionsInfoWithHistory,
    JobExecutionResultResponseBody,
    QueueStatus,
    RootExceptionInfo,
    UserTaskAccumulator,
)
from penstock.rest.views.requests import BadQuery, PathParams, Query
from penstock.rest.views.shared import ENDED, addresses, duration, entries, names, taskmanager_id, whole

_SHOWN_EXCEPTIONS = 16
"""Flink's default of `web.exception-history-size`."""
_APPLICATION_STATES = {"FINISHED": "SUCCEEDED", "FAILED": "FAILED", "CANCELED": "CANCELED"}

_STRATEGY = RESTART_STRATEGY.aliases[0]
"""In Flink's answer, the restart strategy has the name of its setting."""


def config(job: JobSnapshot, params: PathParams, query: Query) -> dict[str, Any]:
    return {
        "jid": job.id,
        "name": job.name,
        "execution-config": {
            "execution-mode": "BATCH" if job.batch else "PIPELINED",
            _STRATEGY: job.restart_strategy,
            "job-parallelism": job.parallelism,
            # Tasks never share mutable records.
            "object-reuse-mode": False,
            "user-config": job.parameters,
        },
    }


def settings(job: JobSnapshot, params: PathParams, query: Query) -> list[ConfigurationInfoEntry]:
    return entries(job.configuration)


def accumulators(job: JobSnapshot, params: PathParams, query: Query) -> JobAccumulatorsInfo:
    serialized = query.get("includeSerializedValue", "false").lower()
    if serialized not in ("true", "false"):
        raise BadQuery(f"includeSerializedValue is '{serialized}'.", fix="Pass true or false.")
    return JobAccumulatorsInfo(
        job_accumulators=[],
        user_task_accumulators=[
            UserTaskAccumulator(name=name, type="LongCounter", value=str(value))
            for name, value in sorted(_counters(job).items())
        ],
        # Serialized values are Java objects.
        serialized_user_task_accumulators={},
    )


def _counters(job: JobSnapshot) -> dict[str, int]:
    return {
        name: sum(value or 0 for value in values) for vertex in job.vertices for name, values in vertex.counters.items()
    }


def execution_result(job: JobSnapshot, params: PathParams, query: Query) -> JobExecutionResultResponseBody:
    if job.state not in ENDED:
        return JobExecutionResultResponseBody(status=QueueStatus(id="IN_PROGRESS"), job_execution_result=None)
    result: dict[str, Any] = {
        "id": job.id,
        "application-status": _APPLICATION_STATES.get(job.state, "UNKNOWN"),
        "accumulator-results": {},
        "net-runtime": duration(job.started_ms, job.ended_ms, job.ended_ms),
    }
    if job.state == "FAILED":
        last = _failures(job)[-1]
        result["failure-cause"] = {
            "class": last.name,
            "stack-trace": last.trace or last.message,
            "serialized-throwable": "",
        }
    return JobExecutionResultResponseBody(status=QueueStatus(id="COMPLETED"), job_execution_result=result)


def exceptions(job: JobSnapshot, params: PathParams, query: Query) -> JobExceptionsInfoWithHistory:
    most = whole(query, "maxExceptions") if query.get("maxExceptions") else _SHOWN_EXCEPTIONS
    wanted = [_label(each) for each in names(query, "failureLabelFilter")]
    hosts = addresses(job)
    found = [_exception(job, each, hosts) for each in reversed(_failures(job))]
    matching = [each for each in found if all(each.failure_labels.get(key) == value for key, value in wanted)]
    return JobExceptionsInfoWithHistory(
        exception_history=JobExceptionHistory(
            entries=matching[:most], truncated=len(matching) > most or job.exceptions_dropped > 0
        )
    )


def _failures(job: JobSnapshot) -> list[ExceptionSnapshot]:
    """Return the failures of a job, oldest first. A job whose records cannot be read has only a reason."""
    if job.exceptions or job.state != "FAILED":
        return job.exceptions
    return [ExceptionSnapshot(name="PenstockError", message=job.reason, at_ms=max(0, job.ended_ms))]


def _label(text: str) -> tuple[str, str]:
    key, colon, value = text.partition(":")
    if not colon:
        raise BadQuery(f"failureLabelFilter has '{text}'.", fix="Pass labels as key:value, separated by commas.")
    return key, value


def _exception(job: JobSnapshot, failure: ExceptionSnapshot, hosts: dict[str, str]) -> RootExceptionInfo:
    return RootExceptionInfo(
        **_facts(job, failure, hosts),
        concurrent_exceptions=[ExceptionInfo(**_facts(job, each, hosts)) for each in failure.concurrent],
    )


def _facts(job: JobSnapshot, failure: ExceptionSnapshot, hosts: dict[str, str]) -> dict[str, Any]:
    return {
        "exception_name": failure.name,
        "stacktrace": failure.trace or failure.message,
        "timestamp": failure.at_ms,
        "failure_labels": {"attempt": str(failure.attempt), "restart": str(failure.restart)},
        "task_name": failure.task,
        "endpoint": hosts.get(failure.executor) or failure.host,
        "task_manager_id": taskmanager_id(job, failure.executor),
    }
