"""Garbage collections run at a known rate."""

import gc
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress

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
