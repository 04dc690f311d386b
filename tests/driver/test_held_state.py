"""How much keyed state the replicas of each executor hold."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from penstock.checkpoint.manifest import BaseHandle
from penstock.datastream import StreamExecutionEnvironment
from penstock.driver.held_state import Held, HeldState
from penstock.driver.job_observer import JobObserver
from penstock.driver.job_snapshot import ExecutorSnapshot
from penstock.runtime.metrics import WorkerPlace
from penstock.testing import JobHarness

KEYS = [f"key {number}" for number in range(200)]


def counting() -> Any:
    env = StreamExecutionEnvironment.get_execution_environment()
    numbers = env.from_collection([]).uid("in").map(lambda key: (key, 1)).uid("ones")
    return numbers.key_by(lambda pair: pair[0]).sum(1).uid("sum")


def held_state(parallelism: int) -> tuple[HeldState, int]:
    """Return the state of a job that counted the keys, and its bytes."""
    with JobHarness(counting(), parallelism=parallelism) as job:
        job.push(*KEYS).epoch()
        manifest = job._driver.last
        assert manifest is not None
        return HeldState(job._driver.graph, manifest), manifest.state_bytes("sum")


def keyed_chain(state: HeldState) -> int:
    (chain,) = [each.id for each in state._graph.chains if any(one.uid == "sum" for one in each.operators)]
    return chain


def test_the_executors_of_a_job_hold_all_of_its_state_once() -> None:
    state, size = held_state(4)
    found = state.of_subtasks({keyed_chain(state): ["a", "b", "b", "a"]})
    assert [each.blocks for each in found.values()] == [8, 8]
    assert sum(each.bytes for each in found.values()) == size > 0
    assert state.of_subtasks({keyed_chain(state): ["a"] * 4}) == {"a": Held(16, size)}


def test_an_executor_has_one_replica_of_a_block_that_two_of_its_subtasks_share() -> None:
    state, size = held_state(3)
    count = state._manifest.blocks["sum"].count
    assert count % 3
    assert state.of_subtasks({keyed_chain(state): ["a", "a", "a"]}) == {"a": Held(count, size)}
    apart = state.of_subtasks({keyed_chain(state): ["a", "b", "c"]})
    assert sum(each.blocks for each in apart.values()) == count + 2


def test_sources_hold_no_keyed_state() -> None:
    state, _ = held_state(2)
    others = [each.id for each in state._graph.chains if each.id != keyed_chain(state)]
    assert others
    assert state.of_subtasks({each: ["a", "b"] for each in others}) == {}


def test_a_base_of_a_former_block_counts_for_each_of_its_parts() -> None:
    state, _ = held_state(2)
    groups = state._manifest.blocks["sum"].groups(0)
    base = BaseHandle(id=1, name="x", size=1000, end=2 * groups.stop)
    manifest = msgspec.structs.replace(state._manifest, bases={"sum": {0: base}}, since_base={"sum": {1: 7}})
    changed = HeldState(state._graph, manifest)
    assert [changed.held([("sum", number)]) for number in range(3)] == [Held(1, 500), Held(1, 507), Held(1, 0)]


def test_blocks_of_operators_that_are_gone_do_not_count() -> None:
    state, _ = held_state(2)
    assert state.held([("gone", 3)]) == Held(0, 0)


@pytest.mark.parametrize("standby", [{}, {"1": [("sum", 0), ("sum", 1)]}])
def test_a_snapshot_shows_the_state_of_each_executor(standby: dict[str, list[tuple[str, int]]]) -> None:
    executors = [ExecutorSnapshot(id=each) for each in ("0", "1", "2")]
    with JobHarness(counting(), parallelism=2) as job:
        execution = job._execution
        observer = JobObserver(execution.observer._facts, executors=lambda: executors, followed=lambda: standby)
        assert observer.snapshot(execution).executors == executors
        execution.observer = observer
        job.push(*KEYS).epoch()
        for vertex in observer._vertices._vertices.values():
            for number, cell in enumerate(vertex.cells):
                cell.place = WorkerPlace(executor=str(number))
        found = observer.snapshot(execution).executors
        size = job._driver.last.state_bytes("sum")  # type: ignore[union-attr]
    assert [each.blocks for each in found] == [8, 8, 0]
    assert sum(each.block_bytes for each in found) == size
    assert [each.standby_blocks for each in found] == [0, 2 if standby else 0, 0]
    assert bool(found[1].standby_bytes) == bool(standby)
