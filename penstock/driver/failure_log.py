"""The failures of a job, for its snapshot. Bounded, because a job can restart for months."""

from __future__ import annotations

import re
import threading
import traceback
from collections import deque
from collections.abc import Callable, Sequence

from penstock.common.masking import masked_start
from penstock.driver.epoch_errors import EpochFailed
from penstock.driver.job_snapshot import ExceptionSnapshot
from penstock.driver.vertices import first_uid, parallelism_of, subtask_of
from penstock.graph.physical import PhysicalGraph
from penstock.runtime.metrics import NOWHERE
from penstock.runtime.plan import Chain
from penstock.runtime.rows import Failure

KEPT = 32
"""Failures that a snapshot lists."""
_MOST_CONCURRENT = 8
"""Other failures of an epoch that are kept: all tasks of a stage can fail for the same reason."""
_LONGEST = 32_768
"""Characters of a stack trace. A record inside a message can have any length."""
_ERROR = re.compile(r"([\w.]+)(?::|$)")
_LAST_ERROR = re.compile(r"\nTraceback [^\n]*\n(?: [^\n]*\n)*([\w.]+)(?::|\n|$)")


class FailureLog:
    """The last failures. Thread-safe."""

    def __init__(self, parallelism: int, mask: Callable[[str], str], attempt: int = 0) -> None:
        """`parallelism`: the job's, which is shown as that of its sources. `mask` removes secrets from a text."""
        self._attempt = attempt
        self._parallelism = parallelism
        self._mask = mask
        self._lock = threading.Lock()
        self._failures: deque[ExceptionSnapshot] = deque(maxlen=KEPT)
        self._count = 0
        self.culprit: tuple[int, int] | None = None
        """Chain and subtask of the last failure, if it belongs to one."""

    def restore(self, earlier: Sequence[ExceptionSnapshot], dropped: int) -> None:
        """Begin with the failures of earlier attempts of a cluster's job, of which `dropped` more are not known."""
        with self._lock:
            self._failures.extend(earlier)
            self._count = dropped + len(earlier)

    def add(self, error: BaseException, graph: PhysicalGraph, restart: int, at_ms: int) -> ExceptionSnapshot:
        """Add a failure and return its snapshot. `restart`: how often the job had restarted before."""
        failure = error.failures[0] if isinstance(error, EpochFailed) and error.failures else None
        place = error.place if isinstance(error, EpochFailed) else NOWHERE
        found = None if failure is None else self._task_of(graph, failure)
        others = error.failures[1 : _MOST_CONCURRENT + 1] if isinstance(error, EpochFailed) else ()
        entry = ExceptionSnapshot(
            name=_name(error, failure),
            message=masked_start(str(error), _LONGEST, self._mask),
            trace=masked_start(_trace(error, failure), _LONGEST, self._mask),
            at_ms=at_ms,
            attempt=self._attempt,
            restart=restart,
            task=self._name_of(found),
            host=place.host,
            executor=place.executor,
            concurrent=[
                ExceptionSnapshot(
                    name=_name(error, each),
                    message=masked_start(each.error, _LONGEST, self._mask),
                    trace=masked_start(f"{each.traceback}\n{each.error}".strip(), _LONGEST, self._mask),
                    at_ms=at_ms,
                    attempt=self._attempt,
                    restart=restart,
                    task=self._name_of(self._task_of(graph, each)),
                )
                for each in others
            ],
        )
        with self._lock:
            self.culprit = None if found is None else (found[0].id, found[1])
            self._failures.append(entry)
            self._count += 1
        return entry

    def _task_of(self, graph: PhysicalGraph, failure: Failure) -> tuple[Chain, int] | None:
        for chain in graph.chains:
            if failure.uid and failure.uid in (first_uid(chain), *(each.uid for each in chain.operators)):
                return chain, max(0, subtask_of(chain, failure.subtask, self._parallelism))
        return None

    def _name_of(self, found: tuple[Chain, int] | None) -> str:
        if found is None:
            return ""
        chain, subtask = found
        name = f"Source: {chain.name}" if chain.source_uid is not None else chain.name
        return f"{name} ({subtask + 1}/{parallelism_of(chain, self._parallelism)})"

    def read(self) -> tuple[list[ExceptionSnapshot], int]:
        """Return the last failures, oldest first, and how many older ones were dropped."""
        with self._lock:
            return list(self._failures), self._count - len(self._failures)


def class_in_traceback(text: str) -> str:
    """Return the class of the error that Python printed with a traceback; empty if the text has none."""
    found = _LAST_ERROR.findall(f"\n{text}")
    return found[-1] if found else ""


def _name(error: BaseException, failure: Failure | None) -> str:
    """Return the class of the user's error, or of ours."""
    lines = failure.error.strip("\n").splitlines() if failure is not None and failure.from_user else []
    # A message can have several lines. Indented ones come before that of a SyntaxError.
    found = _ERROR.match(next((line for line in lines if not line.startswith(" ")), ""))
    return found[1] if found is not None else type(error).__name__


def _trace(error: BaseException, failure: Failure | None) -> str:
    # The message of an epoch's failure has the traceback of the task; that of the driver explains nothing.
    return str(error) if failure is not None else "".join(traceback.format_exception(error))
