"""Placement of subtasks on executors: they stay where they are, in shares that follow the cores."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from penstock.datastream import StreamExecutionEnvironment
from penstock.driver.placement import Executor, Placement, assign
from penstock.driver.rescaling import scale_for
from penstock.graph.builder import build
from penstock.graph.physical import PhysicalGraph

EXECUTORS = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 4), min_size=1)


def on_separate_disks(**cores: int) -> dict[str, Executor]:
    return {name: Executor(count, name) for name, count in cores.items()}


def program(parallelism: int) -> PhysicalGraph:
    env = StreamExecutionEnvironment.get_execution_environment()
    numbers = env.from_collection([1]).uid("numbers")
    summed = numbers.key_by(lambda n: n).reduce(lambda a, b: a + b).uid("sum")
    summed.key_by(lambda n: -n).reduce(lambda a, b: a + b).uid("again").print().uid("print")
    return build(env._graph, parallelism=parallelism, max_parallelism=128)


@given(st.integers(1, 40), st.lists(EXECUTORS, min_size=1, max_size=6))
def test_every_change_of_executors_keeps_the_shares_and_moves_no_more_than_needed(
    targets: int, changes: list[dict[str, int]]
) -> None:
    placed: list[str | None] = [None] * targets
    for executors in changes:
        before, placed = placed, [*assign(placed, executors, {})]
        count = Counter(placed)
        assert count.keys() <= executors.keys()
        # No target would reduce the largest share by moving.
        assert max(count[each] / executors[each] for each in executors) <= min(
            (count[each] + 1) / executors[each] for each in executors
        )
        # None gave one away while it had fewer than it has now.
        held = Counter(each for each in before if each in executors)
        lost = Counter(a for a, b in zip(before, placed, strict=True) if a in executors and a != b)
        assert all(count[each] == held[each] - lost[each] for each in lost)
        assert [*assign(placed, executors, {})] == placed


def test_targets_of_a_lost_executor_are_spread_over_the_others_which_keep_theirs() -> None:
    before = [*"abcabcabc"]
    after = assign(before, {"a": 1, "b": 1, "d": 1}, {})
    assert [new for old, new in zip(before, after, strict=True) if old == "c"] == ["d"] * 3
    assert all(new == old for old, new in zip(before, after, strict=True) if old != "c")


def test_a_new_executor_takes_only_the_surplus_of_the_others() -> None:
    before = [*"aaabbb"]
    after = assign(before, {"a": 1, "b": 1, "c": 1}, {})
    assert Counter(after) == {"a": 2, "b": 2, "c": 2}
    assert sum(old != new for old, new in zip(before, after, strict=True)) == 2


def test_neighbors_begin_on_the_same_executor() -> None:
    assert assign([None] * 6, {"a": 1, "b": 1, "c": 1}, {}) == [*"aabbcc"]


def test_cores_determine_the_share_of_an_executor() -> None:
    assert Counter(assign([None] * 8, {"large": 3, "small": 1}, {})) == {"large": 6, "small": 2}


def test_levels_with_few_subtasks_use_different_executors() -> None:
    first, second = Placement().place(program(1), on_separate_disks(a=1, b=1))
    assert {*first, *second} == {"a", "b"}


def test_subtasks_keep_their_executors_while_nothing_changes() -> None:
    placement, graph = Placement(), program(6)
    executors = on_separate_disks(a=2, b=1)
    assert placement.place(graph, executors) == placement.place(graph, executors)


def test_after_a_rescale_subtasks_begin_where_their_key_groups_were() -> None:
    placement, graph = Placement(), program(4)
    executors = on_separate_disks(a=1, b=1)
    (before, _) = placement.place(graph, executors)
    (after, _) = placement.place(graph.rescaled(scale_for(graph, 8, {})), executors)
    assert after == [each for each in before for _ in range(2)]


def test_the_shares_of_all_subtasks_stay_equal_after_rescales() -> None:
    placement, graph = Placement(), program(1)
    executors = on_separate_disks(a=1, b=1, c=1)
    for parallelism in (7, 3, 64, 5, 1):
        for level in placement.place(graph.rescaled(scale_for(graph, parallelism, {})), executors):
            count = [Counter(level)[each] for each in executors]
            assert max(count) - min(count) <= 1
