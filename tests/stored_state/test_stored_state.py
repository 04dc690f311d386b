"""Checkpoints and savepoints of earlier Penstock versions are restored completely.

`record_stored_state.py` recorded the data, and describes how a later version adds its own.
"""

import shutil
from dataclasses import asdict
from pathlib import Path

import pytest
from stored_state_jobs import HOUR, START, OrderV3, ReorderedStatus, SinkCalls, deliveries, states, totals

from penstock.datastream import StreamExecutionEnvironment
from penstock.state.local_storage import LocalStorage
from penstock.tables import Checkpoint, Savepoint
from penstock.testing import JobHarness

DATA = Path(__file__).parents[1] / "data" / "stored_state"
RECORDED = sorted(path.name for path in DATA.iterdir())
LAST_CLOCK = START + HOUR // 3
"""The clock of the last recorded epoch."""


@pytest.fixture(params=RECORDED)
def recorded(request, tmp_path):
    """A copy of one version's data, because a job modifies its checkpoint directory."""
    return Path(shutil.copytree(DATA / request.param, tmp_path / "recorded"))


@pytest.fixture(
    params=[
        ("checkpoint", "memory", 2),
        ("checkpoint", "filesystem", 3),
        ("checkpoint", "rocksdb", 1),
        ("savepoint", "memory", 2),
        ("savepoint", "filesystem", 1),
        ("savepoint", "rocksdb", 3),
    ],
    ids=lambda of: "-".join(map(str, of)),
)
def restored(request, recorded):
    """The job with every kind of state, restored with a backend and parallelism, at the clock of its last epoch."""
    kind, backend, parallelism = request.param
    if kind == "checkpoint":
        origin = {"storage": LocalStorage(recorded / "states" / "checkpoints")}
    else:
        origin = {"from_savepoint": str(recorded / "states" / "savepoint")}
    with JobHarness(states(OrderV3), backend=backend, parallelism=parallelism, max_parallelism=4, **origin) as job:
        yield job.set_clock(LAST_CLOCK)


CLOCK = "clock"
"""A key whose records only advance event time."""


def move_event_time(job, time):
    job.push((CLOCK, 0, time), source="events").epoch()


def results(job, tag):
    return [each[1:] for each in job.output if each[0] == tag and each[1] != CLOCK]


def first_version(number):
    """Return an order stored before it had tags, and before its price was renamed to amount."""
    return OrderV3(10.0 * number, number, ReorderedStatus.PAID, ["second version"])


def second_version(number):
    return OrderV3(10.0 * number, number, ReorderedStatus.OPEN, [f"t{number}"])


def third_version(number):
    return OrderV3(10.5 * number, number, ReorderedStatus.PAID, [])


ORDERS = {
    "a": [first_version(1), first_version(3), third_version(8)],
    "b": [first_version(2), second_version(4)],
    "c": [second_version(5), second_version(6)],
    "d": [third_version(7)],
}


def test_every_kind_of_stored_keyed_state_is_restored(restored):
    read = {name: restored.states(name, operator="keep") for name in KEYED}
    assert read == KEYED


def untyped(number):
    return {"number": number, "as set": {number}, "pair": (number, None)}


K = frozenset({"k"})
KEYED = {
    "value": {"a": 12, "b": 6, "c": 11, "d": 7},
    "list": {"a": [1, 3, 8], "b": [2, 4], "c": [5, 6], "d": [7]},
    "map": {
        "a": {"modulo 1": 3, "modulo 0": 8},
        "b": {"modulo 0": 4},
        "c": {"modulo 1": 5, "modulo 0": 6},
        "d": {"modulo 1": 7},
    },
    "untyped keys": {
        "a": {(0, K): 3, (1, K): 1, (2, K): 8},
        "b": {(1, K): 4, (2, K): 2},
        "c": {(0, K): 6, (2, K): 5},
        "d": {(1, K): 7},
    },
    "untyped": {"a": untyped(8), "b": untyped(4), "c": untyped(6), "d": untyped(7)},
    "reducing": {"a": 8, "b": 4, "c": 6, "d": 7},
    "aggregating": {"a": 4.0, "b": 3.0, "c": 5.5, "d": 7.0},
    "value with TTL": {"a": 8, "b": 4, "c": 6, "d": 7},
    "list with TTL": {"a": [1, 3, 8], "b": [2, 4], "c": [5, 6], "d": [7]},
    "map with TTL": {
        "a": {"modulo 1": 3, "modulo 0": 8},
        "b": {"modulo 0": 4},
        "c": {"modulo 1": 5, "modulo 0": 6},
        "d": {"modulo 1": 7},
    },
    "order": {key: orders[-1] for key, orders in ORDERS.items()},
    "orders": ORDERS,
}


