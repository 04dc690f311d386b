"""Combines the reports of an epoch's tasks by operator, for its manifest."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from penstock.checkpoint.manifest import Manifest, OperatorSnapshot
from penstock.checkpoint.redistribution import add_report, stored_once
from penstock.driver.report_totals import ReportTotals
from penstock.graph.physical import PhysicalGraph
from penstock.runtime.report import OperatorReport
from penstock.state.shares import Shares


def records_by_source(graph: PhysicalGraph, totals: ReportTotals) -> dict[str, int]:
    """Return the records of an epoch, by source."""
    return {
        chain.source_uid: totals.records_in[chain.id]
        for chain in graph.sources()
        if chain.source_uid is not None and chain.id in totals.records_in
    }


def records_since(last: Manifest | None, graph: PhysicalGraph, totals: ReportTotals) -> dict[str, int]:
    """Return the total records of each source, including this epoch."""
    records = {} if last is None else dict(last.records)
    for uid, count in records_by_source(graph, totals).items():
        records[uid] = records.get(uid, 0) + count
    return records


def operator_snapshots(
    last: Manifest | None,
    graph: PhysicalGraph,
    names: Mapping[str, str],
    key_type_of: Callable[[str], str],
    totals: ReportTotals,
) -> dict[str, OperatorSnapshot]:
    """Return the snapshots of operators with state, by uid. The same epoch always produces the same manifest.

    `names` maps uids to names; `totals` are those of the epoch's reports.
    """
    snapshots: dict[str, OperatorSnapshot] = {}
    for uid, operator in totals.in_order():
        declared = operator.declared()
        if not declared:
            continue
        chain = graph.chains[operator.chain]
        snapshot = OperatorSnapshot(
            name=names[uid],
            parallelism=chain.parallelism,
            max_parallelism=chain.max_parallelism,
            states={},
            deltas=list(operator.in_order()),
            timers=totals.timers_of(uid),
            ttl={},
            migrations={},
            key_type=key_type_of(uid),
        )
        for part in declared:
            _add_states(snapshot, part, None if last is None else last.operators.get(uid))
        shares: dict[str, Shares] = {}
        for subtask in sorted(operator.shares):
            add_report(shares, operator.shares[subtask], subtask, chain.parallelism)
        snapshots[uid] = msgspec.structs.replace(snapshot, operator_state=stored_once(shares))
    return snapshots


def _add_states(snapshot: OperatorSnapshot, part: OperatorReport, before: OperatorSnapshot | None) -> None:
    for name, schema in part.states.items():
        # A subtask that has not accessed a state yet reports its previous schema.
        if name not in snapshot.states or before is None or schema != before.states.get(name):
            snapshot.states[name] = schema
            snapshot.migrations.update({name: part.migrations[name]} if name in part.migrations else {})
    snapshot.ttl.update(part.ttl)
