"""Watches the files and processes of all jobs of a run, as other programs could."""

from __future__ import annotations

import threading
import time

from chaos.service.cluster import Cluster
from chaos.service.jobs import Victim

_PAUSE_S = 0.5
_CANCEL_S = 10.0
"""After this time a cancelled job commits no records."""
_KILL_S = 5.0
"""Time for a Dispatcher to kill a job that has not ended by itself then."""


class Watch:
    """A thread, as a context manager. Append to `jobs` from any thread."""

    def __init__(self, cluster: Cluster) -> None:
        self.jobs: list[Victim] = []
        self.failure: BaseException | None = None
        self._cluster = cluster
        self._found: list[str] = []
        self._led_since: float | None = None
        """Since when a Dispatcher leads, as far as that matters to a cancelled job."""
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def _run(self) -> None:
        try:
            while not self._stopped.wait(_PAUSE_S):
                self.look()
        except BaseException as error:  # the rig reports it
            self.failure = error

    def look(self) -> None:
        """Look once at everything."""
        # Cancelled jobs first: to look at files takes a while.
        cancelled = [(job, job.cancelled_at) for job in list(self.jobs) if job.cancelled_at is not None]
        for job, at in cancelled:
            if job.frozen is None and time.monotonic() > at + _CANCEL_S:
                job.frozen = job.records_read()
        self._look_at_processes([(job, at) for job, at in cancelled if not job.watched])
        for job in list(self.jobs):
            job.observer.look()

    def _look_at_processes(self, cancelled: list[tuple[Victim, float]]) -> None:
        """Find cancelled jobs that still run. Only a Dispatcher that leads can kill one that does not end by itself."""
        if not cancelled or self._cluster.leader() is None:
            self._led_since = None
            return
        now = time.monotonic()
        self._led_since = now if self._led_since is None else self._led_since
        for job, at in cancelled:
            if now > max(at, self._led_since) + _CANCEL_S + _KILL_S:
                job.watched = True
                self._found += [
                    f"job {job.id}: attempt {number} still runs, more than {_CANCEL_S:.0f} s after the cancellation"
                    for number in self._cluster.runs(job)
                ]

    def violations(self) -> list[str]:
        """Return what must not be visible, but was."""
        if self.failure is not None:
            raise self.failure
        return [*self._found, *(f"job {job.id}: {each}" for job in list(self.jobs) for each in job.observer.violations)]

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stopped.set()
        self._thread.join()
