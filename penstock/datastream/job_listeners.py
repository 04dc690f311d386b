"""Job listeners: objects that hear when a job starts and ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from penstock.common.job import JobExecutionResult
from penstock.common.job_client import JobClient
from penstock.graph.logical import GraphError


class JobListener:
    """Hears when a job starts and ends. Subclass it and pass an instance to ``env.register_job_listener``.

    One of the two arguments of each method is None.
    """

    def on_job_submitted(self, job_client: JobClient | None, throwable: BaseException | None) -> None:
        """Called when the job has started, or could not start."""

    def on_job_executed(self, job_execution_result: JobExecutionResult | None, throwable: BaseException | None) -> None:
        """Called when ``execute`` has waited for the end of the job."""


class JobListeners:
    """The listeners of one environment, called in the order of registration."""

    def __init__(self) -> None:
        self._listeners: list[Any] = []

    def add(self, listener: Any) -> None:
        """Add a listener, which can define either method, or both."""
        if isinstance(listener, type):
            raise GraphError(
                f"register_job_listener received the class {listener.__name__} instead of an instance.",
                fix=f"Write register_job_listener({listener.__name__}()).",
            )
        self._listeners.append(listener)

    def all(self) -> list[Any]:
        """Return the listeners."""
        return list(self._listeners)

    def clear(self) -> None:
        """Remove all listeners."""
        self._listeners.clear()

    def submitted(self, client: JobClient) -> None:
        """Tell the listeners that the job has started."""
        self._call("on_job_submitted", client, None)

    def executed(self, result: JobExecutionResult) -> None:
        """Tell the listeners that the job has ended."""
        self._call("on_job_executed", result, None)

    @contextmanager
    def hearing_failure(self, method: str) -> Iterator[None]:
        """Call this method of the listeners with the exception that leaves the context."""
        try:
            yield
        except Exception as error:
            self._call(method, None, error)
            raise

    def _call(self, method: str, done: Any, error: BaseException | None) -> None:
        for listener in self._listeners:
            function = getattr(listener, method, None)
            if function is not None:
                function(done, error)
