"""Standbys: which executors follow the state of a subtask, and which of them takes over."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from test_placement import on_separate_disks, program

from penstock.driver.placement import Executor, Placement
from penstock.driver.rescaling import scale_for
from penstock.driver.standbys import Followed, assign_standbys
from penstock.graph.physical import PhysicalGraph

SUM, AGAIN = 1, 2
"""The chains with keyed state."""

CLUSTERS = st.dictionaries(
    st.sampled_from("abcdef"), st.builds(Executor, st.integers(1, 4), st.sampled_from("xyz")), min_size=1
)


def followed(placement: Placement, graph: PhysicalGraph, levels: list[list[str]]) -> dict[tuple[int, int], list[str]]:
    """Return all executors with replicas of each subtask, the one that runs it first."""
    return {
        (chain, subtask): [levels[chain - 1][subtask], *standbys]
        for chain in (SUM, AGAIN)
        for subtask, standbys in enumerate(placement.standbys(chain))
    }


@given(st.integers(0, 3), st.lists(st.tuples(CLUSTERS, st.integers(1, 9)), min_size=1, max_size=6))
def test_standbys_live_and_keep_their_replicas_apart(
    count: int, changes: list[tuple[dict[str, Executor], int]]
) -> None:
    placement, graph = Placement(count), program(1)
    for executors, parallelism in changes:
        scaled = graph.rescaled(scale_for(graph, parallelism, {}))
        levels = placement.place(scaled, executors)
        everywhere = len({each.root for each in executors.values()})
        found = followed(placement, scaled, levels)
        assert len(found) == (2 * parallelism if count else 0)
        for replicas in found.values():
            roots = {executors[each].root for each in replicas}
            assert len(roots) == len(replicas) == min(count + 1, everywhere)


@given(st.integers(1, 2), st.lists(CLUSTERS, min_size=2, max_size=6), st.integers(1, 12))
def test_a_subtask_moves_to_a_standby_if_one_lives_and_no_share_forbids_it(
    count: int, changes: list[dict[str, Executor]], parallelism: int
) -> None:
    placement, graph = Placement(count), program(parallelism)
    before: dict[tuple[int, int], list[str]] = {}
    for executors in changes:
        after = followed(placement, graph, placement.place(graph, executors))
        cores = sum(each.cores for each in executors.values())
        for subtask, replicas in before.items():
            now, living = after[subtask][0], [each for each in replicas if each in executors]
            if now in living or not living:
                continue
            # It is surplus of the executors that have its state: all of them have at least their share.
            for each in living:
                level = subtask[0]
                own = sum(1 for (chain, _), place in after.items() if chain == level and place[0] == each)
                assert own + 1 > parallelism * executors[each].cores / cores
        before = after


def test_the_subtasks_of_a_lost_executor_are_divided_among_the_others() -> None:
    placement, graph = Placement(1), program(6)
    executors = on_separate_disks(a=1, b=1, c=1)
    before = followed(placement, graph, placement.place(graph, executors))
    del executors["c"]
    after = followed(placement, graph, placement.place(graph, executors))
    assert {subtask: place[0] for subtask, place in after.items()} == {
        subtask: next(each for each in replicas if each in executors) for subtask, replicas in before.items()
    }
    assert Counter(place[0] for place in after.values()) == {"a": 6, "b": 6}


def test_an_executor_that_gives_a_subtask_away_follows_it() -> None:
    placement, graph = Placement(1), program(4)
    before = placement.place(graph, on_separate_disks(a=1, b=1))
    after = placement.place(graph, on_separate_disks(a=1, b=1, c=1))
    for chain, (old, new) in enumerate(zip(before, after, strict=True), start=1):
        moved = [subtask for subtask in range(4) if old[subtask] != new[subtask]]
        assert moved
        assert all(placement.standbys(chain)[subtask] == [old[subtask]] for subtask in moved)


def test_executors_that_share_a_disk_do_not_follow_each_other() -> None:
    executors = {"a": Executor(1, "x"), "b": Executor(1, "x")}
    placement, graph = Placement(1), program(2)
    placement.place(graph, executors)
    assert placement.standbys(SUM) == [[], []]


def test_standbys_stay_while_nothing_changes() -> None:
    placement, graph = Placement(1), program(5)
    executors = on_separate_disks(a=2, b=1, c=1)
    first = followed(placement, graph, placement.place(graph, executors))
    assert followed(placement, graph, placement.place(graph, executors)) == first


def test_every_executor_follows_its_share() -> None:
    subtasks, load = [Followed(1, each, []) for each in "aabbcc"], {(1, each): 2 for each in "abc"}
    found = assign_standbys(subtasks, load, {"a": 1, "b": 1, "c": 1}, {"a": "1", "b": "2", "c": "3"}, 1)
    assert Counter(each for standbys in found for each in standbys) == {"a": 2, "b": 2, "c": 2}
    # The two subtasks of an executor have different standbys.
    assert all({*found[i], *found[i + 1]} == {*"abc"} - {"aabbcc"[i]} for i in (0, 2, 4))


@given(st.lists(st.integers(1, 12), min_size=1, max_size=4), st.sampled_from("abc"))
def test_after_a_death_no_subtask_runs_without_replicas(scales: list[int], victim: str) -> None:
    placement, graph = Placement(1), program(1)
    executors = on_separate_disks(a=1, b=1, c=1)
    for parallelism in scales:
        graph = graph.rescaled(scale_for(graph, parallelism, {}))
        before = followed(placement, graph, placement.place(graph, executors))
    del executors[victim]
    after = followed(placement, graph, placement.place(graph, executors))
    assert all(place[0] in before[subtask] for subtask, place in after.items())


def test_an_executor_that_joins_follows_first() -> None:
    placement, graph = Placement(1), program(6)
    before = placement.place(graph, on_separate_disks(a=1, b=1))
    cluster = on_separate_disks(a=1, b=1, c=1)
    assert placement.place(graph, cluster, joining={"c"}) == before
    followed_by = {
        chain: {subtask for subtask, each in enumerate(placement.standbys(chain)) if each == ["c"]}
        for chain in (SUM, AGAIN)
    }
    assert all(followed_by.values())
    after = placement.place(graph, cluster)
    moved = {chain: {each for each in range(6) if after[chain - 1][each] == "c"} for chain in (SUM, AGAIN)}
    assert all(len(each) == 2 for each in moved.values())
    assert all(moved[chain] <= followed_by[chain] for chain in moved)


def test_executors_that_join_run_subtasks_if_there_are_no_others() -> None:
    placement, graph = Placement(1), program(2)
    placement.place(graph, on_separate_disks(a=1))
    assert placement.place(graph, on_separate_disks(b=1, c=1), joining={"b", "c"}) == [["b", "c"], ["b", "c"]]
