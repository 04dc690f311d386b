"""The plan of a run of the crash rig."""

from collections import Counter

import pytest

from chaos.plan import ALL_KINDS, CLUSTER, KINDS, LOCAL, MEMORY_KINDS, SERVER_MIX, digest, make_plan


def kinds_of(plan: list) -> Counter[str]:
    return Counter(fault.kind for life in plan for fault in life.faults)


def test_a_plan_is_determined_by_its_seed() -> None:
    assert make_plan(7, 100, list(KINDS)) == make_plan(7, 100, list(KINDS))
    assert digest(make_plan(7, 100, list(KINDS))) != digest(make_plan(8, 100, list(KINDS)))
    assert digest(make_plan(7, 100, list(KINDS))) != digest(make_plan(7, 101, list(KINDS)))


@pytest.mark.parametrize("seed", range(8))
def test_a_hundred_faults_have_the_weights_of_their_kinds(seed: int) -> None:
    plan = make_plan(seed, 100, list(KINDS))
    assert kinds_of(plan) == {name: kind.weight for name, kind in KINDS.items()}
    assert [fault.index for life in plan for fault in life.faults] == list(range(100))


@pytest.mark.parametrize("seed", range(8))
def test_a_plan_for_a_server_includes_server_faults(seed: int) -> None:
    plan = make_plan(seed, 100, list(SERVER_MIX), mix=SERVER_MIX)
    assert kinds_of(plan) == SERVER_MIX
    assert kinds_of(plan)["server"] >= 15
    assert all(kind in ALL_KINDS for kind in SERVER_MIX)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("kills", [1, 2, 9, 40])
def test_each_life_but_the_last_ends_with_a_fatal_fault(seed: int, kills: int) -> None:
    plan = make_plan(seed, kills, list(KINDS))
    assert sum(kinds_of(plan).values()) == kills
    for number, life in enumerate(plan):
        ending = [KINDS[fault.kind].ends_life for fault in life.faults]
        assert ending.count(True) == (0 if number == len(plan) - 1 else 1)
        assert True not in ending[:-1]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("kinds", [list(KINDS), MEMORY_KINDS, ["executor"], ["driver", "executor"]])
def test_executors_are_killed_only_on_a_cluster(seed: int, kinds: list[str]) -> None:
    plan = make_plan(seed, 12, kinds)
    assert kinds_of(plan)["executor"]
    for life in plan:
        assert "cluster" in life.master or all(fault.kind != "executor" for fault in life.faults)


def test_drivers_run_on_both_masters_unless_one_is_given() -> None:
    assert {life.master for life in make_plan(3, 60, list(KINDS))} == {LOCAL, CLUSTER}
    assert {life.master for life in make_plan(3, 60, ["driver", "worker"], [LOCAL])} == {LOCAL}


def test_some_drivers_die_during_recovery() -> None:
    after = Counter(
        fault.after for seed in range(5) for life in make_plan(seed, 100, list(KINDS)) for fault in life.faults
    )
    assert after["start"] > 5
