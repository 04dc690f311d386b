"""Watches the files of all jobs of a run, as other programs could, and notes how far cancelled ones got."""

from __future__ import annotations

import threading
import time

from chaos.service.jobs import Victim

_PAUSE_S = 0.5
_CANCEL_S = 10.0
"""After this time a cancelled job commits no records."""


class Watch:
    """A thread, as a context manager. Append to `jobs` from any thread."""

    def __init__(self) -> None:
        self.jobs: list[Victim] = []
        self.failure: BaseException | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def _run(self) -> None:
        try:
            while not self._stopped.wait(_PAUSE_S):
                self._look()
        except BaseException as error:  # the rig reports it
            self.failure = error

    def _look(self) -> None:
        for job in list(self.jobs):
            job.observer.look()
            if job.frozen is None and job.cancelled_at is not None and time.monotonic() > job.cancelled_at + _CANCEL_S:
                job.frozen = job.records_read()

    def violations(self) -> list[str]:
        """Return what must not be visible, but was."""
        if self.failure is not None:
            raise self.failure
        return [f"job {job.id}: {each}" for job in list(self.jobs) for each in job.observer.violations]

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stopped.set()
        self._thread.join()
