"""The run: inject faults into a service while clients use it, and check the invariants of the service.

A run consists of rounds. Each starts a cluster, injects some faults, lets all jobs end, and compares them with the
oracle; only then its faults count. A run that was interrupted continues with the next round.
"""

from __future__ import annotations

import hashlib
import random
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from chaos.blindness import blind
from chaos.ends.served import Missed
from chaos.faults import Violation
from chaos.progress import Outcome, Progress
from chaos.service.clients import Acting, Clients, Done
from chaos.service.cluster import Cluster, NotAnswered, until
from chaos.service.dispatchers import NodeDied
from chaos.service.faults import Hit, inject
from chaos.service.jobs import FINISH, RUN, SHOWN, Victim
from chaos.service.plan import Step
from chaos.service.watch import Watch
from penstock.cluster.processes import remains
from penstock.errors import PenstockError

GRACE_S = 240.0
"""Maximum time from the end of a fault until the service answers and every job does what its clients want.

A restart takes 15 s on two idle cores, the supervisor waits up to a minute before it, and one job starts at a time.
"""
_ROUND = 10
"""Faults per cluster."""
_PROGRESS_EPOCHS = 2
_REHEARSED = ("savepoint", "rescale", "stop", "cancel")
"""Actions that must succeed before the first fault."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The size of the cluster."""

    dispatchers: int = 2
    zookeeper: int = 3
    mounted: bool = True
    most_jobs: int = 3


class ServiceRig:
    """Runs a plan. Call `run` once; `say` receives a line per fault."""

    def __init__(
        self, work: Path, plan: list[Step], shape: Shape, say: Callable[[str], None], minutes: float | None = None
    ) -> None:
        self.work = work
        self._plan = plan
        self._shape = shape
        self._say = say
        self._started = time.monotonic()
        self._deadline = None if minutes is None else self._started + minutes * 60
        self.progress = Progress.load(work, digest(plan, shape))
        work.mkdir(parents=True, exist_ok=True)

    def run(self) -> bool:
        """Return whether the run is finished; False if time is up. Violations are in `progress`."""
        before = self.progress.seconds
        try:
            while left := [step for step in self._plan if step.index not in self.progress.done]:
                if self._is_late():
                    return False
                self.progress.outcomes += self._round(left[:_ROUND])
                self._save(before)
            self.progress.violations += blind(self.progress.outcomes)
            self.progress.finished = True
        except (Violation, NodeDied, NotAnswered) as violation:
            self.progress.violations.append(f"{violation}" if isinstance(violation, Violation) else repr(violation))
        finally:
            self._save(before)
        return True

    def _save(self, before: float) -> None:
        self.progress.seconds = before + time.monotonic() - self._started
        self.progress.save(self.work)

    def _is_late(self) -> bool:
        return self._deadline is not None and time.monotonic() > self._deadline

    # -- a round ---------------------------------------------------------------------------------------------------

    def _round(self, steps: list[Step]) -> list[Outcome]:
        folder = self.work / "cluster"
        shutil.rmtree(folder, ignore_errors=True)
        shape = self._shape
        outcomes: list[Outcome] = []
        cluster = Cluster(folder, dispatchers=shape.dispatchers, zookeeper=shape.zookeeper, mounted=shape.mounted)
        with cluster, Watch(cluster) as watch:
            clients = Clients(cluster, folder, watch.jobs, shape.most_jobs, GRACE_S)
            if not self.progress.outcomes:
                self._rehearse(cluster, clients, watch)
            for step in steps:
                if self._is_late() and outcomes:
                    break
                outcomes.append(self._step(cluster, clients, watch, step, len(outcomes)))
            self._settle(cluster, watch)
        shutil.rmtree(folder)
        return outcomes

    def _rehearse(self, cluster: Cluster, clients: Clients, watch: Watch) -> None:
        """Carry out every action without a fault in its way. If one fails, a run with faults proves nothing."""
        cluster.await_leader(GRACE_S)
        for action in _REHEARSED:
            if not clients.running():
                clients.submit()
                self._recover(cluster, watch, 0.0)
            done = clients.act(action, random.Random(action))
            if done.failure:
                raise Violation(f"{done.text} without a fault in its way: {done.failure}")
            self._recover(cluster, watch, 0.0)
        self._say(f"without faults, these succeed: {', '.join(_REHEARSED)}")

    def _step(self, cluster: Cluster, clients: Clients, watch: Watch, step: Step, done: int) -> Outcome:
        cluster.await_leader(GRACE_S)
        if not clients.running():
            clients.submit()
            self._recover(cluster, watch, 0.0)
        dice = random.Random(step.dice)
        delay_s = step.delay_ms / 1000
        acting = Acting(clients, step.action, random.Random(step.dice + 1), max(delay_s, 0.0))
        targets = clients.running()
        attempts = {job.id: cluster.attempt(job) for job in targets}
        acting.start()
        time.sleep(max(-delay_s, 0.0))
        missed = False
        try:
            hit = inject(step.kind, cluster, targets, dice)
        except Missed as nothing:
            hit, missed = Hit(str(nothing)), True
        ended = time.monotonic()
        acted = acting.result()
        recovery = self._recover(cluster, watch, ended)
        spared = [job for job in targets if job is not hit.job]
        if problems := [*_unprovoked(acted, spared), *_restarted(cluster, spared, attempts)]:
            raise Violation(f"{step.kind}: {hit.text}, and {'; '.join(problems)}")
        number = len(self.progress.outcomes) + done + 1
        self._say(
            f"{number:3}/{len(self._plan)} {step.kind:17} {hit.text}; {acted.text}; all well after {recovery:.1f} s"
        )
        return Outcome(
            step.index,
            step.kind,
            f"{hit.text}; {acted.text}",
            recovery,
            missed=missed,
            action=acted.action,
            failure=acted.failure,
        )

    def _recover(self, cluster: Cluster, watch: Watch, since: float) -> float:
        """Wait until the service answers and all jobs do what their clients want. Return the time since the fault."""
        before = {job.id: job.checkpoint() for job in watch.jobs}
        state = ""

        def recovered() -> bool:
            nonlocal state
            if found := watch.violations():
                raise Violation("; ".join(found))
            if state := cluster.problem():
                return False
            waiting = []
            for node in cluster.dispatchers:
                try:
                    states = cluster.states(node)
                except (PenstockError, OSError) as error:
                    state = f"{node.directory.name} does not answer: {error}"
                    return False
                if unknown := states.keys() - {job.id for job in watch.jobs}:
                    raise Violation(f"{node.directory.name} shows jobs that no client submitted: {sorted(unknown)}")
                waiting += [text for job in watch.jobs if (text := _missing(job, states, before))]
            state = "; ".join(dict.fromkeys(waiting))
            return not waiting

        try:
            until(recovered, GRACE_S, "recovery")
        except Violation as violation:
            raise Violation(f"{violation} {state}".strip()) from None
        return time.monotonic() - since

    def _settle(self, cluster: Cluster, watch: Watch) -> None:
        """Let all jobs end, and compare them with the oracle."""
        for job in watch.jobs:
            if job.wanted == RUN:
                job.wanted = FINISH
                job.end_input()
        self._recover(cluster, watch, 0.0)

        def gone() -> bool:
            views = [cluster.view(job) for job in watch.jobs]
            claims = [each.claim for view in views for each in view.attempts if each.claim is not None]
            watched = all(job.frozen is not None and job.watched for job in watch.jobs if job.cancelled_at is not None)
            return watched and not any(remains(claim) for claim in claims)

        until(gone, GRACE_S, "the processes of ended jobs exit")
        if problems := [*watch.violations(), *(each for job in watch.jobs for each in job.check(cluster.view(job)))]:
            raise Violation("; ".join(problems))


