"""What clients do while faults happen: submit, cancel, save, rescale and end jobs."""

from __future__ import annotations

import random
import secrets
import threading
import time
from pathlib import Path

from chaos.faults import Violation
from chaos.service.cluster import Cluster, NotAnswered
from chaos.service.jobs import CANCEL, FINISH, RUN, Victim
from penstock.rest.client import NotKnown, RestClient
from penstock.rest.contract import AsynchronousOperationResult, TriggerResponse

_WIDTHS = (1, 2, 3)
_POLL_S = 0.5


class Clients:
    """Acts on the jobs of a cluster, with at most `most` of them at once."""

    def __init__(self, cluster: Cluster, folder: Path, jobs: list[Victim], most: int, patience_s: float) -> None:
        self._cluster = cluster
        self._folder = folder
        self._jobs = jobs
        self._most = most
        self._patience_s = patience_s

    def running(self) -> list[Victim]:
        """Return the jobs that no client has cancelled or ended."""
        return [job for job in self._jobs if job.wanted == RUN and job.acknowledged]

    def submit(self) -> str:
        """Submit a job."""
        job = Victim(self._folder / f"job-{len(self._jobs) + 1}")
        self._jobs.append(job)
        self._cluster.submit(job, self._patience_s)
        return f"submitted {job.id[:6]}"

    def act(self, action: str, dice: random.Random) -> str:
        """Carry out an action on a running job. Return a description. Raises Violation if it is not acknowledged."""
        running = self.running()
        try:
            if action == "submit" and len(running) < self._most:
                return self.submit()
            if not running:
                return "no job to act on"
            job = running[0] if action == "submit" else dice.choice(running)
            if action == "cancel":
                job.wanted = CANCEL
                self._cluster.cancel(job, self._patience_s)
                return f"cancelled {job.id[:6]}"
            if action in ("submit", "finish"):
                job.wanted = FINISH
                job.end_input()
                return f"ended the input of {job.id[:6]}"
            return self._operate(job, action, dice)
        except NotAnswered as error:
            raise Violation(f"{action}: the service did not answer for {self._patience_s:.0f} s: {error}") from None

    def _operate(self, job: Victim, action: str, dice: random.Random) -> str:
        """Trigger a savepoint or a rescale, and wait for its result, which can be a failure."""
        trigger, width = secrets.token_hex(16), dice.choice(_WIDTHS)

        def request(client: RestClient) -> str:
            if action == "rescale":
                path = f"/jobs/{job.id}/rescaling"
                return client.patch(path, TriggerResponse, parallelism=str(width)).request_id
            body = {"target-directory": str(job.folder / "savepoints"), "triggerId": trigger}
            return client.post(f"/jobs/{job.id}/savepoints", TriggerResponse, body).request_id

        asked = self._cluster.ask(request, self._patience_s)
        poll = "rescaling" if action == "rescale" else "savepoints"
        deadline = time.monotonic() + self._patience_s
        while time.monotonic() < deadline:
            try:
                found = self._cluster.ask(lambda client: _poll(client, f"/jobs/{job.id}/{poll}/{asked}"), 5.0)
            except NotAnswered:
                continue
            if found is None:
                # The JobManager keeps operations, and it has died.
                return f"{action} of {job.id[:6]} is not known any more"
            if found.status.id == "COMPLETED":
                failed = found.operation.get("failure-cause")
                return f"{action} of {job.id[:6]} {'failed' if failed else 'completed'}"
            time.sleep(_POLL_S)
        raise Violation(f"a {action} of job {job.id} did not end within {self._patience_s:.0f} s")


def _poll(client: RestClient, path: str) -> AsynchronousOperationResult | None:
    try:
        return client.get(path, AsynchronousOperationResult)
    except NotKnown:
        return None


class Acting(threading.Thread):
    """An action that begins after a delay, while the rig injects a fault."""

    def __init__(self, clients: Clients, action: str, dice: random.Random, delay_s: float) -> None:
        super().__init__(name=f"act-{action}", daemon=True)
        self._clients, self._action, self._dice, self._delay_s = clients, action, dice, delay_s
        self._did = ""
        self._error: BaseException | None = None

    def run(self) -> None:
        time.sleep(self._delay_s)
        try:
            self._did = self._clients.act(self._action, self._dice)
        except BaseException as error:
            self._error = error

    def result(self) -> str:
        """Wait for the end, and return a description. Raises Violation."""
        self.join()
        if self._error is not None:
            raise self._error
        return self._did
