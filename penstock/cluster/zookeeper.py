"""The coordination of several Dispatchers through ZooKeeper.

Two threads: one talks to ZooKeeper (pings, the latch, removals that failed) and can wait for it; the other one watches
the clock and delivers instructions, and never waits for ZooKeeper. kazoo's listeners only pass events on.

Every change to the pointers is a transaction that also checks the leader's node in the latch. A former leader, whose
node is gone, can therefore change nothing, not even with a request that was under way when it lost its session.
"""

from __future__ import annotations

import logging
import queue
import re
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from penstock.cluster.agent_nodes import AgentNodes
from penstock.cluster.coordination import CoordinationUnavailable
from penstock.cluster.gateway import NotLeading
from penstock.cluster.latch import Latch
from penstock.cluster.leadership import (
    PING_SHARE,
    Connected,
    Event,
    Instruction,
    LatchLost,
    LatchWon,
    Leadership,
    Lost,
    PingConfirmed,
    Rejoin,
    Suspended,
    Tick,
)
from penstock.cluster.records import checked_id
from penstock.cluster.zookeeper_client import Connection, UnprotectedNodes, ZooKeeperSettings, clock, kazoo

_log = logging.getLogger(__name__)

_JOIN_S = 10.0
_IDLE_S = 1.0
"""How often the clock is compared with the lease at least."""
_RETRIES = 5
"""Attempts of a removal while other sessions add nodes below the one that is removed."""
_JOB = re.compile(r"[0-9a-f]{32}")
_JOB_MANAGER = re.compile(r"([0-9a-f]{32})-(\d{6,})")

_STATES: dict[str, Callable[..., Event]] = {"CONNECTED": Connected, "SUSPENDED": Suspended}


