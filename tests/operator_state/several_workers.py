"""Several workers in the harness: as on Spark, any of them can run any subtask, with the functions it kept."""

from collections.abc import Callable
from typing import Any

from penstock.testing import JobHarness


class Workers:
    """Runs a harness's epochs in `count` workers, which keep their functions until something fails in them."""

    def __init__(self, job: JobHarness, count: int = 2) -> None:
        self.job = job
        self._kept: list[dict[Any, Any]] = [{} for _ in range(count)]

    def epoch(self, choose: Callable[[int], int], records: int | None = None) -> None:
        """Run an epoch in which `choose(subtask)` is the worker of a subtask.

        After a crash the workers keep their functions: the next epoch must not trust them.
        """
        engine = self.job._engine
        names = [
            (chain.id, subtask)
            for chain in self.job._graph.chains
            for subtask in (range(chain.parallelism) if chain.parallelism else [None])
        ]
        chosen = {name: self._kept[choose(name[1] or 0)] for name in names}
        engine.runs.clear()
        for name, kept in chosen.items():
            if name in kept:
                engine.runs[name] = kept.pop(name)
        self.job.epoch(records)
        for name, run in engine.runs.items():
            chosen[name][name] = run
        engine.runs.clear()
