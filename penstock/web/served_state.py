"""Reads the state of a job whose checkpoints are in the memory of its driver: its state server is the only source.

The server knows the states that the program declares queryable, at the newest checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from penstock.common.options.checkpoints import CHECKPOINTS_DIRECTORY
from penstock.common.options.query import QUERYABLE_STATE
from penstock.driver.job_snapshot import JobSnapshot
from penstock.query.reads import shape_of
from penstock.rest.views.shared import ENDED
from penstock.state.key_groups import key_group_of
from penstock.tables.keys import canonical
from penstock.tables.snapshot import StateInfo
from penstock.tables.typed_keys import typed_key
from penstock.web.live_state import LiveState, described, is_queryable
from penstock.web.reading import Reading
from penstock.web.state_reader import Examples, FoundKey, Owner, Rows, examples_of, owning_subtask

_IN_MEMORY = (
    "The checkpoints of this job are in the memory of its driver, where this page cannot read them. "
    f"Set {CHECKPOINTS_DIRECTORY.key} to see all states and their history, make a savepoint, or call set_queryable for "
    f"a state and set {QUERYABLE_STATE.key} to true."
)
_SERVED = (
    "The checkpoints of this job are in the memory of its driver, so this page shows the newest values of its "
    f"queryable states. Set {CHECKPOINTS_DIRECTORY.key} to see all states and their history."
)
_GONE = (
    "The checkpoints of this job were in the memory of its driver, and ended with it. "
    f"Set {CHECKPOINTS_DIRECTORY.key} to keep them, or make a savepoint before the job ends."
)


def is_served_only(job: JobSnapshot) -> bool:
    """Return whether the state server is the only source of the present state of a job."""
    return not job.checkpointing.storage and job.state not in ENDED and is_queryable(job)


def memory_note(job: JobSnapshot) -> str:
    """Return what the page does not show because checkpoints are in memory, and what changes it; else, empty text."""
    if job.checkpointing.storage:
        return ""
    if job.state in ENDED:
        return _GONE
    return _SERVED if is_queryable(job) else _IN_MEMORY


def states(job: JobSnapshot, settings: Mapping[str, str]) -> list[StateInfo]:
    """Return the queryable states of a job. Raises QueryError."""
    return [
        StateInfo(
            uid=each.uid, operator=each.operator, name=each.state, kind=each.kind, type=each.type, ttl_ms=each.ttl_ms
        )
        for each in described(job, settings)
    ]


def examples(job: JobSnapshot, settings: Mapping[str, str], uid: str, state: str) -> Examples:
    """Return a few keys as a viewer types them, and their type. Raises NotLive, QueryError."""
    with LiveState(job, settings, uid, state) as live:
        if not live.state.keyed:
            return Examples([], "")
        stream = live.scan()
        return examples_of(islice((row for batch in stream for row in batch.to_pylist()), 50), shape_of(stream.schema))


def look_up(job: JobSnapshot, settings: Mapping[str, str], uid: str, state: str, key: str) -> FoundKey:
    """Return the state of a key, typed as text. Raises NotLive, QueryError, and PenstockError for another type."""
    with LiveState(job, settings, uid, state) as live:
        wanted = typed_key(shape_of(live.scan(keys=[]).schema), state, key)
        stream = live.scan(keys=[wanted])
        rows = [row for batch in stream for row in batch.to_pylist()]
        group = key_group_of(canonical(wanted), live.state.max_parallelism)
        subtask = owning_subtask(job, uid, group, live.state.max_parallelism)
        return FoundKey(rows, Owner(group, None, subtask), [], live.state.ttl_ms, live.source(stream))


def page(
    job: JobSnapshot, settings: Mapping[str, str], uid: str, state: str, offset: int, where: str, reading: Reading
) -> Rows:
    """Return a page of the rows that fulfil a condition. Raises NotLive, QueryError, BadCondition."""
    with LiveState(job, settings, uid, state) as live:
        return live.page(offset, where, reading)
