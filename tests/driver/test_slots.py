"""Slots that a job needs and a cluster has: the job waits, continues with fewer or fails, as configured."""

import logging
from collections.abc import Callable
from typing import Any

import pytest

from penstock.common import Configuration
from penstock.common.options import BadSetting
from penstock.datastream import StreamExecutionEnvironment
from penstock.driver.rescaling import scale_for
from penstock.driver.slots import Slots, SlotSettings, TooFewSlots, TooFewSlotsToRescale, slot_settings, slots_needed
from penstock.graph.builder import build
from penstock.graph.physical import PhysicalGraph


class Cluster:
    """Workers with slots, and a clock. `later` holds (second, change)."""

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


@pytest.mark.parametrize("wait", [True, False])
def test_the_begin_and_the_end_of_a_wait_are_reported(wait: bool) -> None:
    cluster = Cluster(1, 2)
    cluster.later = [(3, lambda: cluster.workers.append(6))]
    reported: list[tuple[float, bool]] = []
    graph = program(8)
    slots = Slots(
        "counts",
        lambda: graph,
        cluster.slots,
        SlotSettings(wait=wait),
        cluster.pause,
        lambda: cluster.now,
        on_wait=lambda waits: reported.append((cluster.now, waits)),
    )
    assert slots.await_enough()
    assert slots.await_enough()
    assert reported == ([(0, True), (3, False)] if wait else [])


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    caplog.set_level(logging.INFO, logger="penstock")
    return lambda: [record.getMessage() for record in caplog.records if record.name == "penstock"]


def test_a_job_needs_as_many_slots_as_its_widest_operator_has_subtasks() -> None:
    assert slots_needed(program(aggregation=2, others=4)) == 4
    assert slots_needed(program(aggregation=8, others=4)) == 8
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_collection([1]).map(lambda n: n).print()
    assert slots_needed(build(env._graph, parallelism=1, max_parallelism=128)) == 1, "all run in the source's chain"


def test_a_job_waits_for_missing_slots_after_a_worker_is_lost(
    logged: Callable[[], list[str]],
) -> None:
    cluster = Cluster(4, 2)
    slots = slots_of(cluster, program(8), wait=True, timeout_ms=60_000)
    assert slots.await_enough()
    assert (slots.needed, slots.available, cluster.now, logged()) == (8, 8, 0, [])
    cluster.lose_one()
    seen: list[int] = []
    cluster.later = [(10, lambda: seen.append(slots.available)), (20, lambda: cluster.workers.append(2))]
    assert slots.await_enough()
    assert seen == [6], "the metrics show the available slots while the job waits"
    assert (cluster.now, slots.available) == (20, 8)
    waits, continues = logged()
    assert waits == (
        "Job 'counts' needs 8 slots, for 'Reduce' (uid 'sum'), but Spark has 6. It waits for slots, at most 60 s "
        "(slot.request.timeout)."
    )
    assert continues == "Job 'counts' now has the 8 slots it needs."


def test_a_job_that_does_not_wait_continues_with_fewer_slots_and_warns_once(logged: Callable[[], list[str]]) -> None:
    cluster = Cluster(4, 2)
    cluster.lose_one()
    slots = slots_of(cluster, program(8))
    for _ in range(5):
        assert slots.await_enough()
    assert (cluster.now, slots.needed, slots.available) == (0, 8, 6)
    assert logged() == [
        "Job 'counts' needs 8 slots, for 'Reduce' (uid 'sum'), but Spark has 6. It continues, and its tasks take "
        "turns. Give Spark 8 cores, rescale the job to a parallelism of 6, or set penstock.slots.wait to true to make "
        "it wait."
    ]


def test_a_second_loss_is_logged_again(logged: Callable[[], list[str]]) -> None:
    cluster = Cluster(4, 2)
    slots = slots_of(cluster, program(8))
    for _ in range(2):
        cluster.lose_one()
        slots.await_enough()
        cluster.workers.append(2)
        slots.await_enough()
    assert [message for message in logged() if "continues" in message] == [logged()[0]] * 2


def test_a_job_that_needs_fewer_slots_does_not_notice_the_loss(logged: Callable[[], list[str]]) -> None:
    cluster = Cluster(4, 2)
    slots = slots_of(cluster, program(6), wait=True, timeout_ms=0)
    assert slots.await_enough()
    cluster.lose_one()
    assert slots.await_enough()
    assert (cluster.now, logged()) == (0, [])


def test_a_job_fails_without_a_restart_after_the_slot_timeout() -> None:
    cluster = Cluster(3, 2)
    slots = slots_of(cluster, program(8), wait=True, timeout_ms=60_000)
    with pytest.raises(TooFewSlots) as failure:
        slots.await_enough()
    assert cluster.now == 60
    assert not failure.value.retryable
    assert str(failure.value) == (
        "Job 'counts' waited 60 s for slots (slot.request.timeout). Job 'counts' needs 8 slots, for 'Reduce' (uid "
        "'sum'), but Spark has 6. Give Spark 8 cores, rescale the job to a parallelism of 6, raise "
        "slot.request.timeout, or set penstock.slots.wait to false to let its tasks take turns."
    )


