"""Totals of reports: what they count and keep, and that the order of arrival does not matter."""

from itertools import permutations
from types import SimpleNamespace

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from penstock.checkpoint.manifest import Committable, OperatorSnapshot
from penstock.driver.report_totals import ReportTotals, totals_of
from penstock.driver.snapshots import operator_snapshots
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
    assert [(part.subtask, part.bytes, part.entries) for part in totals.operators["count"].parts] == [
        (0, 100, 10),
        (1, 90, 9),
        (2, 0, 0),
    ]
    assert totals.timers_of("count") == {"EVENT_TIME": {0: 10, 2: 40}, "PROCESSING_TIME": {3: 1}}
    assert totals.timers_of("other") == {}
    assert totals.watermarks == {1: {"count": {0: 5, 1: 9}}}
    assert totals.splits == {1: {"count": {"a": 7, "b": 5, "": 9}}}
    assert totals.records_in == {1: 30}
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


def test_a_split_that_several_tasks_read_has_the_lowest_of_their_watermarks() -> None:
    marks = [{"a": 7, "b": 5}, {"a": 6, "c": 1}, {"a": 8}]
    totals = totals_of(report(number, [], {}, each) for number, each in enumerate(marks))
    assert totals.splits == {1: {"count": {"a": 6, "b": 5, "c": 1}}}


def test_committables_come_in_the_order_of_subtasks_and_operators() -> None:
    def writes(chain, subtask):
        operators = [OperatorReport(uid=f"{chain}-{n}", states={}, deltas=[], committable=b"x") for n in (1, 0)]
        return Report(chain=chain, subtask=subtask, epoch=1, records_in=0, sent=[], received=[], operators=operators)

    totals = totals_of([writes(3, 1), writes(2, 1), writes(3, 0), writes(2, 0)])
    assert totals.committables() == [
        Committable(uid=uid, subtask=subtask, payload=b"x")
        for subtask, uid in [
            (0, "2-1"),
            (0, "2-0"),
            (1, "2-1"),
            (1, "2-0"),
            (0, "3-1"),
            (0, "3-0"),
            (1, "3-1"),
            (1, "3-0"),
        ]
    ]


names = st.sampled_from(["a", "b", "c"])
schemas = st.dictionaries(names, st.sampled_from(["long 1", "long 2", "long 3"]))
parts = st.builds(
    OperatorReport,
    uid=st.just("count"),
    states=schemas,
    deltas=st.just([]),
    ttl=st.dictionaries(names, st.sampled_from(["one", "two"])),
    migrations=st.dictionaries(names, st.sampled_from([(b"1",), (b"2",)])),
)


def _all_in_order(reports: list[OperatorReport], before: OperatorSnapshot | None) -> tuple[list[object], ...]:
    """Take over the states of one subtask after the other."""
    states, ttl, migrations = {}, {}, {}
    for part in reports:
        if part.states or part.deltas:
            for name, schema in part.states.items():
                if name not in states or before is None or schema != before.states.get(name):
                    states[name] = schema
                    if name in part.migrations:
                        migrations[name] = part.migrations[name]
            ttl |= part.ttl
    return [*states.items()], ttl, migrations


@given(
    st.lists(parts, min_size=1, max_size=3), st.lists(st.integers(0, 2), max_size=9), schemas, st.booleans(), st.data()
)
def test_states_are_those_of_all_subtasks_in_order(kinds, used, stored, is_first, data) -> None:
    reports = []
    for subtask, kind in enumerate(used):
        part = kinds[kind % len(kinds)]
        if data.draw(st.booleans()):
            part = msgspec.structs.replace(part, deltas=[delta(subtask + 1, [0])])
        if data.draw(st.booleans()):
            part = msgspec.structs.replace(part, states=dict(reversed(part.states.items())))
        reports.append(part)
    snapshot = OperatorSnapshot(name="", parallelism=9, max_parallelism=128, states=stored, deltas=[])
    before = None if is_first else SimpleNamespace(operators={"count": snapshot})
    empty = {"chain": 0, "epoch": 1, "records_in": 0, "sent": [], "received": []}
    arriving = data.draw(st.permutations(range(len(reports))))
    totals = totals_of(Report(subtask=each, operators=[reports[each]], **empty) for each in arriving)
    graph = SimpleNamespace(chains=[SimpleNamespace(parallelism=9, max_parallelism=128)])
    made = operator_snapshots(before, graph, {"count": "count"}, lambda uid: "", totals)
    if not any(each.states or each.deltas for each in reports):
        assert made == {}
        return
    found = made["count"]
    expected = _all_in_order(reports, None if is_first else snapshot)
    assert ([*found.states.items()], found.ttl, found.migrations) == expected
    assert [each.size for each in found.deltas] == [each.size for part in reports for each in part.deltas]
