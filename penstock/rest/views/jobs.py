"""Views of jobs as a whole."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from penstock.common.wall_clock import now_ms
from penstock.driver.job_snapshot import JobSnapshot, VertexInput, VertexSnapshot
from penstock.rest.contract import (
    Input,
    JobDetails,
    JobDetailsInfo,
    JobIdsWithStatusOverview,
    JobIdWithStatus,
    JobPlanInfo,
    JobRescalesOverview,
    JobResourceRequirementsBody,
    JobStatusInfo,
    JobVertexDetailsInfo,
    JobVertexResourceRequirements,
    LatestRescales,
    MultipleJobsDetails,
    Node,
    Parallelism,
    Plan,
    RescalesCounts,
)
from penstock.rest.views.requests import PathParams, Query
from penstock.rest.views.shared import (
    JOB_STATES,
    TASK_STATES,
    duration,
    ended_at,
    io_metrics,
    task_ended,
    task_started,
)

_NO_GROUP = "0" * 32
"""Slot sharing groups do not exist on Spark."""


def job_ids(jobs: Sequence[JobSnapshot], params: PathParams, query: Query) -> JobIdsWithStatusOverview:
    return JobIdsWithStatusOverview(
        jobs=[JobIdWithStatus(id=job.id, status=job.state) for job in jobs]  # type: ignore[arg-type]
    )


def overview(jobs: Sequence[JobSnapshot], params: PathParams, query: Query) -> MultipleJobsDetails:
    now = now_ms()
    return MultipleJobsDetails(jobs=[_details(job, now) for job in jobs])


def _details(job: JobSnapshot, now: int) -> JobDetails:
    end = ended_at(job)
    counts = _subtasks_by_state(job)
    tasks = {state.lower(): count for state, count in counts.items()}
    tasks["total"] = sum(counts.values())
    return JobDetails(
        jid=job.id,
        name=job.name,
        job_type="BATCH" if job.batch else "STREAMING",
        scheduler_type="Default" if job.batch else "Adaptive",
        start_time=job.started_ms,
        end_time=end,
        duration=duration(job.started_ms, end, now),
        state=job.state,  # type: ignore[arg-type]
        last_modification=max(job.state_since_ms.values(), default=job.started_ms),
        tasks=tasks,
        pending_operators=0,
    )


def _subtasks_by_state(job: JobSnapshot) -> dict[str, int]:
    counts = dict.fromkeys(TASK_STATES, 0)
    for vertex in job.vertices:
        for state, count in vertex.tasks.items():
            counts[state] += count
    return counts


def job_details(job: JobSnapshot, params: PathParams, query: Query) -> JobDetailsInfo:
    now, end = now_ms(), ended_at(job)
    return JobDetailsInfo(
        jid=job.id,
        # A program runs exactly one job.
        application_id=job.id,
        name=job.name,
        is_stoppable=job.stoppable,
        state=job.state,  # type: ignore[arg-type]
        job_type="BATCH" if job.batch else "STREAMING",
        scheduler_type="Default" if job.batch else "Adaptive",
        start_time=job.started_ms,
        end_time=end,
        duration=duration(job.started_ms, end, now),
        max_parallelism=job.max_parallelism,
        now=now,
        timestamps={state: job.state_since_ms.get(state, 0) for state in JOB_STATES},
        vertices=[_vertex(job, vertex, now) for vertex in job.vertices],
        status_counts=_subtasks_by_state(job),
        plan=_plan(job),
        stream_graph=msgspec.Raw(job.plan.encode()),
        pending_operators=0,
    )


def _vertex(job: JobSnapshot, vertex: VertexSnapshot, now: int) -> JobVertexDetailsInfo:
    start, end = task_started(job), task_ended(job)
    return JobVertexDetailsInfo(
        id=vertex.id,
        slot_sharing_group_id=_NO_GROUP,
        name=vertex.name,
        max_parallelism=vertex.max_parallelism,
        parallelism=vertex.parallelism,
        status=vertex.state,  # type: ignore[arg-type]
        start_time=start,
        end_time=end,
        duration=duration(start, end, now),
        tasks={state: vertex.tasks.get(state, 0) for state in TASK_STATES},
        metrics=io_metrics(vertex.totals),
    )


def plan(job: JobSnapshot, params: PathParams, query: Query) -> JobPlanInfo:
    return JobPlanInfo(plan=_plan(job))


def _plan(job: JobSnapshot) -> Plan:
    return Plan(
        jid=job.id,
        name=job.name,
        type="BATCH" if job.batch else "STREAMING",
        nodes=[_node(vertex) for vertex in job.vertices],
    )


def _node(vertex: VertexSnapshot) -> Node:
    return Node(
        id=vertex.id,
        operator="",
        parallelism=vertex.parallelism,
        operator_strategy="",
        description=vertex.name,
        optimizer_properties={},
        inputs=[_input(number, each) for number, each in enumerate(vertex.inputs)],
    )


def _input(number: int, source: VertexInput) -> Input:
    return Input(
        id=source.vertex,
        num=number,
        # A stage of Spark begins when the one before it has ended.
        exchange="blocking",
        ship_strategy=source.strategy,
        local_strategy="",
        caching="",
    )


def status(job: JobSnapshot, params: PathParams, query: Query) -> JobStatusInfo:
    return JobStatusInfo(status=job.state)  # type: ignore[arg-type]


def rescales(job: JobSnapshot, params: PathParams, query: Query) -> JobRescalesOverview:
    return JobRescalesOverview(
        rescales_counts=RescalesCounts(ignored=0, in_progress=0, completed=0, failed=0),
        latest=LatestRescales(completed=None, failed=None, ignored=None),
    )


def resource_requirements(job: JobSnapshot, params: PathParams, query: Query) -> JobResourceRequirementsBody:
    return JobResourceRequirementsBody(
        job_vertex_resource_requirements={
            vertex.id: JobVertexResourceRequirements(
                parallelism=Parallelism(lower_bound=1, upper_bound=vertex.parallelism)
            )
            for vertex in job.vertices
        }
    )