def test_stored_operator_state_is_distributed_over_the_subtasks(restored):
    restored.epoch()
    for name in ("operator list", "union list"):
        shares = restored.operator_state(name, operator="of subtask")
        assert sorted(number for share in shares for number in share) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert {"format": 1} in restored.operator_state("broadcast", operator="of subtask")
    limits = restored.operator_state("limits", operator="limited")
    assert limits == [{"a": 4, "b": 100}] * len(limits)
    assert restored.states("passed", operator="limited") == {"a": 2, "b": 2}


def test_restored_state_can_be_changed(restored):
    restored.push(("a", 9, 59_000), ("b", 11, 59_000), ("e", 2, 59_000), source="events").epoch()
    assert sorted(results(restored, "kept")) == [("a", 9, 21), ("b", 11, 17), ("e", 2, 2)]
    assert restored.state("list", "a", operator="keep") == [1, 3, 8, 9]
    # An untyped map key is looked up by the bytes of its pickle, which must not have changed.
    assert restored.state("untyped keys", "a", operator="keep") == {(0, K): 9, (1, K): 1, (2, K): 8}
    assert restored.state("aggregating", "b", operator="keep") == pytest.approx(17 / 3)
    assert restored.state("orders", "b", operator="keep") == [*ORDERS["b"], third_version(11)]
    assert results(restored, "within limit") == [("b", 11, 3)]
    assert results(restored, "counted") == [("a", [1, 3, 8, 9])]
    restored.crash()
    assert restored.state("orders", "b", operator="keep") == [*ORDERS["b"], third_version(11)]