@pytest.mark.parametrize("wait", [True, False])
def test_every_job_waits_for_its_first_slot(wait: bool, logged: Callable[[], list[str]]) -> None:
    cluster = Cluster(0, 0)
    slots = slots_of(cluster, program(8), wait=wait, timeout_ms=60_000)
    seen: list[tuple[bool, bool, int, int]] = []

    def look() -> None:
        seen.append((slots.waits, slots.takes_turns, slots.needed, slots.available))

    cluster.later = [(5, look), (20, lambda: cluster.workers.append(2))]
    assert slots.await_first(cluster.pause)
    look()
    assert seen == [(True, False, 8, 0), (False, False, 8, 2)]
    assert cluster.now == 20
    assert logged() == [
        "Job 'counts' needs 8 slots, for 'Reduce' (uid 'sum'), but Spark has 0. It waits for an executor, at most 60 s "
        "(slot.request.timeout). Other applications hold their cores until they end."
    ]


def test_an_executor_that_starts_within_seconds_is_not_worth_a_warning(logged: Callable[[], list[str]]) -> None:
    cluster = Cluster(0, 0)
    cluster.later = [(9, lambda: cluster.workers.append(2))]
    assert slots_of(cluster, program(2)).await_first(cluster.pause)
    assert logged() == []


def test_the_wait_for_the_first_slot_ends_with_its_job_and_after_the_slot_timeout() -> None:
    cluster = Cluster(0, 0)
    cluster.later = [(5, lambda: setattr(cluster, "ended", True))]
    slots = slots_of(cluster, program(8), timeout_ms=60_000)
    assert not slots.await_first(cluster.pause)
    assert (cluster.now, slots.waits) == (5, False)
    cluster.ended = False
    with pytest.raises(TooFewSlots, match=r"waited 60 s for an executor .* Spark has 0\..* free cores"):
        slots.await_first(cluster.pause)
    assert cluster.now == 65
    assert not slots.waits


def test_each_shortage_has_its_own_timeout() -> None:
    cluster = Cluster(3, 2)
    slots = slots_of(cluster, program(8), wait=True, timeout_ms=60_000)
    for _ in range(3):
        cluster.later = [(cluster.now + 50, lambda: cluster.workers.append(2))]
        assert slots.await_enough()
        cluster.lose_one()
    assert cluster.now == 150


def test_a_waiting_job_can_be_rescaled_to_the_available_slots() -> None:
    cluster = Cluster(3, 2)
    graphs = [program(8)]
    slots = Slots("counts", lambda: graphs[-1], cluster.slots, SlotSettings(True), cluster.pause, lambda: cluster.now)
    cluster.later = [(5, lambda: graphs.append(graphs[0].rescaled(scale_for(graphs[0], {"sum": 6}, {}))))]
    assert slots.await_enough()
    assert (cluster.now, slots.needed) == (5, 6)


def test_a_job_that_would_wait_for_slots_refuses_the_parallelism() -> None:
    cluster = Cluster(1, 4)
    slots = slots_of(cluster, program(2), wait=True)
    slots.check_rescale(program(4))
    with pytest.raises(TooFewSlotsToRescale) as raised:
        slots.check_rescale(program(8))
    assert str(raised.value) == (
        "Job 'counts' would wait for slots: it would need 8, for 'Reduce' (uid 'sum'), but Spark has 4. It keeps its "
        "parallelism. Give Spark 8 cores first, rescale the job to a parallelism of 4, or set penstock.slots.wait to "
        "false to let its tasks take turns."
    )
    slots_of(cluster, program(2), wait=False).check_rescale(program(8))


def test_a_job_that_ends_while_waiting_runs_no_further_epoch() -> None:
    cluster = Cluster(3, 2)
    slots = slots_of(cluster, program(8), wait=True)
    cluster.later = [(5, lambda: setattr(cluster, "ended", True))]
    assert not slots.await_enough()
    assert cluster.now == 5


def test_settings_control_whether_and_how_long_to_wait() -> None:
    assert slot_settings(Configuration()) == SlotSettings(wait=False, timeout_ms=300_000)
    configured = Configuration.from_dict({"penstock.slots.wait": "true", "slot.request.timeout": "30 s"})
    assert slot_settings(configured) == SlotSettings(wait=True, timeout_ms=30_000)
    with pytest.raises(BadSetting, match=r"slot\.request\.timeout is 'soon'"):
        slot_settings(Configuration.from_dict({"slot.request.timeout": "soon"}))
