"""Hints that slow and short-handed jobs provoke, and that disappear with their cause.

The jobs run in the harness, on a clock that only the test advances.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from watched_harness import Watched, environment

from penstock.connectors.source import Positions
from penstock.datastream import DataStream, StreamExecutionEnvironment
from penstock.datastream.connectors import Sink, SinkWriter, Source
from penstock.driver.epoch_parameters import EpochParameters
from penstock.driver.epoch_settings import Settings
from penstock.driver.slots import Slots, SlotSettings
from penstock.testing import JobHarness

START = 1_760_000_000_000
QUEUE: list[int] = []
"""The records of the queue that `Queue` reads."""


@pytest.fixture(autouse=True)
def _empty_queue() -> Iterator[None]:
    QUEUE.clear()
    yield
    QUEUE.clear()


class Queue(Source):
    """Reads `QUEUE`, and reports how much of it waits."""

    def advance(self, positions: Positions, limit: int | None) -> Positions:
        begin = positions.get("0") or 0
        return {"0": len(QUEUE) if limit is None else min(len(QUEUE), begin + limit)}

    def read(self, split: str, start: Any, end: Any) -> Any:
        return QUEUE[start or 0 : end]

    def backlog(self, positions: Positions) -> int:
        return len(QUEUE) - (positions.get("0") or 0)


def scored(env: StreamExecutionEnvironment) -> DataStream:
    orders = env.from_source(Queue(), source_name="orders")
    return orders.key_by(lambda n: n % 7).map(lambda n: n).name("score").uid("score")


def run_for(watched: Watched, seconds: int, per_second: int) -> list[list[str]]:
    """Run epochs of at least a second while records arrive, and return the kinds of hints after each."""
    job, seen = watched.job, []
    for _ in range(seconds):
        next_second = job.clock.now() + 1000
        QUEUE.extend(range(per_second))
        job.epoch()
        job.set_clock(int(max(next_second, job.clock.now())))
        seen.append(watched.kinds(after_s=0))
    return seen


def test_a_growing_backlog_is_reported_until_the_job_catches_up() -> None:
    env = environment(execution__checkpointing__interval="1 s", penstock__flow__enabled="true")
    with JobHarness(scored(env), parallelism=2, backend="filesystem") as job:
        watched = Watched(job.set_clock(START))
        job.set_pace(0.001, "score")
        assert not any(run_for(watched, 20, per_second=300))
        # Fewer records are processed than arrive.
        job.set_pace(0.015, "score")
        seen = run_for(watched, 30, per_second=300)
        # Flow control keeps checkpoints close to their interval, so they are not reported as slow.
        assert seen[5:] == [["backlog"]] * 25
        hint = watched.hint("backlog")
        assert hint is not None
        assert "The backlog of source 'orders' grew from 1.0 k to 6.0 k records in " in hint.text
        assert "'score -> Collect', the busiest chain (100 %)" in hint.fix
        job.set_pace(0.001, "score")
        while run_for(watched, 1, per_second=300) == [["backlog"]]:
            pass
        # It disappears once the backlog shrinks, before nothing waits any more.
        assert job.backlog()
        assert not any(run_for(watched, 10, per_second=300))
        assert not job.backlog()


class Table(Sink):
    """A sink whose commits take some seconds on the clock of the harness."""

    def __init__(self, concurrent: bool) -> None:
        self.concurrent_commit = concurrent
        self.seconds = 0.01
        self.wait: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def create_writer(self, context: Any) -> SinkWriter:
        return Rows()

    def commit(self, commits: list[Any], context: Any) -> None:
        self.wait(self.seconds)


class Rows(SinkWriter):
    def begin_epoch(self, epoch: Any) -> None:
        self.rows = 0

    def write(self, value: Any) -> None:
        self.rows += 1

    def prepare_commit(self) -> bytes | None:
        return b"%d" % self.rows if self.rows else None


@pytest.mark.parametrize("concurrent", [False, True], ids=["in turn", "concurrently"])
def test_a_sink_that_holds_up_epochs_is_reported_until_it_is_fast_again(concurrent: bool) -> None:
    env, table = environment(), Table(concurrent)
    env.from_collection([]).uid("rows").map(lambda n: n).uid("work").sink_to(table).name("accounts").uid("accounts")
    with JobHarness(env, backend="filesystem", commits_late=concurrent) as job:
        table.wait = job.clock.wait
        watched = Watched(job.set_clock(START))
        job.set_pace(0.001, "work")

        def kinds_after_epochs() -> list[str]:
            for _ in range(6):
                job.push(*range(100)).epoch()
            return watched.kinds(after_s=1)

        assert kinds_after_epochs() == []
        table.seconds = 2.0
        assert kinds_after_epochs() == ["sink"]
        hint = watched.hint("sink")
        assert hint is not None
        assert hint.text == "Sink 'accounts' holds up the epochs: each waits 2.0 s of 2.1 s for commits."
        table.seconds = 0.01
        assert kinds_after_epochs() == []


def timed_in_epochs(**settings: str) -> DataStream:
    records = environment(**settings).from_collection([]).uid("in")
    return records.key_by(lambda n: n % 7).map(lambda n: n).name("work").uid("work")


def test_checkpoints_slower_than_their_interval_are_reported_until_one_is_faster() -> None:
    stream = timed_in_epochs(execution__checkpointing__interval="2 s")
    with JobHarness(stream, backend="filesystem") as job:
        watched = Watched(job.set_clock(START))
        job.set_pace(0.01, "work")

        def kinds_after(records: int) -> list[str]:
            job.push(*range(records)).epoch()
            return watched.kinds(after_s=0)

        # The first checkpoint of a job takes longer, because workers start.
        assert kinds_after(500) == []
        assert kinds_after(500) == ["checkpoint"]
        hint = watched.hint("checkpoint")
        assert hint is not None
        assert hint.text == (
            "Checkpoint 2 took 5.0 s, longer than the interval of 2.0 s, and so did the one before it."
        )
        assert kinds_after(100) == []


def test_a_slow_job_without_further_input_is_not_reported_for_long() -> None:
    stream = timed_in_epochs(execution__checkpointing__interval="2 s")
    with JobHarness(stream, parallelism=4, backend="filesystem") as job:
        watched = Watched(job.set_clock(START))
        job.set_pace(0.01, "work")
        for _ in range(3):
            job.push(*[7] * 1000).epoch()
        assert watched.kinds(after_s=0) == ["checkpoint", "skew"]
        job.set_clock(job.clock.shown + 601_000)  # type: ignore[operator]
        assert watched.kinds(after_s=0) == []


def test_a_checkpoint_that_expires_is_reported_until_another_attempt_completes() -> None:
    settings = Settings(timeout_ms=5000, tolerable_failures=1)
    with JobHarness(timed_in_epochs(), backend="filesystem", settings=settings) as job:
        watched = Watched(job.set_clock(START))
        job.push(1).epoch()
        job.set_clock(START + 1000)
        execute, durations, seen = job._engine.execute, [6.0, 0.1], []

        def timed(parameters: EpochParameters) -> Iterable[tuple[int, bytes]]:
            seen.append(watched.found(after_s=0))
            job.clock.wait(durations.pop(0))
            return execute(parameters)

        job._engine.execute = timed  # type: ignore[method-assign,assignment]
        job.push(1).epoch()
        first, ((hint),) = seen
        assert first == []
        assert hint.text == "Checkpoint 2 failed: it took 6000 ms, more than the checkpoint timeout of 5000 ms"
        assert hint.fix.endswith("raise execution.checkpointing.timeout.")
        assert watched.kinds(after_s=1) == []


def test_missing_slots_are_reported_until_executors_have_come() -> None:
    with JobHarness(timed_in_epochs(), parallelism=4, backend="filesystem") as job:
        watched = Watched(job.set_clock(START))
        available, seen = [2], []

        def pause() -> bool:
            seen.extend(watched.found(after_s=0))
            available[0] = 4
            return True

        job._driver.slots = slots = Slots(
            "harness",
            lambda: job._driver.graph,
            lambda: available[0],
            SlotSettings(wait=True),
            pause,
            lambda: job.clock.elapsed() / 1000,
            job._execution.observer.waits_for_slots,
        )
        assert slots.await_enough()
        (hint,) = seen
        assert hint.text == "The job waits for slots: it needs 4, and 2 are available."
        job.push(1).epoch()
        assert watched.kinds(after_s=1) == []