class ZooKeeperCoordination:
    """One Dispatcher of several; see `penstock.cluster.coordination.Coordination`."""

    def __init__(self, settings: ZooKeeperSettings, host: str = "") -> None:
        """`host` is where this Dispatcher is an agent; empty: this host."""
        self._settings = settings
        self._host = host or socket.gethostname()
        self._connection = Connection(settings, self._on_state)
        self._lock = threading.Lock()
        self._leadership = Leadership()
        self._turn = 0
        self._own: str | None = None
        """The path of the node with which this Dispatcher leads."""
        self._leader: str | None = None
        self._agents: Mapping[str, Sequence[str]] = {}
        self._problem = ""
        self._unremoved: dict[str, str] = {}
        """Jobs whose pointers could not be removed, with the error that was logged."""
        self._wake = threading.Event()
        self._withdrawn = threading.Event()
        self._closing = threading.Event()
        self._outbox: queue.Queue[Instruction | None] = queue.Queue()
        self._threads: list[threading.Thread] = []

    # -- for the Dispatcher --------------------------------------------------------------------------------------------

    @property
    def leading(self) -> bool:
        with self._lock:
            return self._leadership.leading(clock())

    @property
    def problem(self) -> str:
        return self._problem

    def start(self, address: str, on_instruction: Callable[[Instruction], None]) -> None:
        latch, agents = Latch(self._connection, address), AgentNodes(self._connection, self._host, address)
        self._threads = [
            threading.Thread(target=self._watch, args=(latch, agents), name="penstock-latch", daemon=True),
            threading.Thread(target=self._deliver, args=(on_instruction,), name="penstock-leadership", daemon=True),
        ]
        self._connection.open()
        for thread in self._threads:
            thread.start()

    def leader_address(self) -> str | None:
        return self._leader

    def add_job(self, job_id: str) -> None:
        errors = kazoo().exceptions
        path = self._path_of(job_id)
        outcome = self._commit(lambda change: change.create(path, job_id.encode()))
        if isinstance(outcome, errors.NodeExistsError):
            # An earlier call, whose answer was lost, has created it.
            outcome = self._commit(lambda change: change.set_data(path, job_id.encode()))
        if outcome is not None:
            raise _unavailable(f"the pointer of job {job_id} was not written, {_described(outcome)}")

    def remove_job(self, job_id: str) -> bool:
        error = self._remove(self._path_of(job_id))
        with self._lock:
            reported = self._unremoved.pop(job_id, "")
            if error:
                self._unremoved[job_id] = error
        if error and error != reported:
            _log.warning("The pointer of job %s is not removed yet, and is tried again: %s", job_id, error)
        elif reported and not error:
            _log.info("The pointer of job %s is removed now.", job_id)
        return not error

    def pointers(self) -> Mapping[str, str]:
        errors = kazoo().exceptions
        found: dict[str, str] = {}
        for name in self._children(self._settings.jobs):
            try:
                content, _ = self._call("get", f"{self._settings.jobs}/{name}")
            except errors.NoNodeError:
                continue
            found[name] = _refusal(name, content)
        return found

    def living_job_managers(self) -> set[tuple[str, int]]:
        names = self._children(self._settings.job_managers)
        return {(match[1], int(match[2])) for name in names if (match := _JOB_MANAGER.fullmatch(name))}

    def agents(self) -> Mapping[str, Sequence[str]]:
        return self._agents

    def withdraw(self) -> None:
        self._withdrawn.set()
        self._feed(partial(Lost, reason="The Dispatcher has withdrawn."))
        self._wake.set()

    def close(self) -> None:
        self._closing.set()
        self._wake.set()
        self._feed(partial(Lost, reason="The Dispatcher stops."))
        self._outbox.put(None)
        # Ends calls that wait for a server.
        self._connection.close()
        for thread in self._threads:
            thread.join(_JOIN_S)
        self._leader, self._agents = None, {}

    # -- events --------------------------------------------------------------------------------------------------------

    def _on_state(self, state: str) -> None:
        """Pass a change of the connection on. Runs in kazoo's thread, which must not wait."""
        if not self._closing.is_set() and not self._withdrawn.is_set():
            self._feed(_STATES.get(state, Lost))
        self._wake.set()

    def _on_change(self, _: object) -> None:
        """Look at the latch again. Always the same function: kazoo keeps each one until the node changes."""
        self._wake.set()

    def _feed(self, make: Callable[..., Event]) -> None:
        with self._lock:
            for instruction in self._leadership.handle(make(at=clock())):
                if isinstance(instruction, Rejoin):
                    self._turn = instruction.turn
                    self._own = None
                    self._wake.set()
                else:
                    self._outbox.put(instruction)

    def _deliver(self, on_instruction: Callable[[Instruction], None]) -> None:
        while True:
            try:
                instruction = self._outbox.get(timeout=self._until_deadline())
            except queue.Empty:
                self._feed(Tick)
                continue
            if instruction is None:
                return
            _log.info("Leadership of %s: %s.", self._settings.base, instruction)
            try:
                on_instruction(instruction)
            except Exception:
                _log.exception("The Dispatcher failed to follow %s.", instruction)

    def _until_deadline(self) -> float:
        with self._lock:
            deadline = self._leadership.deadline
        return _IDLE_S if deadline is None else min(_IDLE_S, max(0.0, deadline - clock()))

    # -- ZooKeeper -----------------------------------------------------------------------------------------------------

    def _watch(self, latch: Latch, agents: AgentNodes) -> None:
        errors = kazoo().exceptions
        entered = 0
        while True:
            self._wake.wait(self._connection.timeout_s * PING_SHARE)
            self._wake.clear()
            if self._closing.is_set():
                return
            turn = self._turn
            try:
                self._connection.heal()
                if not self._connection.connected:
                    self._report(f"ZooKeeper ({self._settings.quorum}) cannot be reached.")
                    continue
                if turn != entered:
                    self._connection.prepare()
                    if not self._withdrawn.is_set():
                        latch.enter(turn)
                    entered = turn
                if self._withdrawn.is_set():
                    latch.leave()
                self._look(latch, turn)
                self._retry_removals()
                self._report("")
                self._agents = agents.refresh(self._on_change)
            except UnprotectedNodes as error:
                self._report(str(error))
            except errors.NoNodeError as error:
                # The ensemble lost its data, or an operator removed the nodes.
                entered = 0
                self._report(f"ZooKeeper lacks nodes of the cluster: {_described(error)}.")
            except Exception as error:
                if self._closing.is_set():
                    return
                self._report(f"ZooKeeper did not answer: {_described(error)}.")

    def _look(self, latch: Latch, turn: int) -> None:
        sent_at, timeout_s = clock(), self._connection.timeout_s
        # A read would do if every server were in touch with its leader. A sync travels to the leader and back.
        self._connection.call("sync", self._settings.latch)
        self._feed(partial(PingConfirmed, sent_at=sent_at, timeout_s=timeout_s))
        standing = latch.look(turn, self._on_change)
        self._leader = standing.leader
        if self._withdrawn.is_set():
            return
        if standing.own is None:
            self._feed(partial(LatchLost, turn=turn))
        elif standing.first:
            with self._lock:
                if turn == self._turn:
                    self._own = standing.own
            self._feed(partial(LatchWon, turn=turn, epoch=standing.epoch))

    def _retry_removals(self) -> None:
        with self._lock:
            jobs = list(self._unremoved)
        for job_id in jobs:
            try:
                self.remove_job(job_id)
            except NotLeading:
                # The next leader finds the records of ended jobs, and removes their pointers.
                with self._lock:
                    self._unremoved.clear()
                return

    def _report(self, problem: str) -> None:
        if problem and problem != self._problem:
            _log.warning("%s", problem)
        self._problem = problem

    # -- pointers ------------------------------------------------------------------------------------------------------

    def _path_of(self, job_id: str) -> str:
        return f"{self._settings.jobs}/{checked_id(job_id)}"

    def _remove(self, path: str) -> str:
        """Remove a node and everything that other sessions have put below it. Return the error, if any."""
        errors = kazoo().exceptions
        outcome: Exception | None = None
        for _ in range(_RETRIES):
            try:
                below = self._call("get_children", path)
                outcome = self._commit(partial(_delete_all, path, below))
            except errors.NoNodeError:
                return ""
            except CoordinationUnavailable as error:
                return str(error)
            if not isinstance(outcome, errors.NoNodeError | errors.NotEmptyError):
                break
        return "" if outcome is None else _described(outcome)

    def _commit(self, fill: Callable[[Any], None]) -> Exception | None:
        """Make a change as the leader. Return the error of an operation, if any.

        Raises NotLeading, CoordinationUnavailable.
        """
        with self._lock:
            own = self._own if self._leadership.leading(clock()) else None
        if own is None:
            raise _not_leading()
        check, *others = self._mapped(partial(self._connection.commit, partial(_fenced, own, fill)))
        errors = kazoo().exceptions
        if isinstance(check, errors.NoNodeError):
            raise _not_leading()
        failed = [each for each in (check, *others) if isinstance(each, Exception)]
        # Of a failed transaction, only one operation has the cause as its result.
        return next(
            (each for each in failed if not isinstance(each, errors.RolledBackError | errors.RuntimeInconsistency)),
            failed[0] if failed else None,
        )

    def _children(self, path: str) -> list[str]:
        try:
            return list(self._call("get_children", path))
        except kazoo().exceptions.NoNodeError:
            # An empty answer would mean that the cluster has no jobs.
            raise _unavailable(f"the node {path} is missing") from None

    def _call(self, name: str, *arguments: Any) -> Any:
        return self._mapped(partial(self._connection.call, name, *arguments))

    def _mapped(self, request: Callable[[], Any]) -> Any:
        """Make a request. Raise CoordinationUnavailable if it fails for another reason than a node."""
        errors = kazoo().exceptions
        try:
            return request()
        except (errors.NoNodeError, errors.NodeExistsError):
            raise
        except (errors.KazooException, self._connection.client.handler.timeout_exception) as error:
            raise _unavailable(_described(error)) from error


def _fenced(own: str, fill: Callable[[Any], None], change: Any) -> None:
    change.check(own, -1)
    fill(change)


def _delete_all(path: str, below: list[str], change: Any) -> None:
    for name in below:
        change.delete(f"{path}/{name}")
    change.delete(path)


def _refusal(name: str, content: bytes) -> str:
    """Return why a pointer must not be followed; empty if it can be. Job ids become paths in the storage."""
    if not _JOB.fullmatch(name):
        return "The pointer in ZooKeeper has a name that is not a job id."
    if content != name.encode():
        return "The pointer in ZooKeeper does not contain the id of the job; it was changed by another program."
    return ""


def _described(error: Exception) -> str:
    return f"{type(error).__name__}{f' ({error})' if str(error) else ''}"


def _unavailable(why: str) -> CoordinationUnavailable:
    return CoordinationUnavailable(
        f"ZooKeeper did not complete a request: {why}.",
        fix="Try again. If it persists, check the servers in high-availability.zookeeper.quorum.",
    )


def _not_leading() -> NotLeading:
    return NotLeading("This Dispatcher does not lead the cluster.", fix="Send the request to the leader.")
