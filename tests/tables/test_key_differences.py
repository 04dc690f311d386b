"""The keys that differ between two snapshots of a job, compared with the complete states."""

import pytest

from penstock.common.time import Time
from penstock.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from penstock.datastream.state import ListStateDescriptor, MapStateDescriptor, StateTtlConfig, ValueStateDescriptor
from penstock.state.local_storage import LocalStorage
from penstock.tables import Checkpoint, Savepoint
from penstock.tables.key_differences import CannotCompare, KeyDifference, key_differences
from penstock.testing import JobHarness


class Words(KeyedProcessFunction):
    """Stores (key, number) in several kinds of state, and clears the key for 0."""

    def open(self, runtime_context):
        self.last = runtime_context.get_state(ValueStateDescriptor("last", int))
        self.all = runtime_context.get_list_state(ListStateDescriptor("all", int))
        self.seen = runtime_context.get_map_state(MapStateDescriptor("seen", int, bool))
        timed = ValueStateDescriptor("timed", int)
        timed.enable_time_to_live(StateTtlConfig.new_builder(Time.hours(1)).build())
        self.timed = runtime_context.get_state(timed)

    def process_element(self, value, ctx):
        number = value[1]
        if number == 0:
            for each in (self.last, self.all, self.seen):
                each.clear()
            return
        self.last.update(number)
        self.all.add(number)
        self.seen.put(number, True)
        self.timed.update(1)
        ctx.timer_service().register_event_time_timer(1000 * number)


@pytest.fixture
def job(tmp_path):
    env = StreamExecutionEnvironment.get_execution_environment()
    pairs = env.from_collection([]).uid("pairs")
    words = pairs.key_by(lambda pair: pair[0]).process(Words()).name("words").uid("words")
    with JobHarness(words, parallelism=2, backend="filesystem", storage=LocalStorage(tmp_path / "cp")) as harness:
        yield harness


def two_savepoints(job, folder, first, second):
    job.set_clock(1000)
    job.push(*first).epoch()
    one = Savepoint.load(job.savepoint(folder / "one"))
    job.set_clock(2000)
    job.push(*second).epoch()
    return one, Savepoint.load(job.savepoint(folder / "two"))


def compared(one, other, state):
    return sorted(key_differences(one.state("words", state), other.state("words", state)), key=lambda each: each.key)


FIRST = [("a", 1), ("b", 2), ("c", 3)]
SECOND = [("a", 5), ("b", 0), ("d", 4)]


@pytest.mark.parametrize(
    ("state", "differences"),
    [
        ("last", [("a", "changed", 1, 5), ("b", "removed", 2, None), ("d", "added", None, 4)]),
        ("all", [("a", "changed", [1], [1, 5]), ("b", "removed", [2], None), ("d", "added", None, [4])]),
        (
            "seen",
            [
                ("a", "changed", [(1, True)], [(1, True), (5, True)]),
                ("b", "removed", [(2, True)], None),
                ("d", "added", None, [(4, True)]),
            ],
        ),
    ],
)
def test_added_removed_and_changed_keys_are_found(job, tmp_path, state, differences):
    one, other = two_savepoints(job, tmp_path, FIRST, SECOND)
    assert compared(one, other, state) == [KeyDifference(*each) for each in differences]
    opposite = {"added": "removed", "removed": "added", "changed": "changed"}
    assert compared(other, one, state) == [
        KeyDifference(key, opposite[kind], after, before) for key, kind, before, after in differences
    ]


def test_a_value_whose_time_to_live_was_renewed_is_equal(job, tmp_path):
    one, other = two_savepoints(job, tmp_path, [("a", 1)], [("a", 2), ("d", 4)])
    clocks = [each.state("words", "timed").get("a")[0]["last_access"] for each in (one, other)]
    assert clocks[0] != clocks[1]
    assert [(each.key, each.kind) for each in compared(one, other, "timed")] == [("d", "added")]


def test_timers_are_compared_by_key(job, tmp_path):
    one, other = two_savepoints(job, tmp_path, [("a", 1)], [("a", 2), ("d", 4)])
    found = compared(one, other, "timers")
    assert [(each.key, each.kind) for each in found] == [("a", "changed"), ("d", "added")]
    assert [timer["timestamp"] for timer in found[0].after] == [1000, 2000]


def test_a_checkpoint_is_compared_with_a_savepoint_and_many_keys_with_the_complete_states(job, tmp_path):
    one, _ = two_savepoints(job, tmp_path, [(f"k{n}", n + 1) for n in range(300)], [("x", 1)])
    job.push(*[(f"k{n}", (n % 3) * n) for n in range(100)], *[(f"new{n}", 1) for n in range(50)]).epoch()
    newest = Checkpoint.load(tmp_path / "cp")
    before, after = ({row["key"]: row["value"] for row in each.state("words", "last").rows()} for each in (one, newest))
    expected = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
    steps = []
    found = list(
        key_differences(
            one.state("words", "last"), newest.state("words", "last"), lambda keys, share: steps.append((keys, share))
        )
    )
    assert {each.key for each in found} == expected
    assert len(found) == len(expected) > 100
    assert all((each.before, each.after) == (before.get(each.key), after.get(each.key)) for each in found)
    assert steps == sorted(steps)
    assert steps[-1][0] == len(before.keys() | after.keys())


def test_a_state_that_did_not_exist_yet_has_only_added_keys(job, tmp_path):
    one, other = two_savepoints(job, tmp_path, [("a", 1)], [("b", 2)])
    found = key_differences(None, other.state("words", "last"))
    assert sorted((each.key, each.kind) for each in found) == [("a", "added"), ("b", "added")]
    assert [each.kind for each in key_differences(one.state("words", "last"), None)] == ["removed"]
    assert list(key_differences(None, None)) == []


def test_states_of_different_kinds_are_not_compared(job, tmp_path):
    one, other = two_savepoints(job, tmp_path, [("a", 1)], [("b", 2)])
    with pytest.raises(CannotCompare, match="kind value in one snapshot and list in the other"):
        list(key_differences(one.state("words", "last"), other.state("words", "all")))
