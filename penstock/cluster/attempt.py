"""An attempt of a job, as the process that runs it sees the records: its claim, its lineage and its decision."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable
from typing import TypeVar

from penstock.cluster.processes import this_process
from penstock.cluster.records import Claim, Ended, Records
from penstock.common.console import SECRETS
from penstock.common.json_text import in_utf_8
from penstock.common.masking import masked_start
from penstock.common.wall_clock import now_ms
from penstock.driver.assignment import RecordedFailure, Superseded, Verdict
from penstock.errors import PenstockError
from penstock.state.storage import StorageError

_RETRY_S = (0.1, 0.5, 1, 2, 4, 8, 16, 30)
"""Pauses between attempts to reach the storage: a decision that is not recorded costs another run of the job."""

_LONGEST_TEXT = 10_000
"""Characters of an error in a record."""

_logger = logging.getLogger("penstock")
_T = TypeVar("_T")


class ChangedLineage(PenstockError):
    """A later attempt of a job would keep its checkpoints at another location than the first one.

    Operator action: restore the setting `state.checkpoints.dir` that the first attempt had, or submit a new job from
    the checkpoint or a savepoint.
    """

    retryable = False


class RecordedAttempt:
    """Implements `Assignment` on the records of a cluster. Thread-safe."""

    def __init__(self, records: Records, job_id: str, attempt: int, finalize: bool = False) -> None:
        self.job_id, self.attempt, self.finalize = job_id, attempt, finalize
        self.token = secrets.token_hex(16)
        self._records = records
        self._resumes: bool | None = None
        self.claimed: Claim | None = None
        self.decided: Ended | None = None
        """How this attempt ended, once this process has decided it."""

    def claim(self, control: str = "") -> bool:
        """Claim the attempt for this process. Return False if another process has it, or it has ended.

        `control` is the directory of its control point, where every Dispatcher of this host can follow it.
        """
        process = this_process()
        claim = self.claimed = Claim(
            token=self.token,
            host=process.host,
            boot=process.boot,
            pid=process.pid,
            started=process.started,
            at_ms=now_ms(),
            control=control,
        )
        return self._patiently(lambda: self._records.claim(self.job_id, self.attempt, claim))

    @property
    def resumes(self) -> bool:
        """Whether an earlier attempt has begun to run the job."""
        if self._resumes is None:
            self._resumes = self.has_lineage
        return self._resumes

    @property
    def has_lineage(self) -> bool:
        """Whether this or an earlier attempt has begun to run the job."""
        return self._patiently(lambda: self._records.view(self.job_id).lineage) is not None

    def bind(self, lineage: str) -> None:
        """Record where the job keeps its checkpoints; empty if it keeps none that outlive the process."""
        _ = self.resumes  # later, the lineage can be that of this attempt
        bound = self._patiently(lambda: self._records.bind_lineage(self.job_id, lineage))
        if bound != lineage:
            raise ChangedLineage(
                f"Job {self.job_id} keeps its checkpoints in '{bound}', but this attempt would use '{lineage}'.",
                fix="Restore the setting state.checkpoints.dir, or submit the program as a new job from a savepoint.",
            )

    def failures(self) -> list[RecordedFailure]:
        """Return the recent failures of the job, oldest first."""
        return self._patiently(lambda: self._records.failures(self.job_id))

    def failed(self, failure: RecordedFailure) -> None:
        """Record a failure of the job, if the storage can be reached."""
        try:
            self._records.add_failure(self.job_id, failure)
        except (StorageError, OSError) as error:
            _logger.warning("A failure of the job is not recorded: %s", error)

    def confirm(self) -> None:
        """Raise Superseded if the attempt has ended."""
        ended = self._patiently(lambda: self._records.view(self.job_id).attempts[self.attempt - 1].ended)
        if ended is not None:
            raise self._superseded(ended)

    def decide(
        self, verdict: Verdict, reason: str = "", savepoint: str = "", removes_checkpoints: bool = False
    ) -> None:
        """Decide how this attempt ended. Raises Superseded if that was decided before."""
        # As the record has it: a decision whose answer was lost is compared with the record.
        text = in_utf_8(masked_start(reason, _LONGEST_TEXT, SECRETS.masked))
        mine = Ended(
            verdict=verdict,
            by=self.token,
            at_ms=now_ms(),
            reason=text,
            savepoint=savepoint,
            removes_checkpoints=removes_checkpoints,
        )
        ended = self._patiently(lambda: self._records.end(self.job_id, self.attempt, mine))
        if ended != mine:
            raise self._superseded(ended)
        self.decided = ended

    def _superseded(self, ended: Ended) -> Superseded:
        return Superseded(
            f"Attempt {self.attempt} of job {self.job_id} was decided before: {ended.verdict.value}. {ended.reason}"
        )

    def _patiently(self, step: Callable[[], _T]) -> _T:
        """Execute a step on the records, and repeat it while the storage cannot be reached."""
        for pause in _RETRY_S:
            try:
                return step()
            except (StorageError, OSError) as error:
                _logger.warning("Cannot reach the records of the cluster, trying again in %s s: %s", pause, error)
                time.sleep(pause)
        return step()
