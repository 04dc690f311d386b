"""What clients do while faults happen: submit, cancel, save, rescale and end jobs."""

from __future__ import annotations

import random
import secrets
import threading
import time
from pathlib import Path
from typing import NamedTuple

from chaos.faults import Violation
from chaos.service.cluster import Cluster, NotAnswered
from chaos.service.jobs import CANCEL, FINISH, RUN, STOP, Victim
from penstock.driver.assignment import Verdict
from penstock.rest.client import NotKnown, NotNow, RestClient
from penstock.rest.contract import AsynchronousOperationResult, TriggerResponse

_WIDTHS = (1, 2, 3)
_POLL_S = 0.5


class Done(NamedTuple):
    """What a client did."""

    action: str
    text: str
    job: Victim | None = None
    failure: str = ""
    """Why it failed."""


class Clients:
    """Acts on the jobs of a cluster, with at most `most` of them at once."""

    def __init__(self, cluster: Cluster, folder: Path, jobs: list[Victim], most: int, patience_s: float) -> None:
        self._cluster = cluster
        self._folder = folder
        self._jobs = jobs
        self._most = most
        self._patience_s = patience_s

    def running(self) -> list[Victim]:
        """Return the jobs that no client has cancelled, stopped or ended."""
        return [job for job in self._jobs if job.wanted == RUN and job.acknowledged]

    def submit(self) -> Done:
        """Submit a job."""
        job = Victim(self._folder / f"job-{len(self._jobs) + 1}")
        self._jobs.append(job)
        self._cluster.submit(job, self._patience_s)
        return Done("submit", f"submitted {job.id[:6]}", job)

    def act(self, action: str, dice: random.Random) -> Done:
        """Carry out an action on a running job. Raises Violation if it is not acknowledged."""
        running = self.running()
        try:
            if action == "submit" and len(running) < self._most:
                return self.submit()
            if not running:
                return Done("", "no job to act on")
            job = running[0] if action == "submit" else dice.choice(running)
            if action == "cancel":
                job.wanted = CANCEL
                self._cluster.cancel(job, self._patience_s)
                return Done(action, f"cancelled {job.id[:6]}", job)
            if action in ("submit", "finish"):
                job.wanted = FINISH
                job.end_input()
                return Done("finish", f"ended the input of {job.id[:6]}", job)
            return self._operate(job, action, dice)
        except NotAnswered as error:
            raise Violation(f"{action}: the service did not answer for {self._patience_s:.0f} s: {error}") from None

    def _operate(self, job: Victim, action: str, dice: random.Random) -> Done:
        """Trigger a savepoint, a stop or a rescale, and wait for its result, which can be a failure."""
        trigger, width = secrets.token_hex(16), dice.choice([each for each in _WIDTHS if each != job.width])
        if action == "rescale":
            job.width = None
        asked = self._cluster.ask(lambda client: self._trigger(client, job, action, trigger, width), self._patience_s)
        found = self._result(job, action, asked)
        failure = "the service does not know it any more" if found is None else ""
        if found is not None and "failure-cause" in found.operation:
            failure = str(found.operation["failure-cause"])
        if action == "stop" and (savepoint := self._stopped_with(job)):
            job.wanted = STOP
            job.saved.append(savepoint)
        if failure:
            return Done(action, f"{action} of {job.id[:6]} failed", job, failure)
        assert found is not None
        if action == "rescale":
            job.width = width
        else:
            job.saved.append(found.operation["location"])
        if action == "stop" and job.wanted != STOP:
            raise Violation(f"job {job.id} was reported as stopped, but its records do not say so")
        return Done(action, f"{action} of {job.id[:6]} completed", job)

    def _trigger(self, client: RestClient, job: Victim, action: str, trigger: str, width: int) -> str:
        path = f"/jobs/{job.id}"
        if action == "rescale":
            return client.patch(f"{path}/rescaling", TriggerResponse, parallelism=str(width)).request_id
        if action == "savepoint":
            body = {"target-directory": str(job.savepoints), "triggerId": trigger}
            return client.post(f"{path}/savepoints", TriggerResponse, body).request_id
        try:
            body = {"targetDirectory": str(job.savepoints), "triggerId": trigger}
            return client.post(f"{path}/stop", TriggerResponse, body).request_id
        except NotNow:
            # The answer to an earlier request was lost.
            if self._stopped_with(job):
                return trigger
            raise

    def _stopped_with(self, job: Victim) -> str:
        """Return the savepoint that the records name if the job was stopped."""
        verdict = self._cluster.view(job).verdict
        return verdict.savepoint if verdict is not None and verdict.verdict is Verdict.STOPPED else ""

    def _result(self, job: Victim, action: str, asked: str) -> AsynchronousOperationResult | None:
        """Poll an operation until it has ended. Return None if its JobManager, which keeps operations, has died."""
        path = f"/jobs/{job.id}/{'rescaling' if action == 'rescale' else 'savepoints'}/{asked}"
        deadline = time.monotonic() + self._patience_s
        while time.monotonic() < deadline:
            try:
                found = self._cluster.ask(lambda client: _poll(client, path), 5.0)
            except NotAnswered:
                continue
            if found is None or found.status.id == "COMPLETED":
                return found
            time.sleep(_POLL_S)
        raise Violation(f"a {action} of job {job.id} did not end within {self._patience_s:.0f} s")


def _poll(client: RestClient, path: str) -> AsynchronousOperationResult | None:
    try:
        return client.get(path, AsynchronousOperationResult)
    except NotKnown as error:
        # A job that was acknowledged is always known.
        if "no operation" not in str(error):
            raise
        return None


class Acting(threading.Thread):
    """An action that begins after a delay, while the rig injects a fault."""

    def __init__(self, clients: Clients, action: str, dice: random.Random, delay_s: float) -> None:
        super().__init__(name=f"act-{action}", daemon=True)
        self._clients, self._action, self._dice, self._delay_s = clients, action, dice, delay_s
        self._did = Done("", "nothing")
        self._error: BaseException | None = None

    def run(self) -> None:
        time.sleep(self._delay_s)
        try:
            self._did = self._clients.act(self._action, self._dice)
        except BaseException as error:
            self._error = error

    def result(self) -> Done:
        """Wait for the end, and return what the client did. Raises Violation."""
        self.join()
        if self._error is not None:
            raise self._error
        return self._did
