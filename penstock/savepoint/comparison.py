"""Compare a program with a savepoint without starting the job: what would happen to each state and position.

Functions are opened and closed here, as in a task, to learn which states they declare. No record is processed and
nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec

from penstock.checkpoint.manifest_chain import stored_types
from penstock.errors import PenstockError
from penstock.graph.physical import PhysicalGraph
from penstock.runtime.chain import ChainRun
from penstock.runtime.failures import describe_failure, party_of
from penstock.runtime.operators import Operator
from penstock.savepoint.format import Metadata, SavedOperator, load_savepoint
from penstock.savepoint.restoring import RestoreSettings, check_savepoint
from penstock.state.stored_types import StoredType, migrations_to

RESTORED = "restored"
EMPTY = "starts empty"
DROPPED = "dropped"
INCOMPATIBLE = "incompatible"
UNUSED = "not declared"
"""The state is kept, but no function declared it on opening. A function that declares it later receives it."""


class StateVerdict(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    verdict: str
    stored: str | None = None
    """Its type in the savepoint."""
    declared: str | None = None
    reason: str = ""


class OperatorVerdict(msgspec.Struct, frozen=True, kw_only=True):
    uid: str
    name: str
    verdict: str
    states: list[StateVerdict] = []
    reason: str = ""


class SourceVerdict(msgspec.Struct, frozen=True, kw_only=True):
    uid: str
    name: str
    verdict: str
    records: int = 0
    """Records read when the savepoint was made."""
    positions: list[str] = []


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    savepoint: str
    job: str
    """Name of the job that the savepoint was made from."""
    operators: list[OperatorVerdict]
    sources: list[SourceVerdict]
    problem: str = ""
    """Why the job would not start; empty if it would."""
    fix: str = ""

    @property
    def would_start(self) -> bool:
        return not self.problem


def summary(job: str, comparison: Comparison) -> dict[str, Any]:
    """Return a comparison with a job's program as plain values, for JSON."""
    known: dict[str, Any] = msgspec.to_builtins(comparison)
    return {"program": job, "would_start": comparison.would_start} | known


def compare(graph: PhysicalGraph, sources: list[str], settings: RestoreSettings) -> Comparison:
    """Return what a job with this graph would restore. Raises SavepointError if the savepoint cannot be read.

    `sources`: the source uid for each line of Spark's offsets in the program's plan.
    """
    storage = settings.storage
    metadata = load_savepoint(storage)
    refusal: PenstockError | None = None
    try:
        check_savepoint(graph, sources, settings)
    except PenstockError as error:
        refusal = error
    operators = [*_operators(graph, metadata), *_gone(graph, metadata)]
    if refusal is None:
        refusal = next((error for error in map(_refusal, operators) if error is not None), None)
    return Comparison(
        savepoint=storage.where,
        job=metadata.job,
        operators=operators,
        sources=list(_sources(graph, metadata)),
        problem="" if refusal is None else refusal.statement(),
        fix="" if refusal is None else refusal.fix or "",
    )


def _refusal(operator: OperatorVerdict) -> PenstockError | None:
    reasons = [operator.reason, *(state.reason for state in operator.states if state.verdict == INCOMPATIBLE)]
    said = " ".join(filter(None, reasons))
    return PenstockError(said) if said else None


def _operators(graph: PhysicalGraph, metadata: Metadata) -> Iterator[OperatorVerdict]:
    for chain in graph.chains:
        run = ChainRun(graph, chain, None if chain.source_uid is not None else 0)
        if run.overlay is None and not run.stateful:
            continue
        head = run.operators[0] if run.overlay is not None else None
        reason = ""
        try:
            # Sinks stay closed, because nothing must be written.
            run.open(wanted=partial(_declares_state, head))
        except Exception as error:  # user code can raise anything
            failure = describe_failure(error, run.operators, party_of(run.operators[0]), 0)
            reason = f"Operator '{failure.operator}' (uid '{failure.uid}') could not be opened: {error}"
        for operator in run.operators:
            keyed = operator is head
            if keyed or operator.stateful:
                saved = metadata.operators.get(operator.uid)
                states = [] if reason else list(_states(run, operator, keyed, saved))
                kept = saved is not None and saved.has_state
                worst = INCOMPATIBLE if any(state.verdict == INCOMPATIBLE for state in states) else RESTORED
                verdict = INCOMPATIBLE if reason else worst if kept else EMPTY
                yield OperatorVerdict(
                    uid=operator.uid, name=operator.name, verdict=verdict, states=states, reason=reason
                )
                reason = ""
        run.close()


