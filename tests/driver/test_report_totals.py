"""Totals of reports: what they count, and that the order of arrival does not matter."""

from itertools import permutations

from penstock.driver.report_totals import ReportTotals, totals_of
from penstock.runtime.report import DeltaHandle, EdgeTotals, OperatorReport, Report
from penstock.state.shares import SPLIT, Share


def delta(size, blocks):
    return DeltaHandle(name=f"deltas/{size}", size=size, entries=size // 10, blocks=blocks)


def report(subtask, deltas, timers, marks, elements=()):
    share = Share(mode=SPLIT, schema="value bytes", elements=list(elements))
    operator = OperatorReport(
        uid="count",
        states={"n": "value long"},
        deltas=deltas,
        timers=timers,
        operator_state={"writer": share} if elements else {},
    )
    edge = EdgeTotals(edge=0, channels=2, buffers=subtask + 1, records=10, fingerprint=(1 << 63) + subtask)
    return Report(
        chain=1,
        subtask=subtask,
        epoch=1,
        records_in=10,
        sent=[],
        received=[edge],
        operators=[operator],
        watermarks={"count": marks},
    )


REPORTS = [
    report(0, [delta(100, [0, 1, 2])], {"EVENT_TIME": {2: 50, 0: 10}}, {"a": 7, "b": 5}),
    report(1, [delta(90, [2, 3])], {"EVENT_TIME": {2: 40}, "PROCESSING_TIME": {3: 1}}, {"": 9}, [b"abc", b"de"]),
    report(2, [], {}, {}),
]


def flat(by_uid):
    """Return nested dictionaries as lists, whose order counts."""
    return [(uid, list(cells.items())) for uid, cells in by_uid.items()]


def test_totals_count_deltas_state_timers_watermarks_and_channels() -> None:
    totals = totals_of(REPORTS)
    assert (totals.delta_bytes, totals.delta_entries, totals.state_bytes) == (190, 19, 195)
    assert totals.by_task == {1: {0: 100, 1: 95, 2: 0}}
    assert [(part.subtask, part.bytes, part.entries) for part in totals.by_operator["count"]] == [
        (0, 100, 10),
        (1, 90, 9),
        (2, 0, 0),
    ]
    assert totals.timers_of("count") == {"EVENT_TIME": {0: 10, 2: 40}, "PROCESSING_TIME": {3: 1}}
    assert totals.timers_of("other") == {}
    assert totals.watermarks == {1: {"count": {0: 5, 1: 9}}}
    assert totals.sent.totals() == {}
    assert totals.received.totals() == {
        0: EdgeTotals(edge=0, channels=6, buffers=6, records=30, fingerprint=(1 << 63) + 3)
    }


def test_the_order_of_arrival_does_not_matter() -> None:
    def in_manifest(totals: ReportTotals) -> list[object]:
        since: dict[str, dict[int, int]] = {"count": {1: 1000}}
        totals.add_to(since)
        return [flat(since), flat(totals.timers_of("count"))]

    expected = in_manifest(totals_of(REPORTS))
    assert expected[0] == [("count", [(1, 1034), (0, 34), (2, 79), (3, 45)])]
    for reports in permutations(REPORTS):
        assert in_manifest(totals_of(reports)) == expected
