"""The state of a task: restored at the start of an epoch, reported at the end."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.runtime.chain import ChainRun, Reported
from penstock.runtime.checkpointed import Restored
from penstock.runtime.plan import Chain
from penstock.runtime.report import DeltaHandle, OperatorReport
from penstock.runtime.task_epoch import TaskEpoch
from penstock.runtime.watermarks import LEAST
from penstock.state.overlay import StoredTypes
from penstock.state.replica import StateHistory
from penstock.state.shares import Share
from penstock.state.stored_types import StoredType
from penstock.state.ttl import Form


def restored(chain: Chain, subtask: int, uid: str, checkpoint: int, history: StateHistory) -> Restored:
    """Return the operator state that a subtask resumes from."""
    if history.wanted is None:
        return Restored(None, {})
    return Restored(checkpoint, history.operator_state(uid, subtask, chain.parallelism, chain.max_parallelism))


def restore_forms(run: ChainRun, history: StateHistory, timestamp: int) -> None:
    """Restore how the states of a chain are stored. Called before they are registered."""
    assert run.overlay is not None
    uid = run.chain.operators[0].uid
    stood = history.times().get(uid)
    watermark = LEAST if stood is None else min(stood.subtasks, default=LEAST)
    run.overlay.ttl.restore(history.schemas(uid), history.forms(uid), (timestamp, watermark))


def fit_types(run: ChainRun, stored: Mapping[str, StoredType]) -> None:
    """Adapt the keyed states of a chain to their stored types, or raise StateTypeChanged."""
    assert run.overlay is not None
    head = run.operators[0]
    hint = head.state_hint
    origin = f" The latter is the annotation of {hint.origin}." if hint else ""
    run.overlay.fit_types(StoredTypes(stored, f"operator '{head.name}' (uid '{head.uid}')", origin))


def snapshot(run: ChainRun, epoch: TaskEpoch) -> list[OperatorReport]:
    """Return the reports of a chain's operators at the end of an epoch, and write the delta."""
    reports = []
    held: dict[str, dict[str, Share]] = {}
    for place, operator in enumerate(run.operators):
        deltas: list[DeltaHandle] = []
        states: dict[str, str] = {}
        timers: dict[str, dict[int, int]] = {}
        forms: dict[str, Form] = {}
        migrations: dict[str, tuple[bytes, ...]] = {}
        queryable: dict[str, str] = {}
        unused: list[str] = []
        if place == 0 and run.overlay is not None and not epoch.single_epoch:
            types = run.overlay.types()
            states = {name: stored.schema for name, stored in types.items()}
            migrations = {name: stored.migrations for name, stored in types.items() if stored.migrations}
            forms = run.overlay.ttl.forms()
            queryable, unused = run.overlay.queryable(), run.overlay.unused()
            changes = run.overlay.changes()
            if changes:
                written = epoch.state.write_delta(epoch.number, changes, run.overlay.blocks)
                deltas.append(
                    DeltaHandle(
                        name=written.name,
                        size=written.size,
                        entries=written.entries,
                        blocks=written.blocks,
                        inline=written.inline,
                    )
                )
            timers = run.overlay.least()
        committable = operator.snapshot()
        kept: dict[str, Share] = {}
        if operator.stateful and not (epoch.single_epoch and operator.keeps_state):
            kept = held[operator.uid] = operator.operator_state(epoch.info)
            queryable = queryable | operator.queryable_states()
        if states or deltas or kept or timers or committable is not None:
            reports.append(
                OperatorReport(
                    uid=operator.uid,
                    states=states,
                    deltas=deltas,
                    committable=committable,
                    operator_state=kept,
                    timers=timers,
                    ttl=forms,
                    migrations=migrations,
                    queryable=queryable,
                    unused=unused,
                )
            )
    if run.stateful:
        run.reported = Reported(epoch.lineage, epoch.number, held)
    return reports
