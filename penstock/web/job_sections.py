"""The sections of a job's page, as functions of its snapshot and recent past."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from penstock.driver.job_snapshot import CheckpointSnapshot, ExceptionSnapshot, JobSnapshot
from penstock.rest.views.shared import ENDED
from penstock.web.checkpoint_timeline import timeline, timeline_legend, whole_ms
from penstock.web.chosen_metrics import unit_of
from penstock.web.graph import graph, subtasks
from penstock.web.hints import hints
from penstock.web.line_chart import Series, bar_chart, line_chart
from penstock.web.markup import Child, Markup, job_path, join, moment, table, tag
from penstock.web.observation import Watch
from penstock.web.overview import last_checkpoint, problem, state_chip
from penstock.web.plan_section import plan
from penstock.web.quantities import NONE, counted, duration, number, rate, size, utc

Section = Callable[[JobSnapshot, Watch], Markup]
_TIMELINES = 12
"""Checkpoints whose timeline is drawn."""


def heading(job: JobSnapshot, watch: Watch, now_ms: int) -> Markup:
    """Return name, state and facts of a job, and its problems."""
    ended = job.state in ENDED
    end = job.ended_ms if ended and job.ended_ms >= 0 else now_ms
    facts: list[tuple[str, str | Markup]] = [
        ("Started", moment(job.started_ms, utc(job.started_ms), utc(job.started_ms)) if job.started_ms else NONE),
        ("Duration", duration(max(0, end - job.started_ms)) if job.started_ms else NONE),
        ("Restarts", number(job.restarts)),
        ("Parallelism", " to ".join(map(number, _ends(parallelism_now(job)))) or NONE),
        ("Last checkpoint", last_checkpoint(job, now_ms)),
        ("Job id", tag("code", job.id)),
    ]
    found = hints(job, watch)
    return join(
        tag("p", tag("a", "All jobs", href="/web/"), class_="crumbs"),
        tag("h1", job.name, " ", state_chip(job.state)),
        tag("p", job.reason, class_="reason") if job.reason else None,
        tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in facts), class_="facts"),
        tag("ul", *(problem(hint, job, with_job=False) for hint in found), class_="problems") if found else None,
    )


def parallelism_now(job: JobSnapshot) -> list[int]:
    """Return the different parallelisms of the chains, in order. Those of sources count only without others.

    The job's own parallelism is the one that it was submitted with, also after it was rescaled.
    """
    found = {vertex.parallelism for vertex in job.vertices if vertex.inputs}
    return sorted(found) or ([job.parallelism] if job.parallelism > 0 else [])


def _ends(values: list[int]) -> list[int]:
    return values if len(values) < 2 else [values[0], values[-1]]


def navigation(job: JobSnapshot, current: str, extra: tuple[str, ...] = ()) -> Markup:
    """Return the links to the sections."""
    links = [
        tag(
            "a",
            name.capitalize(),
            href=job_path(job.id, name),
            aria_current="page" if name == current else None,
            id=f"section-{name}",
        )
        for name in (*SECTIONS, *extra)
    ]
    return tag("nav", *links, class_="sections", aria_label="Sections of the job")


def charts(job: JobSnapshot, watch: Watch) -> Markup:
    """Return throughput, epochs, state, backlog and watermark lag over time."""
    epochs = job.recent_epochs
    moments = list(watch.moments)
    sources = sorted({uid for each in moments for uid in each.backlog})
    levels = max((len(epoch.stages_ms) for epoch in epochs), default=1) - 1
    phases = [*(f"stage {level}" for level in range(levels)), "commit", "other"]
    bars = [(f"epoch {epoch.number}", _phases(epoch.stages_ms, levels, epoch.duration_ms)) for epoch in epochs[-60:]]
    lags = [(each.at_ms, float(max(0, each.watermark_lag_ms))) for each in moments if each.watermark_lag_ms is not None]
    rates = [(epoch.ended_ms, 1000 * epoch.records / epoch.cycle_ms) for epoch in epochs if epoch.cycle_ms > 0]
    return tag(
        "div",
        line_chart("Throughput", [Series("records read", rates)], rate),
        bar_chart("Epoch duration by phase", bars, phases, duration),
        line_chart(
            "State size", [Series("all operators", [(each.ended_ms, each.state_bytes) for each in epochs])], size
        ),
        line_chart(
            "Backlog",
            [
                Series(uid, [(each.at_ms, each.backlog[uid]) for each in moments if uid in each.backlog])
                for uid in sources
            ],
            lambda value: f"{number(value)} records",
        ),
        line_chart("Watermark lag", [Series("slowest chain", lags)], duration),
        class_="charts",
    )


def chosen_chart(title: str, key: str, values: Sequence[tuple[int, Mapping[str, float]]]) -> Markup:
    """Return the chart of a metric that the viewer chose."""
    names = sorted({name for _, lines in values for name in lines}, key=lambda name: (len(name), name))
    lines = [Series(name, [(at, found[name]) for at, found in values if name in found]) for name in names]
    return line_chart(title, lines, unit_of(key))


def _phases(stages_ms: list[float], levels: int, whole: float) -> list[float]:
    if not stages_ms:
        return [0.0] * (levels + 1) + [whole]
    found = [*stages_ms[:-1], *[0.0] * (levels - len(stages_ms) + 1), stages_ms[-1]]
    return [*found, max(0.0, whole - sum(found))]


def checkpoints(job: JobSnapshot, watch: Watch) -> Markup:
    """Return the history of checkpoints with their timelines, and the savepoints."""
    found = job.checkpoints
    facts = job.checkpointing
    settings = (
        f"Every {duration(facts.interval_ms)}, timeout {duration(facts.timeout_ms)}, backend {facts.backend or NONE}, "
        f"in {facts.storage or 'the memory of the driver'}"
        if facts.enabled
        else "Checkpoints are off. Set execution.checkpointing.interval to turn them on."
    )
    counts = (
        f"{number(found.completed)} completed, {number(found.failed)} failed, {number(found.in_progress)} in progress"
    )
    restored = found.latest_restored
    head = ["Checkpoint", "Status", "Duration", "Timeline by chain", "Written", "State", "Acknowledged", "Triggered"]
    longest = max((whole_ms(each) for each in found.history[:_TIMELINES]), default=0)
    names = {vertex.id: vertex.name for vertex in job.vertices}
    rows = [
        [
            f"{'savepoint ' if each.savepoint else ''}{each.id}",
            tag("span", each.status.lower().replace("_", " "), class_=f"chip {_CHECKPOINT[each.status]}"),
            duration(each.duration_ms),
            timeline(each, names, longest) if place < _TIMELINES else None,
            size(each.checkpointed_bytes),
            size(each.state_bytes),
            f"{each.acknowledged} of {counted(each.subtasks, 'subtask')}",
            moment(each.triggered_ms, utc(each.triggered_ms), utc(each.triggered_ms)),
        ]
        for place, each in enumerate(found.history)
    ]
    return join(
        tag("p", settings),
        tag("p", counts + (f"; resumed from {restored.id} at {utc(restored.restored_ms)}" if restored else "")),
        tag("h2", "History"),
        timeline_legend() if rows else None,
        table(head, rows, label="Checkpoints", numeric=frozenset({2, 4, 5}))
        if rows
        else tag("p", "No checkpoints yet.", class_="quiet"),
        _failures(found.history),
    )


_CHECKPOINT = {"COMPLETED": "good", "FAILED": "bad", "IN_PROGRESS": "wait"}


def _failures(history: list[CheckpointSnapshot]) -> Markup | None:
    failed = [each for each in history if each.failure]
    if not failed:
        return None
    items = [tag("li", f"Checkpoint {each.id}: {each.failure}") for each in failed]
    return join(tag("h2", "Failures"), tag("ul", *items))


def exceptions(job: JobSnapshot, watch: Watch) -> Markup:
    """Return the failures of the job, newest first."""
    if not job.exceptions:
        return tag("p", "The job has not failed.", class_="quiet")
    dropped = f"{counted(job.exceptions_dropped, 'older failure')} left out." if job.exceptions_dropped else ""
    items = [_exception(each, place) for place, each in enumerate(reversed(job.exceptions))]
    strategy = tag("p", f"Restart strategy: {job.restart_strategy}", class_="quiet") if job.restart_strategy else None
    return join(strategy, *items, tag("p", dropped) if dropped else None)


def _exception(each: ExceptionSnapshot, place: int) -> Markup:
    where = [part for part in (each.task, each.host) if part]
    attempt = f"attempt {each.attempt}, " if each.attempt else ""
    return tag(
        "details",
        tag(
            "summary",
            moment(each.at_ms, utc(each.at_ms), utc(each.at_ms)),
            f" {attempt}restart {each.restart}: ",
            tag("b", each.name),
            f" {each.message}",
        ),
        tag("p", "In ", " on ".join(where)) if where else None,
        tag("pre", each.trace or each.message, tabindex="0"),
        *(
            join(tag("h3", f"At the same time: {other.name}"), tag("pre", other.trace or other.message))
            for other in each.concurrent
        ),
        id=f"exception-{each.at_ms}-{place}",
        open=place == 0,
        class_="exception",
    )


def configuration(job: JobSnapshot, watch: Watch) -> Markup:
    """Return the settings of the job."""
    parts = [
        table(
            ["Setting", "Value"],
            [[tag("code", key), value] for key, value in sorted(job.configuration.items())],
            label="Settings",
        )
    ]
    if job.parameters:
        rows = [[tag("code", key), value] for key, value in sorted(job.parameters.items())]
        parts += [
            tag("h2", "Parameters of the program"),
            table(["Parameter", "Value"], rows, label="Parameters"),
        ]
    return join(*parts)


def executors(job: JobSnapshot, watch: Watch) -> Markup:
    """Return the executors of the job, and the state in their replicas."""
    slots = f"The job needs {counted(job.slots.needed, 'slot')}; {job.slots.available} are available."
    if not job.executors:
        return join(tag("p", slots), tag("p", "Spark has reported no executors yet.", class_="quiet"))
    head = ["Executor", "Address", "Cores", "Tasks", "Python memory", "JVM heap", "JVM off-heap", "Host memory"]
    rows: list[list[Child]] = [
        [
            each.id + (" (excluded by Spark)" if each.excluded else ""),
            each.address or NONE,
            each.cores,
            f"{each.active_tasks} in {counted(each.slots, 'slot')}",
            f"{size(each.python_memory)} in {counted(each.python_workers, 'worker')}" if each.python_workers else NONE,
            f"{size(each.heap_used)} of {size(each.heap_max)}",
            size(each.off_heap_used),
            size(each.physical_memory) if each.physical_memory else NONE,
        ]
        for each in job.executors
    ]
    replicas: list[list[Child]] = [
        [
            each.id,
            _state(each.blocks, each.block_bytes),
            _state(each.standby_blocks, each.standby_bytes),
            f"{size(each.disk_free)} free of {size(each.disk_total)}" if each.disk_total else NONE,
        ]
        for each in job.executors
    ]
    return join(
        tag("p", slots),
        table(head, rows, label="Executors", numeric=frozenset(range(2, 8))),
        tag("h2", "Replicas of keyed state"),
        table(
            ["Executor", "Of its subtasks", "Of others, as a standby", "Disk"],
            replicas,
            label="Replicas of keyed state",
            numeric=frozenset(range(1, 4)),
        ),
    )


def _state(blocks: int, stored: int) -> str:
    return f"{size(stored)} in {counted(blocks, 'block')}" if blocks else NONE


def graph_section(job: JobSnapshot, watch: Watch) -> Markup:
    """Return the graph."""
    return graph(job)


def vertex_section(job: JobSnapshot, vertex_id: str) -> Markup:
    """Return the details of the chain that the viewer chose."""
    vertex = next((each for each in job.vertices if each.id == vertex_id), None)
    return subtasks(vertex) if vertex is not None else tag("p", "The job has no such chain.", class_="quiet")


SECTIONS: dict[str, Section] = {
    "graph": graph_section,
    "charts": charts,
    "checkpoints": checkpoints,
    "exceptions": exceptions,
    "configuration": configuration,
    "plan": plan,
    "executors": executors,
}