def _missing(job: Victim, states: dict[str, str], before: dict[str, int]) -> str:
    """Return what a job still has to do; empty if nothing."""
    if not job.acknowledged:
        return ""
    state = states.get(job.id, "not listed")
    if state == "FAILED":
        raise Violation(f"job {job.id} failed")
    if state != SHOWN[job.wanted]:
        return f"job {job.id} is {state}, not {SHOWN[job.wanted]}"
    if job.wanted == RUN and job.checkpoint() < before.get(job.id, 0) + _PROGRESS_EPOCHS:
        return f"job {job.id} publishes no checkpoint"
    return ""


def _unprovoked(done: Done, spared: list[Victim]) -> list[str]:
    """Return an action that failed although no fault hit its job: JobManagers keep operations."""
    if done.failure and done.job in spared:
        return [f"{done.text} although nothing hit the job: {done.failure}"]
    return []


def _restarted(cluster: Cluster, spared: list[Victim], attempts: dict[str, int]) -> list[str]:
    """Return the jobs that restarted although no fault hit them: they do not depend on Dispatchers or ZooKeeper."""
    return [
        f"job {job.id} restarted although nothing hit it: {_reason(cluster, job)}"
        for job in spared
        if job.wanted == RUN and cluster.attempt(job) != attempts[job.id]
    ]


def _reason(cluster: Cluster, job: Victim) -> str:
    lost = [each.ended.reason for each in cluster.view(job).attempts if each.ended is not None]
    return lost[-1] if lost else ""


def digest(plan: list[Step], shape: Shape) -> str:
    """Return a hash that identifies a plan: a run cannot be continued with another plan."""
    return hashlib.blake2b(repr((shape, plan)).encode(), digest_size=8).hexdigest()
