"""Slots: how many a job needs, against how many the engine has; and whether it waits for those that are missing.

A slot runs one subtask of each operator, so a job needs as many as its widest operator has subtasks. On Spark a slot
is what runs one task: a core, or `spark.task.cpus` of them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from penstock.common.configuration import Configuration
from penstock.common.options.running import SLOT_TIMEOUT, SLOTS_WAIT
from penstock.errors import PenstockError
from penstock.graph.physical import PhysicalGraph
from penstock.runtime.plan import Chain

_logger = logging.getLogger("penstock")


class TooFewSlots(PenstockError):
    """A job waited for slots as long as it may. Operator action: give Spark more, or the job less parallelism."""

    retryable = False


@dataclass(frozen=True)
class SlotSettings:
    wait: bool = SLOTS_WAIT.default
    """Whether the job waits while it has too few; else its tasks run in turns."""
    timeout_ms: int = SLOT_TIMEOUT.default
    """How long it waits."""


def slot_settings(configuration: Configuration) -> SlotSettings:
    return SlotSettings(configuration.get(SLOTS_WAIT), configuration.get(SLOT_TIMEOUT))


def widest(graph: PhysicalGraph) -> Chain | None:
    """The task with the most subtasks; None where all run in sources' chains, as often as Spark reads partitions."""
    return max((chain for chain in graph.chains if chain.level > 0), key=lambda chain: chain.parallelism, default=None)


def slots_needed(graph: PhysicalGraph) -> int:
    chain = widest(graph)
    return 1 if chain is None else chain.parallelism


class Slots:
    """Order of calls: `await_enough` before each epoch, from any thread that runs one."""

    def __init__(
        self,
        job: str,
        graph: Callable[[], PhysicalGraph],
        available: Callable[[], int],
        settings: SlotSettings,
        pause: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`graph` gives the one in force: the job may be rescaled while it waits. `available` asks the engine. `pause`
        lets a moment pass, and says whether the job is to go on."""
        self._job = job
        self._graph = graph
        self._available = available
        self._settings = settings
        self._pause = pause
        self._clock = clock
        self._lock = threading.Lock()
        self._short_since: float | None = None
        self.needed = self.available = 0
        """As at the last look; 0 before it."""

    def await_enough(self) -> bool:
        """Return when the next epoch may begin. False: the job was ended meanwhile. Raises TooFewSlots."""
        while not self._look():
            if not self._pause():
                return False
        return True

    def _look(self) -> bool:
        with self._lock:
            graph = self._graph()
            self.needed, self.available = slots_needed(graph), self._available()
            if self.available >= self.needed:
                if self._short_since is not None:
                    _logger.info("Job '%s' has the %d slots that it needs.", self._job, self.needed)
                self._short_since = None
                return True
            now = self._clock()
            if self._short_since is None:
                self._short_since = now
                self._warn(graph)
            if not self._settings.wait:
                return True
            if (now - self._short_since) * 1000 >= self._settings.timeout_ms:
                raise TooFewSlots(
                    f"Job '{self._job}' waited {self._timeout} for slots ({SLOT_TIMEOUT.key}). "
                    f"{self._shortage(graph)}.",
                    fix=f"{self._remedies()}, let it wait longer with {SLOT_TIMEOUT.key}, or set {SLOTS_WAIT.key} to "
                    f"false: its tasks then run in turns.",
                )
            return False

    def _warn(self, graph: PhysicalGraph) -> None:
        if self._settings.wait:
            _logger.warning(
                "%s. It waits for them, at most %s (%s).", self._shortage(graph), self._timeout, SLOT_TIMEOUT.key
            )
        else:
            _logger.warning(
                "%s. It goes on, and its tasks run in turns. %s, or set %s to true to let it wait.",
                self._shortage(graph),
                self._remedies(),
                SLOTS_WAIT.key,
            )

    @property
    def _timeout(self) -> str:
        return f"{self._settings.timeout_ms / 1000:g} s"

    def _shortage(self, graph: PhysicalGraph) -> str:
        chain = widest(graph)
        operator = "" if chain is None else f", for '{chain.name}' (uid '{chain.operators[0].uid}')"
        return f"Job '{self._job}' needs {self.needed} slots{operator}, and Spark has {self.available}"

    def _remedies(self) -> str:
        # The name of the master is the engine's affair; that Spark counts cores is not.
        return f"Give Spark {self.needed} cores, rescale the job to a parallelism of {max(self.available, 1)}"
