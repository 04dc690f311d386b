"""The answers to the GET endpoints that concern jobs, as pure functions of snapshots.

`VIEWS` maps the path of an endpoint, as in `penstock.rest.endpoints`, to its function. A path with `:jobid` takes the
snapshot of that job; every other path takes the snapshots of all jobs:

    answer = VIEWS["/jobs/:jobid/checkpoints"](snapshot, {"jobid": snapshot.id}, {})
    answer = VIEWS["/jobs/overview"](snapshots, {}, {})

A view raises `NotFound` (404) or `BadQuery` (400). Its answer is a struct of `penstock.rest.contract`, or a list or
dict of plain values for the endpoints whose answer is `Any`. The environment and the thread dump of a process are not
part of a snapshot; `penstock.rest.views.processes` converts them.
"""

from penstock.rest.views import checkpoints, jobs, metrics, results, taskmanagers, vertices
from penstock.rest.views.requests import BadQuery, NotFound, PathParams, Query, View

_JOB = "/jobs/:jobid"
_VERTEX = f"{_JOB}/vertices/:vertexid"
_SUBTASK = f"{_VERTEX}/subtasks/:subtaskindex"
_TASKMANAGER = "/taskmanagers/:taskmanagerid"

VIEWS: dict[str, View] = {
    "/overview": taskmanagers.overview,
    "/jobs": jobs.job_ids,
    "/jobs/overview": jobs.overview,
    "/jobs/metrics": metrics.aggregated_jobs,
    "/jobmanager/metrics": metrics.cluster_metrics,
    "/taskmanagers": taskmanagers.taskmanagers,
    "/taskmanagers/metrics": metrics.aggregated_taskmanagers,
    _TASKMANAGER: taskmanagers.taskmanager,
    f"{_TASKMANAGER}/metrics": metrics.taskmanager_metrics,
    f"{_TASKMANAGER}/thread-dump": taskmanagers.thread_dump,
    _JOB: jobs.job_details,
    f"{_JOB}/accumulators": results.accumulators,
    f"{_JOB}/checkpoints": checkpoints.checkpoints,
    f"{_JOB}/checkpoints/config": checkpoints.config,
    f"{_JOB}/checkpoints/details/:checkpointid": checkpoints.details,
    f"{_JOB}/checkpoints/details/:checkpointid/subtasks/:vertexid": checkpoints.task_details,
    f"{_JOB}/config": results.config,
    f"{_JOB}/exceptions": results.exceptions,
    f"{_JOB}/execution-result": results.execution_result,
    f"{_JOB}/jobmanager/config": results.settings,
    f"{_JOB}/metrics": metrics.job_metrics,
    f"{_JOB}/plan": jobs.plan,
    f"{_JOB}/rescales/overview": jobs.rescales,
    f"{_JOB}/resource-requirements": jobs.resource_requirements,
    f"{_JOB}/status": jobs.status,
    _VERTEX: vertices.vertex,
    f"{_VERTEX}/accumulators": vertices.vertex_accumulators,
    f"{_VERTEX}/backpressure": vertices.backpressure,
    f"{_VERTEX}/flamegraph": vertices.flame_graph,
    f"{_VERTEX}/jm-operator-metrics": metrics.driver_metrics,
    f"{_VERTEX}/metrics": metrics.vertex_metrics,
    f"{_VERTEX}/subtasks/accumulators": vertices.subtasks_accumulators,
    f"{_VERTEX}/subtasks/metrics": metrics.aggregated_subtasks,
    _SUBTASK: vertices.subtask,
    f"{_SUBTASK}/attempts/:attempt": vertices.attempt,
    f"{_SUBTASK}/attempts/:attempt/accumulators": vertices.attempt_accumulators,
    f"{_SUBTASK}/metrics": metrics.subtask_metrics,
    f"{_VERTEX}/subtasktimes": vertices.subtask_times,
    f"{_VERTEX}/taskmanagers": vertices.taskmanagers,
    f"{_VERTEX}/watermarks": vertices.watermarks,
}

__all__ = ["VIEWS", "BadQuery", "NotFound", "PathParams", "Query", "View"]
