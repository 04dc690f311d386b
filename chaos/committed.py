"""Read the victim's committed state from its checkpoint directory with the harness, without Spark or replicas."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chaos.ends.programs import build
from penstock.common import Configuration
from penstock.datastream import StreamExecutionEnvironment
from penstock.state.local_storage import LocalStorage
from penstock.testing import JobHarness

STATES = [
    ("first", "n"),
    ("first", "ids"),
    ("first", "sums"),
    ("first", "note"),
    ("first", "tags"),
    ("second", "n"),
    ("second", "total"),
    ("second", "tags"),
]


COUNTED = [("first", "n"), ("second", "n"), ("second", "total")]
"""States that depend only on the records read, not on event time."""


def saved_states(path: str, ends: dict[str, str]) -> tuple[dict[tuple[str, str], dict[int, Any]], list[int]]:
    """Return the states of a savepoint that depend only on the records read, and the numbers of those records."""
    with JobHarness(_program(ends), parallelism=2, from_savepoint=path) as job:
        held = {(operator, name): job.states(name, operator) for operator, name in COUNTED}
        return held, sorted(number for tags in job.states("tags", "first").values() for number in tags)


def committed_states(lineage: Path, ends: dict[str, str]) -> tuple[dict[tuple[str, str], dict[int, Any]], list[Any]]:
    """Return every state of both stages by key, and the timers that are still set in any operator."""
    with JobHarness(_program(ends), parallelism=2, backend="filesystem", storage=LocalStorage(lineage)) as job:
        states = {(operator, name): job.states(name, operator) for operator, name in STATES}
        timers = [timer for operator in ("first", "second", "windows") for timer in job.timers(operator)]
    return states, timers


@dataclass(frozen=True)
class Left:
    """What a job left behind that ended before its input did."""

    states: dict[tuple[str, str], dict[int, Any]]
    timers_to: int
    """The watermark of the stage with timers."""
    windows_to: int


def finish_output(lineage: Path, ends: dict[str, str]) -> Left:
    """Make the committed part of open output files visible, and return the committed state.

    A job that keeps its checkpoints when it is cancelled keeps these files open, for a job that resumes.
    """
    with JobHarness(_program(ends), parallelism=2, backend="filesystem", storage=LocalStorage(lineage)) as job:
        states = {(operator, name): job.states(name, operator) for operator, name in STATES}
        left = Left(states, job.watermark_of("first"), job.watermark_of("windows"))
        job.cancel()
    return left


def _program(ends: dict[str, str]) -> StreamExecutionEnvironment:
    env = StreamExecutionEnvironment.get_execution_environment(Configuration())
    build(env, ends, 1000, 0)
    return env
