"""What the reports of an attempt at an epoch add up to.

Each report is counted when it arrives, and only the parts that the manifest contains are kept. Thousands of reports do
not fit into the caches of a processor, so to keep and visit them costs more per report, the larger the job is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from penstock.checkpoint.manifest import Committable
from penstock.runtime.report import DeltaHandle, EdgeTotals, OperatorReport, Report
from penstock.state.shares import Share


class OperatorPart(msgspec.Struct, frozen=True, gc=False):
    """The deltas of one subtask of an operator."""

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


class _Declaration:
    """States, and what belongs to them, that some subtasks of an operator report alike."""

    __slots__ = ("first", "last", "part")

    def __init__(self, part: OperatorReport, subtask: int) -> None:
        self.part = part
        """The report of the lowest of these subtasks."""
        self.first = self.last = subtask
        """The lowest and the highest of these subtasks."""

    def made_by(self, part: OperatorReport) -> bool:
        mine = self.part
        return (
            mine.states == part.states
            and mine.ttl == part.ttl
            and mine.migrations == part.migrations
            and mine.queryable == part.queryable
            and mine.unused == part.unused
        )


class OperatorTotals:
    """What the subtasks of one operator have reported."""

    __slots__ = ("_declarations", "_newest", "by_block", "chain", "deltas", "parts", "position", "shares", "timers")

    def __init__(self, chain: int, position: int) -> None:
        self.chain = chain
        self.position = position
        """Within the reports of its chain."""
        self.parts: list[OperatorPart] = []
        """In the order of arrival."""
        self.deltas: dict[int, list[DeltaHandle]] = {}
        """By subtask."""
        self.by_block: dict[int, int] = {}
        """Bytes of deltas. A delta over several blocks is split evenly."""
        self.timers: dict[str, dict[int, int]] = {}
        """The time of the earliest timer, by kind and block."""
        self.shares: dict[int, dict[str, Share]] = {}
        """Operator state, by subtask."""
        self._declarations: dict[Any, _Declaration] = {}
        self._newest: _Declaration | None = None

    def declare(self, part: OperatorReport, subtask: int) -> None:
        """Note the states of a subtask. Most subtasks report the same."""
        newest = self._newest
        if newest is None or not newest.made_by(part):
            declared = (part.states, part.ttl, part.migrations, part.queryable)
            key = *(tuple(each.items()) for each in declared), tuple(part.unused)
            newest = self._newest = self._declarations.setdefault(key, _Declaration(part, subtask))
        if subtask < newest.first:
            newest.first, newest.part = subtask, part
        elif subtask > newest.last:
            newest.last = subtask

    def declared(self) -> list[OperatorReport]:
        """Return reports in the order of subtasks, without those that lie between two that report the same states.

        Taking over the states of one after the other has the same result as with all reports.
        """
        found = [
            (subtask, each.part) for each in self._declarations.values() for subtask in sorted({each.first, each.last})
        ]
        return [part for _, part in sorted(found, key=lambda each: each[0])]

    def in_order(self) -> Iterator[DeltaHandle]:
        """Yield the deltas in the order of subtasks."""
        for subtask in sorted(self.deltas):
            yield from self.deltas[subtask]


class ReportTotals:
    """Sums over the reports so far, and the parts of them that the manifest contains. Count each report once."""

    def __init__(self) -> None:
        self.delta_bytes = self.delta_entries = 0
        self.state_bytes = 0
        """Bytes of state that the tasks wrote: changes of keyed state, and complete operator state."""
        self.operators: dict[str, OperatorTotals] = {}
        self.records_in: dict[int, int] = {}
        """By chain."""
        self.by_task: dict[int, dict[int, int]] = {}
        """Bytes of state, by chain and subtask."""
        self.watermarks: dict[int, dict[str, dict[int, int]]] = {}
        """The lowest watermark of all splits, by chain, operator and task."""
        self.splits: dict[int, dict[str, dict[str, int]]] = {}
        """The lowest watermark of all tasks, by chain, operator and split."""
        self.idle: dict[str, set[int]] = {}
        """Idle subtasks, by operator."""
        self.active: dict[str, set[int]] = {}
        """Subtasks with records, by operator that generates watermarks behind an exchange."""
        self.shown: dict[str, int] = {}
        """The highest watermark that functions have seen, by generator in a source's chain."""
        self.sent, self.received = EdgeSums(), EdgeSums()
        self._committables: list[tuple[int, int, int, Committable]] = []
        """With chain, subtask and position."""

    def add(self, report: Report) -> None:
        """Count a report."""
        chain, subtask = report.chain, report.subtask
        self.sent.add(report.sent)
        self.received.add(report.received)
        self.records_in[chain] = self.records_in.get(chain, 0) + report.records_in
        if report.watermarks:
            self._add_times(report)
        written = 0
        for position, part in enumerate(report.operators):
            operator = self.operators.get(part.uid)
            if operator is None:
                operator = self.operators[part.uid] = OperatorTotals(chain, position)
            size = entries = 0
            if part.deltas:
                operator.deltas[subtask] = part.deltas
                by_block = operator.by_block
                for delta in part.deltas:
                    size += delta.size
                    entries += delta.entries
                    if delta.blocks:
                        share = -(-delta.size // len(delta.blocks))
                        for block in delta.blocks:
                            by_block[block] = by_block.get(block, 0) + share
            for kind, least in part.timers.items():
                earliest = operator.timers.setdefault(kind, {})
                for block, time in least.items():
                    # Two subtasks can share a block.
                    earliest[block] = min(time, earliest.get(block, time))
            written += size
            if part.operator_state:
                operator.shares[subtask] = part.operator_state
                for state in part.operator_state.values():
                    written += sum(map(len, state.elements))
            if part.states or part.deltas or part.operator_state or part.timers:
                operator.declare(part, subtask)
            if part.committable is not None:
                committable = Committable(uid=part.uid, subtask=subtask, payload=part.committable)
                self._committables.append((chain, subtask, position, committable))
            operator.parts.append(OperatorPart(subtask, size, entries))
            self.delta_bytes += size
            self.delta_entries += entries
        self.state_bytes += written
        tasks = self.by_task.setdefault(chain, {})
        tasks[subtask] = tasks.get(subtask, 0) + written

    def _add_times(self, report: Report) -> None:
        subtask = report.subtask
        watermarks = self.watermarks.setdefault(report.chain, {})
        splits = self.splits.setdefault(report.chain, {})
        for uid, by_split in report.watermarks.items():
            if not by_split:
                continue
            if uid not in watermarks:
                watermarks[uid], splits[uid] = {}, {}
            watermarks[uid][subtask] = min(by_split.values())
            lowest = splits[uid]
            for split, watermark in by_split.items():
                lowest[split] = min(watermark, lowest.get(split, watermark))
        for uid in report.idle:
            self.idle.setdefault(uid, set()).add(subtask)
        for uid in report.active:
            self.active.setdefault(uid, set()).add(subtask)
        for uid, watermark in report.shown.items():
            self.shown[uid] = max(watermark, self.shown.get(uid, watermark))

    def in_order(self) -> list[tuple[str, OperatorTotals]]:
        """Return the operators in the order of the job."""
        return sorted(self.operators.items(), key=lambda each: (each[1].chain, each[1].position))

    def committables(self) -> list[Committable]:
        """Return the committables in subtask order, independent of the order of the reports."""
        return [committable for *_, committable in sorted(self._committables, key=lambda each: each[:3])]

    def timers_of(self, uid: str) -> dict[str, dict[int, int]]:
        """Return the time of the earliest timer by kind and block. Their order does not depend on the arrival."""
        operator = self.operators.get(uid)
        timers = {} if operator is None else operator.timers
        return {kind: dict(sorted(least.items())) for kind, least in sorted(timers.items())}

    def add_to(self, since_base: dict[str, dict[int, int]]) -> None:
        """Add the bytes of deltas by operator and block. The order of the result does not depend on the arrival."""
        for uid, operator in sorted(self.operators.items()):
            if operator.by_block:
                since = since_base.setdefault(uid, {})
                for block, size in sorted(operator.by_block.items()):
                    since[block] = since.get(block, 0) + size


def totals_of(reports: Iterable[Report]) -> ReportTotals:
    """Return the totals of these reports."""
    totals = ReportTotals()
    for report in reports:
        totals.add(report)
    return totals
