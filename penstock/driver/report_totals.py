"""What the reports of an attempt at an epoch add up to.

Each report is counted when it arrives. Thousands of them do not fit into the caches of a processor, so each later visit
to all of them costs more per report, the larger the job is.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from penstock.runtime.report import EdgeTotals, Report


class OperatorPart(msgspec.Struct, frozen=True, gc=False):
    """The deltas of one subtask of an operator."""

    chain: int
    subtask: int
    bytes: int
    entries: int


class EdgeSums:
    """The channels of each edge over the reports so far."""

    def __init__(self) -> None:
        self._sums: dict[int, list[int]] = {}

    def add(self, totals: list[EdgeTotals]) -> None:
        """Count the edges of a task."""
        for each in totals:
            sums = self._sums.get(each.edge)
            if sums is None:
                sums = self._sums[each.edge] = [0, 0, 0, 0]
            sums[0] += each.channels
            sums[1] += each.buffers
            sums[2] += each.records
            sums[3] += each.fingerprint

    def totals(self) -> dict[int, EdgeTotals]:
        """Return the sums by edge."""
        return {
            edge: EdgeTotals(
                edge=edge,
                channels=channels,
                buffers=buffers,
                records=records,
                fingerprint=fingerprint & 0xFFFF_FFFF_FFFF_FFFF,
            )
            for edge, (channels, buffers, records, fingerprint) in self._sums.items()
        }


class ReportTotals:
    """Sums over the reports so far. Count each report once."""

    def __init__(self) -> None:
        self.delta_bytes = self.delta_entries = 0
        self.state_bytes = 0
        """Bytes of state that the tasks wrote: changes of keyed state, and complete operator state."""
        self.by_block: dict[str, dict[int, int]] = {}
        """Bytes of deltas, by operator and block. A delta over several blocks is split evenly."""
        self.by_operator: dict[str, list[OperatorPart]] = {}
        """In the order of arrival."""
        self.by_task: dict[int, dict[int, int]] = {}
        """Bytes of state, by chain and subtask."""
        self.timers: dict[str, dict[str, dict[int, int]]] = {}
        """The time of the earliest timer, by operator, kind and block."""
        self.watermarks: dict[int, dict[str, dict[int, int]]] = {}
        """The lowest watermark of all splits, by chain, operator and task."""
        self.sent, self.received = EdgeSums(), EdgeSums()

    def add(self, report: Report) -> None:
        """Count a report."""
        self.sent.add(report.sent)
        self.received.add(report.received)
        if report.watermarks:
            watermarks = self.watermarks.setdefault(report.chain, {})
            for uid, by_split in report.watermarks.items():
                if by_split:
                    watermarks.setdefault(uid, {})[report.subtask] = min(by_split.values())
        written = 0
        for part in report.operators:
            size = entries = 0
            for delta in part.deltas:
                size += delta.size
                entries += delta.entries
                if delta.blocks:
                    share = -(-delta.size // len(delta.blocks))
                    sizes = self.by_block.setdefault(part.uid, {})
                    for block in delta.blocks:
                        sizes[block] = sizes.get(block, 0) + share
            for kind, least in part.timers.items():
                first = self.timers.setdefault(part.uid, {}).setdefault(kind, {})
                for block, time in least.items():
                    # Two subtasks can share a block.
                    first[block] = min(time, first.get(block, time))
            self.by_operator.setdefault(part.uid, []).append(OperatorPart(report.chain, report.subtask, size, entries))
            self.delta_bytes += size
            self.delta_entries += entries
            written += size
            for state in part.operator_state.values():
                written += sum(map(len, state.elements))
        self.state_bytes += written
        tasks = self.by_task.setdefault(report.chain, {})
        tasks[report.subtask] = tasks.get(report.subtask, 0) + written

    def timers_of(self, uid: str) -> dict[str, dict[int, int]]:
        """Return the time of the earliest timer by kind and block. Their order does not depend on the arrival."""
        return {kind: dict(sorted(least.items())) for kind, least in sorted(self.timers.get(uid, {}).items())}

    def add_to(self, since_base: dict[str, dict[int, int]]) -> None:
        """Add the bytes of deltas by operator and block. The order of the result does not depend on the arrival."""
        for uid, sizes in sorted(self.by_block.items()):
            since = since_base.setdefault(uid, {})
            for block, size in sorted(sizes.items()):
                since[block] = since.get(block, 0) + size


def totals_of(reports: Iterable[Report]) -> ReportTotals:
    """Return the totals of these reports."""
    totals = ReportTotals()
    for report in reports:
        totals.add(report)
    return totals
