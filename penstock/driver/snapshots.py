"""Combines the reports of an epoch's tasks by operator, for its manifest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from penstock.checkpoint.manifest import Manifest, OperatorSnapshot
from penstock.checkpoint.redistribution import add_report, stored_once
from penstock.driver.report_totals import ReportTotals
from penstock.graph.physical import PhysicalGraph
from penstock.runtime.report import OperatorReport, Report


def in_order(reports: Iterable[Report]) -> list[Report]:
    """Sort reports, so that the same epoch always produces the same manifest."""
    return sorted(reports, key=lambda report: (report.chain, report.subtask))


def records_since(last: Manifest | None, graph: PhysicalGraph, reports: Iterable[Report]) -> dict[str, int]:
    """Return the total records of each source, including this epoch."""
    records = {} if last is None else dict(last.records)
    for report in reports:
        uid = graph.chains[report.chain].source_uid
        if uid is not None:
            records[uid] = records.get(uid, 0) + report.records_in
    return records


def operator_snapshots(
    last: Manifest | None,
    graph: PhysicalGraph,
    names: Mapping[str, str],
    key_type_of: Callable[[str], str],
    reports: Iterable[Report],
    totals: ReportTotals,
) -> dict[str, OperatorSnapshot]:
    """Return the snapshots of operators with state, by uid.

    `names` maps uids to names; `reports` are sorted, and `totals` are theirs.
    """
    snapshots: dict[str, OperatorSnapshot] = {}
    for report in reports:
        chain = graph.chains[report.chain]
        for part in report.operators:
            if not (part.states or part.deltas or part.operator_state or part.timers):
                continue
            snapshot = snapshots.get(part.uid)
            if snapshot is None:
                snapshot = snapshots[part.uid] = OperatorSnapshot(
                    name=names[part.uid],
                    parallelism=chain.parallelism,
                    max_parallelism=chain.max_parallelism,
                    states={},
                    deltas=[],
                    operator_state={},
                    timers=totals.timers_of(part.uid),
                    ttl={},
                    migrations={},
                    key_type=key_type_of(part.uid),
                )
            _add_states(snapshot, part, None if last is None else last.operators.get(part.uid))
            snapshot.deltas.extend(part.deltas)
            add_report(snapshot.operator_state, part.operator_state, report.subtask, chain.parallelism)
    return {
        uid: msgspec.structs.replace(snapshot, operator_state=stored_once(snapshot.operator_state))
        for uid, snapshot in snapshots.items()
    }


def _add_states(snapshot: OperatorSnapshot, part: OperatorReport, before: OperatorSnapshot | None) -> None:
    for name, schema in part.states.items():
        # A subtask that has not accessed a state yet reports its previous schema.
        if name not in snapshot.states or before is None or schema != before.states.get(name):
            snapshot.states[name] = schema
            snapshot.migrations.update({name: part.migrations[name]} if name in part.migrations else {})
    snapshot.ttl.update(part.ttl)
