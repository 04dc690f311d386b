"""Problems of a job, in words, with the next step. Pure functions of a snapshot and the job's recent past.

Each function in `CHECKS` looks for one cause and yields its hints while the cause lasts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from statistics import median
from typing import Literal, NamedTuple

from penstock.driver.job_snapshot import JobSnapshot, VertexSnapshot
from penstock.runtime.metrics import DEAD_LETTERS, LATE_RECORDS
from penstock.state.key_groups import range_of_subtask
from penstock.web.observation import Watch
from penstock.web.quantities import counted, duration, number, share, size, utc

Severity = Literal["error", "warning"]

RECENT_MS = 10 * 60_000
"""How long restarts and dropped records are reported."""
STILL_MS = 60_000
"""How long a watermark stands still before it is reported, while records arrive."""
_SKEW = 2.0
"""A subtask with this many times the mean of the vertex is skewed."""
_LEAST_RECORDS = 1000
"""Fewer records say nothing about skew."""
_LEAST_BACKLOG = 100
_SLOW = 1.2
"""Checkpoints that take this many times the interval are slow. Flow control aims at the interval itself."""
_SLOW_CHECKPOINTS = 3
"""How many consecutive checkpoints must be slow: the first one starts the workers, and a burst passes."""
_GROWTH = 1.5
_LEAST_EPOCHS = 10
_LEAST_STATE = 1 << 20


class Hint(NamedTuple):
    """One problem of a job."""

    kind: str
    severity: Severity
    text: str
    fix: str
    """The next step."""
    section: str = ""
    """The section of the job page that shows more."""


def hints(job: JobSnapshot, watch: Watch) -> list[Hint]:
    """Return the problems of a job, the worst first."""
    found = [hint for check in CHECKS for hint in check(job, watch)]
    return sorted(found, key=lambda hint: hint.severity != "error")


def failed(job: JobSnapshot, watch: Watch) -> Iterator[Hint]:
    """The job has failed."""
    if job.state == "FAILED":
        yield Hint(
            "failed",
            "error",
            f"The job failed: {_cause(job) or 'no reason is recorded'}",
            "Correct the cause and start the job again from its last checkpoint or savepoint.",
            "exceptions",
        )


def restarting(job: JobSnapshot, watch: Watch) -> Iterator[Hint]:
    """The job restarts now, or has restarted several times recently."""
    recent = [each for each in job.exceptions if job.taken_ms - each.at_ms <= RECENT_MS]
    if job.state in ("RESTARTING", "FAILING"):
        after = f", after {counted(job.restarts, 'restart')}" if job.restarts else ""
        since = job.state_since_ms.get(job.state, job.taken_ms)
        yield Hint(
            "restarting",
            "error",
            f"The job has been {job.state.lower()} for {duration(max(0, job.taken_ms - since))}{after}. "
            f"Cause: {_cause(job) or 'unknown'}",
            "Read the traceback under Exceptions. If the same record fails each time, correct the function, or send "
            "such records to a side output.",
            "exceptions",
        )
    elif job.state == "RUNNING" and len(recent) > 1:
        yield Hint(
            "restarting",
            "warning",
            f"The job failed {len(recent)} times within {duration(RECENT_MS)}. Last cause: {_cause(job)}",
            "Read the tracebacks under Exceptions before the restart strategy gives up.",
            "exceptions",
        )


def waits_for_slots(job: JobSnapshot, watch: Watch) -> Iterator[Hint]:
    """The job needs more slots than Spark has."""
    if job.slots.waits:
        yield Hint(
            "slots",
            "error",
            f"The job waits for slots: it needs {job.slots.needed}, and {job.slots.available} are available.",
            "Give Spark more cores, or rescale the job to a lower parallelism.",
            "executors",
        )


def backlog_grows(job: JobSnapshot, watch: Watch) -> Iterator[Hint]:
    """More records arrive at a source than the job reads."""
    if len(watch.moments) < 3 or job.state != "RUNNING":
        return
    half = list(watch.moments)[len(watch.moments) // 2 :]
    if len({moment.epoch for moment in half}) < 2:
        return
    for uid in sorted(half[-1].backlog):
        found = [moment.backlog[uid] for moment in half if uid in moment.backlog]
        if not _grew(found):
            continue
        busiest = max(job.vertices, key=_busiest, default=None)
        vertex = f"'{busiest.name}', the busiest chain ({share(_busiest(busiest))})" if busiest else "the job"
        spent = duration(half[-1].at_ms - half[0].at_ms)
        yield Hint(
            "backlog",
            "warning",
            f"The backlog of source {_named(job, uid)} grew from {number(found[0])} to {number(found[-1])} records in "
            f"{spent}.",
            f"Raise the parallelism of {vertex}, or make its functions cheaper.",
            "charts",
        )


def watermark_stands_still(job: JobSnapshot, watch: Watch) -> Iterator[Hint]:
    """Records arrive, but event time does not progress."""
    by_id = {vertex.id: vertex for vertex in job.vertices}
    for vertex in job.vertices:
        standing = watch.standing.get(vertex.id)
        if standing is None or not vertex.inputs or job.state != "RUNNING":
            continue
        still = job.taken_ms - standing.since_ms
        if still < STILL_MS or vertex.totals.records_in <= standing.records or not _has_event_time(job):
            continue
        at = "has had no value" if standing.watermark is None else f"has stood at {utc(standing.watermark)}"
        yield Hint(
            "watermark",
            "warning",
            f"The watermark of '{vertex.name}' {at} for {duration(still)}, although records arrive. "
            f"It is held back by {_held_back_by(vertex, by_id)}.",
            "Windows and timers wait for it. If no records arrive there, add with_idleness(...) to its watermark "
            "strategy.",
            "graph",
        )
        # The chains after it stand still for the same reason.
        return


def skewed(job: JobSnapshot, watch: Watch) -> Iterator[Hint]:
    """One subtask of a keyed chain has far more records than the others."""
    for vertex in job.vertices if _is_at_work(job) else ():
        if len(vertex.subtasks) < 2 or not any(each.strategy == "HASH" for each in vertex.inputs):
            continue
        loads = [each.records_in_rate for each in vertex.subtasks]
        if sum(each.records_in for each in vertex.subtasks) < _LEAST_RECORDS or sum(loads) <= 0:
            continue
        heaviest = max(range(len(loads)), key=loads.__getitem__)
        mean = sum(loads) / len(loads)
        # With few subtasks, twice the mean can be impossible.
        if loads[heaviest] < min(_SKEW * mean, 0.9 * sum(loads)):
            continue
        groups = range_of_subtask(heaviest, len(loads), vertex.max_parallelism)
        of = f", which owns key groups {groups[0]} to {groups[-1]}," if len(groups) else ""
        yield Hint(
            "skew",
            "warning",
            f"Subtask {heaviest} of '{vertex.name}'{of} receives {share(loads[heaviest] / sum(loads))} of the records."
            f"{_heaviest_keys(vertex, heaviest, sum(loads))}",
            "Aggregate before key_by, or add a salt to the key. If the key stands for a missing value, filter such "
            "records or give each of them another key.",
            "graph",
        )


def checkpoint_slow(job: JobSnapshot, watch: Watch) -> Iterator[Hint]:
    """A checkpoint takes longer than the interval between checkpoints."""
    interval = job.checkpointing.interval_ms
    done = [each for each in job.checkpoints.history if each.status == "COMPLETED" and not each.savepoint]
    recent = done[:_SLOW_CHECKPOINTS]
    if interval <= 0 or len(recent) < 2 or not _is_at_work(job):
        return
    if min(each.duration_ms for each in recent) > _SLOW * interval:
        yield Hint(
            "checkpoint",
            "warning",
            f"Checkpoint {recent[0].id} took {duration(recent[0].duration_ms)}, longer than the interval of "
            f"{duration(interval)}, and so did the one before it.",
            "Find the slow part in the timeline under Checkpoints. Raise execution.checkpointing.interval, or let an "
            "epoch read fewer records: lower penstock.flow.target-epoch-time.",
            "checkpoints",
        )


def checkpoint_failed(job: JobSnapshot, watch: Watch) -> Iterator[Hint]:
    """The newest checkpoint failed."""
    checkpoints = job.checkpoints
    last, done = checkpoints.latest_failed, checkpoints.latest_completed
    if last is not None and job.state == "RUNNING" and (done is None or done.triggered_ms < last.triggered_ms):
        yield Hint(
            "checkpoint-failed",
            "error",
            f"Checkpoint {last.id} failed: {last.failure or 'no reason is recorded'}",
            "Look at it under Checkpoints, and at the log of the job. If it only took too long, raise "
            "execution.checkpointing.timeout.",
            "checkpoints",
        )


def state_grows(job: JobSnapshot, watch: Watch) -> Iterator[Hint]:
    """The state has grown in every recent epoch."""
    sizes = [epoch.state_bytes for epoch in job.recent_epochs]
    if len(sizes) < _LEAST_EPOCHS or sizes[-1] < _LEAST_STATE or not _is_at_work(job):
        return
    if any(later < before for before, later in pairwise(sizes)):
        return
    half = len(sizes) // 2
    # A state that fills up to its final size grows ever more slowly.
    slowed = sizes[-1] - sizes[half] < (sizes[half] - sizes[0]) / 2
    if sizes[-1] < _GROWTH * max(1, sizes[0]) or slowed:
        return
    yield Hint(
        "state",
        "warning",
        f"The state grew from {size(sizes[0])} to {size(sizes[-1])} in the last {len(sizes)} epochs"
        f"{_largest_state(job)}.",
        "Give the state a time to live, or clear it when a key is complete.",
        "state",
    )


def sink_slow(job: JobSnapshot, watch: Watch) -> Iterator[Hint]:
    """Committing the sinks takes most of an epoch."""
    recent = [epoch for epoch in job.recent_epochs[-5:] if epoch.stages_ms]
    if len(recent) < 3 or not _is_at_work(job):
        return
    commit = median(epoch.stages_ms[-1] for epoch in recent)
    whole = median(epoch.duration_ms for epoch in recent)
    if commit > 200 and commit > whole / 2:
        yield Hint(
            "sink",
            "warning",
            f"{_sinks(job)} up the epochs: each waits {duration(commit)} of {duration(whole)} for commits.",
            "Look at the load of the system that the sinks write to, or raise execution.checkpointing.interval for "
            "fewer, larger commits.",
            "charts",
        )


def late_dropped(job: JobSnapshot, watch: Watch) -> Iterator[Hint]:
    """A window or an interval join has dropped late records recently."""
    for operator, count in _increased(job, watch, LATE_RECORDS):
        yield Hint(
            "late",
            "warning",
            f"Operator {operator} dropped {counted(count, 'late record')} since the job started.",
            "Allow more out-of-orderness in the watermark strategy, or send late records to a side output: "
            "side_output_late_data of a window, side_output_left_late_data and side_output_right_late_data of an "
            "interval join.",
            "graph",
        )


def dead_letters(job: JobSnapshot, watch: Watch) -> Iterator[Hint]:
    """A source has sent unreadable records to its dead letters recently."""
    for operator, count in _increased(job, watch, DEAD_LETTERS):
        yield Hint(
            "dead-letters",
            "warning",
            f"Source {operator} could not read {counted(count, 'record')}, which became dead letters.",
            "Look at the side output that receives them, and correct the producer or the format.",
            "graph",
        )


CHECKS: tuple[Callable[[JobSnapshot, Watch], Iterator[Hint]], ...] = (
    failed,
    restarting,
    waits_for_slots,
    checkpoint_failed,
    watermark_stands_still,
    backlog_grows,
    sink_slow,
    checkpoint_slow,
    skewed,
    state_grows,
    late_dropped,
    dead_letters,
)


def _cause(job: JobSnapshot) -> str:
    if not job.exceptions:
        return job.reason
    last = job.exceptions[-1]
    where = f" in {last.task}" if last.task else ""
    line = _essence(last.message).removeprefix(f"{last.name}: ")
    return f"{last.name}{where}" + (f": {line}" if line else "")


def _essence(message: str) -> str:
    """Return the first line of a message, or what its last traceback raised."""
    _, traceback, raised = message.rpartition("Traceback (most recent call last):")
    lines = [line for line in raised.strip("\n").splitlines() if line.strip()]
    if traceback:
        lines = [line for line in lines if not line.startswith(" ")]
    return lines[0].strip() if lines else ""


def _is_at_work(job: JobSnapshot) -> bool:
    """Return whether the job runs and has completed an epoch recently. The rates of an older one mean nothing."""
    if job.state != "RUNNING" or not job.recent_epochs:
        return False
    last = job.recent_epochs[-1]
    return job.taken_ms - last.ended_ms <= max(RECENT_MS, 3 * last.cycle_ms)


def _named(job: JobSnapshot, uid: str) -> str:
    """Return the quoted name of an operator, with its uid if others have the same name."""
    names = {each.uid: each.name for vertex in job.vertices for each in vertex.operators}
    name = names.get(uid, uid)
    return f"'{name}'" + (f" (uid '{uid}')" if [*names.values()].count(name) > 1 else "")


def _sinks(job: JobSnapshot) -> str:
    """Return the start of a sentence about the sinks."""
    found = [each for vertex in job.vertices for each in vertex.operators if each.kind == "Sink"]
    return f"Sink {_named(job, found[0].uid)} holds" if len(found) == 1 else "The sinks hold"


def _grew(backlog: Sequence[int]) -> bool:
    """Return whether a backlog has grown, and does not shrink again."""
    first, last = backlog[0], backlog[-1]
    if last < _LEAST_BACKLOG or last < 0.9 * max(backlog):
        return False
    if last > 1.1 * first:
        return True
    # A large backlog grows slowly in proportion to its size, but steadily.
    parts = [backlog[place * (len(backlog) - 1) // 4] for place in range(5)]
    return last > 1.01 * first and all(before < after for before, after in pairwise(parts))


def _busiest(vertex: VertexSnapshot) -> float:
    return max((each.busy for each in vertex.subtasks), default=0.0)


def _heaviest_keys(vertex: VertexSnapshot, subtask: int, rate: float) -> str:
    """Return a sentence that names the heaviest keys of a subtask, with their shares of all records."""
    found = vertex.subtasks[subtask]
    named = [
        (f"{each.key} in key group {each.group}" if each.key else f"one key in key group {each.group}")
        + f" (about {share(each.share * found.records_in_rate / rate)} of all records)"
        for each in found.heaviest
    ]
    if not named:
        return ""
    return f" Its heaviest {'keys are' if len(named) > 1 else 'key is'} {', '.join(named)}."


def _has_event_time(job: JobSnapshot) -> bool:
    return any(each.watermark is not None for vertex in job.vertices for each in vertex.subtasks)


def _held_back_by(vertex: VertexSnapshot, by_id: dict[str, VertexSnapshot]) -> str:
    """Return the subtask of a source, or the chain nearest to one, whose watermark is the lowest."""
    seen = {vertex.id}
    while True:
        before = [by_id[each.vertex] for each in vertex.inputs if each.vertex in by_id and each.vertex not in seen]
        if not before:
            break
        vertex = min(before, key=_lowest)
        seen.add(vertex.id)
    lowest = [number for number, each in enumerate(vertex.subtasks) if _order(each.watermark) == _lowest(vertex)]
    subtask = f"subtask {lowest[0]} of " if lowest and len(vertex.subtasks) > 1 else ""
    value = "has no watermark" if _lowest(vertex) == float("-inf") else f"is at {utc(_lowest(vertex))}"
    same = sum(each.name == vertex.name for each in by_id.values()) > 1
    return f"{subtask}'{vertex.name}'{f' (uid {vertex.uid!r})' if same else ''}, which {value}"


def _order(watermark: int | None) -> float:
    return float("-inf") if watermark is None else watermark


def _lowest(vertex: VertexSnapshot) -> float:
    return min((_order(each.watermark) for each in vertex.subtasks), default=float("-inf"))


def _largest_state(job: JobSnapshot) -> str:
    names = {vertex.id: vertex.name for vertex in job.vertices}
    last = next((each for each in job.checkpoints.history if each.status == "COMPLETED" and each.tasks), None)
    task = max(last.tasks, key=lambda each: each.state_bytes, default=None) if last else None
    if task is None or task.vertex not in names or not task.state_bytes:
        return ""
    return f"; '{names[task.vertex]}' holds {size(task.state_bytes)} of it"


def _increased(job: JobSnapshot, watch: Watch, metric: str) -> Iterator[tuple[str, int]]:
    for vertex in job.vertices:
        for name, values in vertex.metrics.items():
            at = watch.increased_ms.get((vertex.id, name))
            if name.endswith(f".{metric}") and at is not None and job.taken_ms - at <= RECENT_MS:
                yield _named(job, name.removesuffix(f".{metric}")), int(sum(value or 0 for value in values))