def _declares_state(head: Operator | None, operator: Operator) -> bool:
    return operator.keeps_state or operator is head


def _states(run: ChainRun, operator: Operator, keyed: bool, saved: SavedOperator | None) -> Iterator[StateVerdict]:
    label = f"operator '{operator.name}' (uid '{operator.uid}')"
    if keyed:
        assert run.overlay is not None
        stored = {} if saved is None else stored_types(saved.snapshot)
        declared = {name: state.descriptor for name, state in run.overlay.states.items()}
        yield from _each(stored, declared, "State", label)
        if saved is not None and any(saved.snapshot.timers.values()):
            yield StateVerdict(name="timers", verdict=RESTORED)
    elif not operator.keeps_state and saved is not None:
        # Sink writers interpret their stored state themselves.
        yield from (StateVerdict(name=name, verdict=RESTORED) for name in saved.operator_state())
    if operator.keeps_state:
        shares = {} if saved is None else saved.snapshot.operator_state
        modes = {name: share.mode for name, share in shares.items()}
        stored = {name: StoredType(share.schema, share.migrations) for name, share in shares.items()}
        states = operator.store.states
        for name, state in states.items():
            if modes.get(name, state.mode) != state.mode:
                before, now = f"{modes[name]} {shares[name].schema}", f"{state.mode} {state.descriptor.schema()}"
                reason = f"Operator state '{name}' of {label} is stored as '{before}' but declared as '{now}'."
                yield StateVerdict(name=name, verdict=INCOMPATIBLE, stored=before, declared=now, reason=reason)
                del stored[name]
            else:
                yield from _each(
                    {name: stored.pop(name)} if name in stored else {},
                    {name: state.descriptor},
                    "Operator state",
                    label,
                )
        yield from _each(stored, {}, "Operator state", label)


def _each(stored: dict[str, StoredType], declared: dict[str, Any], what: str, label: str) -> Iterator[StateVerdict]:
    for name in dict.fromkeys([*declared, *stored]):
        before = stored.get(name)
        if name not in declared:
            yield StateVerdict(name=name, verdict=UNUSED, stored=before.schema if before is not None else None)
            continue
        schema = declared[name].schema()
        if before is None:
            yield StateVerdict(name=name, verdict=EMPTY, stored=None, declared=schema)
            continue
        try:
            migrations_to(before, declared[name], f"{what} '{name}' of {label}")
        except PenstockError as error:
            yield StateVerdict(
                name=name, verdict=INCOMPATIBLE, stored=before.schema, declared=schema, reason=str(error)
            )
        else:
            yield StateVerdict(name=name, verdict=RESTORED, stored=before.schema, declared=schema)


def _gone(graph: PhysicalGraph, metadata: Metadata) -> Iterator[OperatorVerdict]:
    """Return the savepoint's operators that the program does not have."""
    uids = graph.chains_by_uid().keys()
    for uid, saved in metadata.operators.items():
        if uid not in uids and saved.has_state:
            types = stored_types(saved.snapshot) | {
                name: StoredType(shares.schema) for name, shares in saved.snapshot.operator_state.items()
            }
            states = [StateVerdict(name=name, verdict=DROPPED, stored=kind.schema) for name, kind in types.items()]
            yield OperatorVerdict(uid=uid, name=saved.snapshot.name, verdict=DROPPED, states=states)


def _sources(graph: PhysicalGraph, metadata: Metadata) -> Iterator[SourceVerdict]:
    positions = {uid: [line.position for line in lines] for uid, lines in metadata.positions.lines.items()}
    known = set()
    for chain in graph.sources():
        uid = chain.source_uid or ""
        known.add(uid)
        saved = metadata.sources.get(uid)
        if saved is None:
            yield SourceVerdict(uid=uid, name=chain.source_name, verdict=EMPTY)
            continue
        of_its_kind = not saved.records or (saved.reader, saved.copied) == (chain.reader, chain.copied)
        verdict = RESTORED if of_its_kind else INCOMPATIBLE
        yield SourceVerdict(
            uid=uid, name=chain.source_name, verdict=verdict, records=saved.records, positions=positions.get(uid, [])
        )
    for uid, saved in metadata.sources.items():
        if uid not in known and (saved.records or positions.get(uid)):
            yield SourceVerdict(
                uid=uid, name=saved.name, verdict=DROPPED, records=saved.records, positions=positions.get(uid, [])
            )
