"""What a job needs against what a cluster has: it waits, goes on with less, or fails, as configured."""

import logging
from collections.abc import Callable
from typing import Any

import pytest

from penstock.common import Configuration
from penstock.common.options import BadSetting
from penstock.datastream import StreamExecutionEnvironment
from penstock.driver.rescaling import scale_for
from penstock.driver.slots import Slots, SlotSettings, TooFewSlots, slot_settings, slots_needed
from penstock.graph.builder import build
from penstock.graph.physical import PhysicalGraph


class Cluster:
    """Workers with slots, and a clock. What happens to them later is told as (second, change)."""

    def __init__(self, workers: int, slots: int) -> None:
        self.workers = [slots] * workers
        self.now = 0.0
        self.later: list[tuple[float, Callable[[], Any]]] = []
        self.ended = False

    def slots(self) -> int:
        return sum(self.workers)

    def lose_one(self) -> None:
        self.workers.pop()

    def pause(self) -> bool:
        self.now += 1
        while self.later and self.later[0][0] <= self.now:
            self.later.pop(0)[1]()
        return not self.ended


def program(aggregation: int, others: int = 1) -> PhysicalGraph:
    env = StreamExecutionEnvironment.get_execution_environment()
    numbers = env.from_collection([1]).uid("numbers")
    doubled = numbers.rebalance().map(lambda n: n).uid("double").set_parallelism(others)
    summed = doubled.key_by(lambda n: n).reduce(lambda a, b: a + b).uid("sum").set_parallelism(aggregation)
    summed.print().uid("print").set_parallelism(others)
    return build(env._graph, parallelism=1, max_parallelism=128)


def slots_of(cluster: Cluster, graph: PhysicalGraph, **settings: Any) -> Slots:
    return Slots("counts", lambda: graph, cluster.slots, SlotSettings(**settings), cluster.pause, lambda: cluster.now)


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    caplog.set_level(logging.INFO, logger="penstock")
    return lambda: [record.getMessage() for record in caplog.records if record.name == "penstock"]


def test_a_job_needs_as_many_slots_as_its_widest_operator_has_subtasks() -> None:
    assert slots_needed(program(aggregation=2, others=4)) == 4
    assert slots_needed(program(aggregation=8, others=4)) == 8
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_collection([1]).map(lambda n: n).print()
    assert slots_needed(build(env._graph, parallelism=1, max_parallelism=128)) == 1, "all in the source's own chain"


def test_four_workers_of_two_slots_that_lose_one_have_six_and_the_job_waits_for_eight(
    told: Callable[[], list[str]],
) -> None:
    cluster = Cluster(4, 2)
    slots = slots_of(cluster, program(8), wait=True, timeout_ms=60_000)
    assert slots.await_enough()
    assert (slots.needed, slots.available, cluster.now, told()) == (8, 8, 0, [])
    cluster.lose_one()
    seen: list[int] = []
    cluster.later = [(10, lambda: seen.append(slots.available)), (20, lambda: cluster.workers.append(2))]
    assert slots.await_enough()
    assert seen == [6], "the metrics tell what it has while it waits"
    assert (cluster.now, slots.available) == (20, 8)
    waits, goes_on = told()
    assert waits == (
        "Job 'counts' needs 8 slots, for 'Reduce' (uid 'sum'), and Spark has 6. It waits for them, at most 60 s "
        "(slot.request.timeout)."
    )
    assert goes_on == "Job 'counts' has the 8 slots that it needs."


def test_it_goes_on_with_six_where_it_is_not_to_wait_and_says_so_once(told: Callable[[], list[str]]) -> None:
    cluster = Cluster(4, 2)
    cluster.lose_one()
    slots = slots_of(cluster, program(8))
    for _ in range(5):
        assert slots.await_enough()
    assert (cluster.now, slots.needed, slots.available) == (0, 8, 6)
    assert told() == [
        "Job 'counts' needs 8 slots, for 'Reduce' (uid 'sum'), and Spark has 6. It goes on, and its tasks run in "
        "turns. Give Spark 8 cores, rescale the job to a parallelism of 6, or set penstock.slots.wait to true to let "
        "it wait."
    ]


def test_a_second_loss_is_told_again(told: Callable[[], list[str]]) -> None:
    cluster = Cluster(4, 2)
    slots = slots_of(cluster, program(8))
    for _ in range(2):
        cluster.lose_one()
        slots.await_enough()
        cluster.workers.append(2)
        slots.await_enough()
    assert [message for message in told() if "goes on" in message] == [told()[0]] * 2


def test_a_job_of_six_does_not_notice(told: Callable[[], list[str]]) -> None:
    cluster = Cluster(4, 2)
    slots = slots_of(cluster, program(6), wait=True, timeout_ms=0)
    assert slots.await_enough()
    cluster.lose_one()
    assert slots.await_enough()
    assert (cluster.now, told()) == (0, [])


def test_it_fails_when_it_has_waited_long_enough_and_no_restart_is_tried() -> None:
    cluster = Cluster(3, 2)
    slots = slots_of(cluster, program(8), wait=True, timeout_ms=60_000)
    with pytest.raises(TooFewSlots) as failure:
        slots.await_enough()
    assert cluster.now == 60
    assert not failure.value.retryable
    assert str(failure.value) == (
        "Job 'counts' waited 60 s for slots (slot.request.timeout). Job 'counts' needs 8 slots, for 'Reduce' (uid "
        "'sum'), and Spark has 6. Give Spark 8 cores, rescale the job to a parallelism of 6, let it wait longer with "
        "slot.request.timeout, or set penstock.slots.wait to false: its tasks then run in turns."
    )


def test_each_shortage_has_its_own_time() -> None:
    cluster = Cluster(3, 2)
    slots = slots_of(cluster, program(8), wait=True, timeout_ms=60_000)
    for _ in range(3):
        cluster.later = [(cluster.now + 50, lambda: cluster.workers.append(2))]
        assert slots.await_enough()
        cluster.lose_one()
    assert cluster.now == 150


def test_a_job_that_waits_can_be_rescaled_to_what_it_has() -> None:
    cluster = Cluster(3, 2)
    graphs = [program(8)]
    slots = Slots("counts", lambda: graphs[-1], cluster.slots, SlotSettings(True), cluster.pause, lambda: cluster.now)
    cluster.later = [(5, lambda: graphs.append(graphs[0].rescaled(scale_for(graphs[0], {"sum": 6}, {}))))]
    assert slots.await_enough()
    assert (cluster.now, slots.needed) == (5, 6)


def test_a_job_that_is_ended_while_it_waits_runs_no_further_epoch() -> None:
    cluster = Cluster(3, 2)
    slots = slots_of(cluster, program(8), wait=True)
    cluster.later = [(5, lambda: setattr(cluster, "ended", True))]
    assert not slots.await_enough()
    assert cluster.now == 5


def test_the_settings_say_whether_and_how_long() -> None:
    assert slot_settings(Configuration()) == SlotSettings(wait=False, timeout_ms=300_000)
    configured = Configuration.from_dict({"penstock.slots.wait": "true", "slot.request.timeout": "30 s"})
    assert slot_settings(configured) == SlotSettings(wait=True, timeout_ms=30_000)
    with pytest.raises(BadSetting, match=r"slot\.request\.timeout is 'soon'"):
        slot_settings(Configuration.from_dict({"slot.request.timeout": "soon"}))