def test_stored_state_expires_by_its_stored_access_times(restored):
    restored.set_clock(START + HOUR + 1)
    restored.epoch()
    assert restored.states("list with TTL", operator="keep") == {"a": [8], "b": [4], "c": [5, 6], "d": [7]}
    assert restored.states("map with TTL", operator="keep")["a"] == {"modulo 0": 8}
    restored.set_clock(START + HOUR + HOUR // 3 + 1)
    restored.epoch()
    assert restored.states("value with TTL", operator="keep") == {}
    assert restored.states("value", operator="keep") == KEYED["value"]


def test_stored_timers_fire_once_on_time(restored):
    for parts in (2, 3, 4, 5):
        restored.set_clock(START + HOUR * parts // 6)
    move_event_time(restored, 110_000)
    assert {time for _, kind, time, _ in results(restored, "timer") if kind == "EVENT_TIME"} == {61_000, 100_000}
    move_event_time(restored, 200_000)
    restored.set_clock(START + 2 * HOUR)
    half, three_quarters = START + HOUR // 2, START + HOUR // 4 + HOUR // 2
    assert sorted(results(restored, "timer")) == [
        ("a", "EVENT_TIME", 61_000, 12),
        ("a", "EVENT_TIME", 100_000, 12),
        ("a", "EVENT_TIME", 118_000, 12),
        ("a", "PROCESSING_TIME", half, 12),
        ("a", "PROCESSING_TIME", LAST_CLOCK + HOUR // 2, 12),
        ("b", "EVENT_TIME", 61_000, 6),
        ("b", "EVENT_TIME", 110_000, 6),
        ("b", "PROCESSING_TIME", half, 6),
        ("b", "PROCESSING_TIME", three_quarters, 6),
        ("c", "EVENT_TIME", 110_000, 11),
        ("c", "EVENT_TIME", 115_000, 11),
        ("c", "PROCESSING_TIME", three_quarters, 11),
        ("d", "EVENT_TIME", 118_000, 7),
        ("d", "PROCESSING_TIME", LAST_CLOCK + HOUR // 2, 7),
    ]
    assert [timer for timer in restored.timers("keep") if timer[1] != CLOCK] == []


def test_stored_windows_fire_with_old_and_new_records_in_order(restored):
    restored.push(("a", 9, 59_000), source="events").epoch()
    assert results(restored, "tumbling") == []
    assert results(restored, "session") == []
    move_event_time(restored, 60_000)
    assert sorted(results(restored, "tumbling")) == [(6,), (7,), (11,), (21,)]
    move_event_time(restored, 200_000)
    assert sorted(results(restored, "session")) == [
        ("a", 40_000, [3, 8, 9]),
        ("b", 50_000, [4]),
        ("c", 50_000, [5, 6]),
        ("d", 58_000, [7]),
    ]


def test_event_time_continues_from_the_stored_watermarks(restored):
    assert {uid: restored.watermark_of(uid) for uid in ("keep", "tumbling", "joined")} == {
        "keep": 57_999,
        "tumbling": 57_999,
        "joined": 57_999,
    }
    # The window of this record is still open, but a session at its time would be over, so it is late there.
    restored.push(("b", 30, 10_000), source="events").epoch()
    move_event_time(restored, 200_000)
    assert sorted(results(restored, "tumbling")) == [(7,), (11,), (12,), (36,)]
    assert [session for session in results(restored, "session") if session[0] == "b"] == [("b", 50_000, [4])]


def test_stored_records_are_joined_with_new_ones(restored):
    restored.push(("b", 71, 58_000), ("d", 72, 60_000), source="others").epoch()
    restored.push(("c", 13, 70_000), source="events").epoch()
    assert sorted(results(restored, "joined")) == [("b", 4, 71), ("c", 13, 60), ("d", 7, 72)]


def test_sinks_commit_epochs_that_were_published_but_not_committed(recorded):
    calls = SinkCalls()
    storage = LocalStorage(recorded / "deliveries" / "uncommitted")
    with JobHarness(deliveries(calls), storage=storage, parallelism=2, max_parallelism=4) as job:
        assert sorted(calls.calls, key=repr) == [
            # Epoch 1 was rejected and waits in the lineage; epoch 2 is in the write-ahead log.
            ("letters", 1, [1, 3, 5, 7]),
            ("letters", 1, [2, 4, 6]),
            ("letters", 2, [8, 10, 12, 14]),
            ("letters", 2, [9, 11, 13, 15]),
            ("page", 2, 0, [[7, 8, 10]], True),
            ("page", 2, 1, [[9, 11, 13]], True),
            ("recovered", "0-2"),
            ("recovered", "1-2"),
        ]
        calls.calls.clear()
        assert job.operator_state("writers", operator="pages") == [[b"[12]", b"[14]"], [b"[15]"]]
        job.set_clock(START).push(16, 17).epoch()
        assert sorted(calls.calls, key=repr) == [
            ("committed", "0-1"),
            ("committed", "1-1"),
            ("letters", 3, [16]),
            ("letters", 3, [17]),
            ("page", 3, 0, [[12, 14, 16]], False),
        ]


def test_a_source_continues_at_its_stored_offsets(recorded):
    env = StreamExecutionEnvironment.get_execution_environment()
    with JobHarness(totals(env), from_savepoint=str(recorded / "positions"), max_parallelism=4) as job:
        assert job.states("numbers") == {0: [0, 3, 6, 9], 1: [4, 1, 10, 7], 2: [2, 5, 8, 11]}
        job.run()
        assert sorted(number for _, number, _ in job.output) == list(range(12, 60))
        sums = {key: sum(range(key, 60, 3)) for key in range(3)}
        assert job.states("total") == sums
        assert {key: sum(numbers) for key, numbers in job.states("numbers").items()} == sums


@pytest.mark.parametrize(("kind", "directory"), [(Checkpoint, "checkpoints"), (Savepoint, "savepoint")])
def test_stored_state_can_be_read_as_tables(recorded, kind, directory):
    stored = kind.load(recorded / "states" / directory)
    assert {row["key"]: row["value"] for row in stored.state("keep", "value").rows()} == KEYED["value"]
    orders = {(row["key"], row["index"]): row["value"] for row in stored.state("keep", "orders").rows()}
    assert orders == {
        (key, index): asdict(order) | {"status": order.status.name}
        for key, all_of in ORDERS.items()
        for index, order in enumerate(all_of)
    }


def test_the_recorded_data_contains_no_local_paths():
    paths = (b"/tmp", b"/home", b"/root", b"/work", b"/usr")
    files = [path for path in DATA.rglob("*") if path.is_file()]
    assert files
    assert [path for path in files if any(each in path.read_bytes() for each in paths)] == []
