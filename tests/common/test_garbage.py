"""Garbage collections run at a known rate."""

import gc
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress

from penstock.common.garbage import GarbageCollector, collection_paused


def collector(every: int, costs: float) -> tuple[GarbageCollector, list[float], Callable[[float], None]]:
    now = [0.0]
    collected: list[float] = []

    def collect() -> None:
        collected.append(now[0])
        now[0] += costs

    def later(seconds: float) -> None:
        now[0] += seconds

    return GarbageCollector(every, collect, lambda: now[0]), collected, later


def test_a_collection_follows_every_n_units_of_work() -> None:
    garbage, collected, later = collector(every=3, costs=0.001)
    for _ in range(10):
        later(1.0)
        garbage.work_done()
    assert [round(at) for at in collected] == [3, 6, 9]


def test_slow_collections_run_less_often() -> None:
    garbage, collected, later = collector(every=1, costs=1.0)
    for _ in range(250):
        later(1.0)
        garbage.work_done()
    assert collected == [1.0, 102.0, 203.0], "one second in a hundred"


def test_the_collector_works_with_automatic_collection_disabled() -> None:
    class Node:
        alive = 0

        def __init__(self) -> None:
            self.me = self
            Node.alive += 1

        def __del__(self) -> None:
            Node.alive -= 1

    enabled = gc.isenabled()
    gc.disable()
    try:
        garbage = GarbageCollector(every=10)
        for _ in range(10):
            Node()
            garbage.work_done()
        assert Node.alive == 0
    finally:
        if enabled:
            gc.enable()


def test_importing_penstock_keeps_the_gc_thresholds_of_the_program() -> None:
    program = (
        "import gc; gc.set_threshold(123, 4, 5); import penstock.spark.job, penstock.spark.worker; "
        "print(gc.get_threshold())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "(123, 4, 5)"


def test_collection_is_paused_inside_the_context_only() -> None:
    assert gc.isenabled()
    with suppress(KeyError), collection_paused():
        assert not gc.isenabled()
        with collection_paused():
            pass
        assert not gc.isenabled()
        raise KeyError
    assert gc.isenabled()


def test_a_program_that_collects_no_garbage_stays_that_way() -> None:
    gc.disable()
    try:
        with collection_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_user_code_within_a_pause_is_collected_but_does_not_pay_for_the_objects_of_the_pause() -> None:
    collections: list[int] = []

    def collected(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            collections.append(info["generation"])

    thresholds = gc.get_threshold()
    gc.callbacks.append(collected)
    try:
        with collection_paused() as pause:
            kept = [[number] for number in range(20_000)]
            with pause.lifted():
                more = [[number] for number in range(thresholds[0] + 1)]
            assert not collections, "fewer objects than the pause left"
            with pause.lifted():
                more += [[number] for number in range(3 * len(kept))]
            assert collections
            assert not gc.isenabled()
            del kept, more
            collections.clear()
        assert not collections
    finally:
        gc.callbacks.remove(collected)
    assert gc.isenabled()
    assert gc.get_threshold() == thresholds


def test_pauses_of_two_drivers_that_overlap_leave_the_collector_as_it_was() -> None:
    thresholds = gc.get_threshold()
    with ExitStack() as first, ExitStack() as second:
        one = first.enter_context(collection_paused())
        other = second.enter_context(collection_paused())
        with one.lifted(), other.lifted():
            assert gc.isenabled()
        first.close()
        with other.lifted():
            assert gc.isenabled()
    assert gc.isenabled()

    one_lifted, other_lifted = ExitStack(), ExitStack()
    with collection_paused() as one:
        kept = [[number] for number in range(5000)]
        one_lifted.enter_context(one.lifted())
        with collection_paused() as other:
            other_lifted.enter_context(other.lifted())
            one_lifted.close()
            other_lifted.close()
            del kept
    assert gc.isenabled()
    assert gc.get_threshold() == thresholds


def test_thresholds_that_user_code_sets_within_a_pause_stay() -> None:
    thresholds = gc.get_threshold()
    try:
        with collection_paused() as pause, pause.lifted():
            gc.set_threshold(123, 4, 5)
        assert gc.get_threshold() == (123, 4, 5)
    finally:
        gc.set_threshold(*thresholds)
