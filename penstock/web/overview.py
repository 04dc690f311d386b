"""The overview: the problems of all jobs, and the jobs."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.driver.job_snapshot import JobSnapshot
from penstock.rest.views.shared import ENDED
from penstock.web.hints import Hint, hints
from penstock.web.markup import Markup, job_path, join, moment, table, tag
from penstock.web.observation import Watches, backlog_of, source_rate
from penstock.web.quantities import NONE, counted, duration, number, rate, size, utc

_SHOWN = 20
"""Problems that are listed. Further ones are counted."""
_ORDER = {"FAILING": 0, "RESTARTING": 0, "FAILED": 1}
STATE_CLASSES = {
    "RUNNING": "good",
    "FINISHED": "done",
    "CANCELED": "done",
    "FAILED": "bad",
    "FAILING": "bad",
    "RESTARTING": "warn",
}


def overview(jobs: Sequence[JobSnapshot], watches: Watches, now_ms: int) -> Markup:
    """Return the contents of the overview."""
    found = [(job, hint) for job in jobs for hint in hints(job, watches.of(job.id))]
    # Problems of running jobs are more urgent than those of ended ones.
    found.sort(key=lambda each: (each[0].state in ENDED, each[1].severity != "error", -each[0].taken_ms))
    return join(_counts(jobs), _problems(found), _jobs(jobs, watches, now_ms))


def _counts(jobs: Sequence[JobSnapshot]) -> Markup:
    states = [job.state for job in jobs]
    running = states.count("RUNNING")
    ended = sum(state in ENDED for state in states)
    parts = [("running", running), ("starting or restarting", len(states) - running - ended), ("ended", ended)]
    return tag(
        "p",
        *(join(tag("strong", count), f" {name}", Markup(" &nbsp; ")) for name, count in parts),
        class_="counts",
    )


def _problems(found: Sequence[tuple[JobSnapshot, Hint]]) -> Markup:
    if not found:
        return tag("section", tag("h2", "Problems"), tag("p", "None found.", class_="quiet"), id="problems")
    items = [problem(hint, job) for job, hint in found[:_SHOWN]]
    more = (
        tag("p", f"{counted(len(found) - _SHOWN, 'further problem')}; see the jobs.") if len(found) > _SHOWN else None
    )
    return tag("section", tag("h2", "Problems"), tag("ul", *items, class_="problems"), more, id="problems")


def problem(hint: Hint, job: JobSnapshot, *, with_job: bool = True) -> Markup:
    """Return one problem as a list item."""
    link = tag("a", job.name, href=job_path(job.id, hint.section), id=f"hint-{job.id}-{hint.kind}")
    return tag(
        "li",
        tag("span", "Error" if hint.severity == "error" else "Warning", class_="severity"),
        tag("div", join(link, ": ") if with_job else None, hint.text, class_="what"),
        tag("div", tag("b", "Next: "), hint.fix, class_="next"),
        class_=hint.severity,
        data_kind=hint.kind,
    )


def state_chip(state: str) -> Markup:
    """Return the state of a job in words and colour."""
    return tag("span", state.lower(), class_=f"chip {STATE_CLASSES.get(state, 'wait')}")


def _jobs(jobs: Sequence[JobSnapshot], watches: Watches, now_ms: int) -> Markup:
    if not jobs:
        empty = join("No jobs. Submit one with ", tag("code", "penstock run -d job.py"), ".")
        return tag("section", tag("h2", "Jobs"), tag("p", empty, class_="quiet"), id="jobs")
    ordered = sorted(jobs, key=lambda job: (job.state in ENDED, _ORDER.get(job.state, 2), -job.started_ms))
    head = ["Job", "State", "Input", "Backlog", "Event-time lag", "Last checkpoint", "Restarts", "Duration", "Started"]
    rows = [_row(job, watches, now_ms) for job in ordered]
    jobs_table = table(head, rows, label="Jobs", numeric=frozenset({2, 3, 4, 6, 7}))
    return tag("section", tag("h2", "Jobs"), jobs_table, id="jobs")


def _row(job: JobSnapshot, watches: Watches, now_ms: int) -> list[str | int | float | Markup | None]:
    ended = job.state in ENDED
    moments = watches.of(job.id).moments
    lag = moments[-1].watermark_lag_ms if moments and not ended else None
    backlog = backlog_of(job)
    end = job.ended_ms if job.ended_ms >= 0 else now_ms
    return [
        tag("a", job.name, href=job_path(job.id), id=f"job-{job.id}"),
        state_chip(job.state),
        rate(source_rate(job)) if job.state == "RUNNING" else NONE,
        f"{number(sum(backlog.values()))} records" if backlog and not ended else NONE,
        duration(max(0, lag)) if lag is not None else NONE,
        last_checkpoint(job, now_ms),
        job.restarts,
        duration(max(0, end - job.started_ms)) if job.started_ms else NONE,
        moment(job.started_ms, utc(job.started_ms), utc(job.started_ms)) if job.started_ms else NONE,
    ]


def last_checkpoint(job: JobSnapshot, now_ms: int) -> str:
    """Return age, duration and size of the last completed checkpoint."""
    last = job.checkpoints.latest_completed
    if last is None:
        return NONE
    age = duration(max(0, now_ms - last.triggered_ms - last.duration_ms))
    return f"{age} ago, took {duration(last.duration_ms)}, {size(last.state_bytes)}"
