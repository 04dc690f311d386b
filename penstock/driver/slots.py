"""Slots: how many a job needs, how many the engine has, and whether the job waits for missing ones.

A slot runs one subtask of each operator, so a job needs as many slots as its widest operator has subtasks. On Spark a
slot runs one task: it is one core, or `spark.task.cpus` cores.
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

_PATIENCE_S = 10.0
"""How long a job waits for its first slot without a warning: executors take seconds to start."""

_logger = logging.getLogger("penstock")


class TooFewSlots(PenstockError):
    """A job waited too long for slots. Operator action: give Spark more cores, or lower the job's parallelism."""

    retryable = False


class TooFewSlotsToRescale(PenstockError):
    """A job would wait for slots at the requested parallelism. Nothing changed; the job continues.

    Operator action: give Spark the cores that the message names, then rescale again.
    """


@dataclass(frozen=True)
class SlotSettings:
    wait: bool = SLOTS_WAIT.default
    """Whether the job waits while it has too few slots. If not, its tasks take turns."""
    timeout_ms: int = SLOT_TIMEOUT.default
    """Maximum time to wait."""


def slot_settings(configuration: Configuration) -> SlotSettings:
    return SlotSettings(configuration.get(SLOTS_WAIT), configuration.get(SLOT_TIMEOUT))


def widest(graph: PhysicalGraph) -> Chain | None:
    """Return the task with the most subtasks, or None if all operators run in source chains, once per partition."""
    return max((chain for chain in graph.chains if chain.level > 0), key=lambda chain: chain.parallelism, default=None)


def slots_needed(graph: PhysicalGraph) -> int:
    chain = widest(graph)
    return 1 if chain is None else chain.parallelism


class Slots:
    """Call `await_first` before the first task, and `await_enough` before each epoch, from the thread that runs it."""

    def __init__(
        self,
        job: str,
        graph: Callable[[], PhysicalGraph],
        available: Callable[[], int],
        settings: SlotSettings,
        pause: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
        on_wait: Callable[[bool], None] = lambda waits: None,
    ) -> None:
        """`graph` returns the current graph, because the job can be rescaled while it waits.

        `available` returns the engine's slots. `pause` waits a moment and returns whether to continue. `on_wait` is
        called when the job begins to wait, and when it no longer does.
        """
        self._job = job
        self._graph = graph
        self._available = available
        self._settings = settings
        self._pause = pause
        self._clock = clock
        self._on_wait = on_wait
        self._lock = threading.Lock()
        self._short_since: float | None = None
        self._has_none = False
        """Whether the job waits for its first slot."""
        self.needed = self.available = 0
        """Values at the last check; 0 before it."""

    @property
    def waits(self) -> bool:
        """Whether the job now waits for slots."""
        return self._has_none or (self._settings.wait and self._short_since is not None)

    @property
    def takes_turns(self) -> bool:
        """Whether tasks of the job now take turns, because slots are missing."""
        return not self._settings.wait and self._short_since is not None

    def check_rescale(self, graph: PhysicalGraph) -> None:
        """Raise TooFewSlotsToRescale if the job would wait for slots with this graph. Call from any thread."""
        needed, available = slots_needed(graph), self._available()
        if self._settings.wait and available < needed:
            raise TooFewSlotsToRescale(
                f"Job '{self._job}' would wait for slots: it would need {needed}{_for_widest(graph)}, but Spark has "
                f"{available}. It keeps its parallelism.",
                fix=f"Give Spark {needed} cores first, rescale the job to a parallelism of {max(available, 1)}, or set "
                f"{SLOTS_WAIT.key} to false to let its tasks take turns.",
            )

    def await_first(self, pause: Callable[[], bool]) -> bool:
        """Wait until the engine has a slot, whatever the settings: without one, no task can even take its turn.

        `pause` waits a moment and returns whether to continue. Return False if it did not. Raises TooFewSlots.
        """
        since, warned = self._clock(), False
        try:
            while not self._has_any():
                waited_s = self._clock() - since
                if waited_s * 1000 >= self._settings.timeout_ms:
                    raise TooFewSlots(
                        f"Job '{self._job}' waited {self._timeout} for an executor ({SLOT_TIMEOUT.key}). "
                        f"{self._shortage(self._graph())}.",
                        fix="Make sure that Spark has a worker with free cores and with the memory that "
                        f"spark.executor.memory asks for, or raise {SLOT_TIMEOUT.key}. Other applications hold their "
                        "cores until they end.",
                    )
                if waited_s >= _PATIENCE_S and not warned:
                    warned = True
                    _logger.warning(
                        "%s. It waits for an executor, at most %s (%s). Other applications hold their cores until "
                        "they end.",
                        self._shortage(self._graph()),
                        self._timeout,
                        SLOT_TIMEOUT.key,
                    )
                if not pause():
                    return False
            return True
        finally:
            self._has_none = False

    def _has_any(self) -> bool:
        with self._lock:
            self.needed, self.available = slots_needed(self._graph()), self._available()
            self._has_none = self.available == 0
        return not self._has_none

    def await_enough(self) -> bool:
        """Wait until the next epoch can begin. Return False if the job was ended meanwhile. Raises TooFewSlots."""
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
                    _logger.info("Job '%s' now has the %d slots it needs.", self._job, self.needed)
                waited, self._short_since = self.waits, None
                if waited:
                    self._on_wait(False)
                return True
            now = self._clock()
            if self._short_since is None:
                self._short_since = now
                self._warn(graph)
                if self.waits:
                    self._on_wait(True)
            if not self._settings.wait:
                return True
            if (now - self._short_since) * 1000 >= self._settings.timeout_ms:
                raise TooFewSlots(
                    f"Job '{self._job}' waited {self._timeout} for slots ({SLOT_TIMEOUT.key}). "
                    f"{self._shortage(graph)}.",
                    fix=f"{self._remedies()}, raise {SLOT_TIMEOUT.key}, or set {SLOTS_WAIT.key} to false to let its "
                    f"tasks take turns.",
                )
            return False

    def _warn(self, graph: PhysicalGraph) -> None:
        if self._settings.wait:
            _logger.warning(
                "%s. It waits for slots, at most %s (%s).", self._shortage(graph), self._timeout, SLOT_TIMEOUT.key
            )
        else:
            _logger.warning(
                "%s. It continues, and its tasks take turns. %s, or set %s to true to make it wait.",
                self._shortage(graph),
                self._remedies(),
                SLOTS_WAIT.key,
            )

    @property
    def _timeout(self) -> str:
        return f"{self._settings.timeout_ms / 1000:g} s"

    def _shortage(self, graph: PhysicalGraph) -> str:
        return f"Job '{self._job}' needs {self.needed} slots{_for_widest(graph)}, but Spark has {self.available}"

    def _remedies(self) -> str:
        # Only the engine knows the name of the master, but Spark always counts cores.
        return f"Give Spark {self.needed} cores, rescale the job to a parallelism of {max(self.available, 1)}"


def _for_widest(graph: PhysicalGraph) -> str:
    chain = widest(graph)
    return "" if chain is None else f", for '{chain.name}' (uid '{chain.operators[0].uid}')"
