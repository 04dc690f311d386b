"""Whether a Dispatcher leads: a state machine without I/O and without a clock.

Events go in, instructions come out. Each event carries the time at which it is handled, on a clock that counts time
during which the process or the machine was suspended. The first thing that every event does is to compare that time
with the lease. A process that continues after SIGSTOP therefore steps down before it does anything else.

The lease is a share of the session timeout, measured from the moment at which the last confirmed ping was *sent*.
ZooKeeper's client reports the loss of a session only when a server says so, which is too late for a process that
reaches no server.

The records in storage decide what happens to jobs. Leadership only decides which Dispatcher tries.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

LEASE_SHARE = 2 / 3
"""The share of the session timeout after which an unconfirmed leader steps down.

A follower of ZooKeeper reports the sessions it heard from to its leader every half tick, so a confirmed ping can be
missing there. The session then lasts from the ping before it. Half a tick is at most a quarter of the smallest session
timeout (two ticks), and pings are `PING_SHARE` of the timeout apart: together a third.
"""
PING_SHARE = 1 / 12
"""Interval of pings, as a share of the session timeout."""


@dataclass(frozen=True)
class Connected:
    """The client reached a server, with a new session after `Lost`, otherwise with the same one."""

    at: float


@dataclass(frozen=True)
class Suspended:
    """The client lost its connection. The session might still exist."""

    at: float


@dataclass(frozen=True)
class Lost:
    """The session is gone, and all its ephemeral nodes with it."""

    at: float
    reason: str = "The ZooKeeper session is lost."


@dataclass(frozen=True)
class LatchWon:
    """The candidate's node is the first one in the latch."""

    at: float
    turn: int
    """The number of the `Rejoin` that created the node."""
    epoch: int


@dataclass(frozen=True)
class LatchLost:
    """The candidate's node has disappeared from the latch, or belongs to another session."""

    at: float
    turn: int


@dataclass(frozen=True)
class PingConfirmed:
    """A server that reaches ZooKeeper's leader answered a request of this session."""

    at: float
    sent_at: float
    timeout_s: float
    """The session timeout."""


@dataclass(frozen=True)
class Tick:
    """Time has passed."""

    at: float


Event = Connected | Suspended | Lost | LatchWon | LatchLost | PingConfirmed | Tick


@dataclass(frozen=True)
class BecomeLeader:
    """Read the pointers, adopt or restart every job, accept submissions."""

    epoch: int
    """Higher than that of every earlier leader, as long as ZooKeeper keeps its data. For logs and records."""


@dataclass(frozen=True)
class PauseLeadership:
    """Plan nothing new. Continue to answer reads."""


@dataclass(frozen=True)
class ResumeLeadership:
    """Continue as the leader, with the same epoch: no other Dispatcher has led in between."""


@dataclass(frozen=True)
class StepDown:
    """Stop leading. JobManagers continue."""

    reason: str


@dataclass(frozen=True)
class Rejoin:
    """Remove every earlier node of this candidate from the latch, and add one."""

    turn: int


Instruction = BecomeLeader | PauseLeadership | ResumeLeadership | StepDown
"""For the Dispatcher."""


class Role(Enum):
    """The role of a Dispatcher."""

    STANDBY = "standby"
    LEADING = "leading"
    PAUSED = "paused"
    """It led when the connection was lost, and its lease has not run out."""


class Leadership:
    """The leadership of one Dispatcher. Not thread-safe."""

    def __init__(self) -> None:
        self.role = Role.STANDBY
        self._connected_at: float | None = None
        self._confirmed = False
        """Whether a ping was confirmed since the client connected."""
        self._lease_until = float("-inf")
        self._turn = 0
        self._joined = False
        """Whether a `Rejoin` was given and the node that it creates can still exist."""
        self._epoch: int | None = None
        """That of the current turn, once it is won."""

    def leading(self, now: float) -> bool:
        """Return whether the Dispatcher can plan and change things at this moment."""
        return self.role is Role.LEADING and now < self._lease_until

    @property
    def deadline(self) -> float | None:
        """The time at which the lease runs out, unless this is a standby."""
        return None if self.role is Role.STANDBY else self._lease_until

    def handle(self, event: Event) -> list[Instruction | Rejoin]:
        """Return the instructions that follow from an event, in order."""
        out: list[Instruction | Rejoin] = []
        if self.role is not Role.STANDBY and event.at >= self._lease_until:
            out += self._step_down("ZooKeeper has not confirmed the session in time.")
        match event:
            case Connected():
                out += self._connect(event.at)
            case Suspended():
                out += self._suspend()
            case Lost():
                out += self._lose(event.reason)
            case LatchWon() if self._joined and event.turn == self._turn:
                self._epoch = event.epoch
                out += self._lead(event.at)
            case LatchLost() if self._joined and event.turn == self._turn:
                out += self._leave("The node in the latch has disappeared.")
            case PingConfirmed():
                out += self._confirm(event)
            case _:
                pass
        return out

    def _connect(self, at: float) -> list[Instruction | Rejoin]:
        if self._connected_at is None:
            self._connected_at = at
            self._confirmed = False
        return [] if self._joined else [self._rejoin()]

    def _suspend(self) -> list[Instruction | Rejoin]:
        self._connected_at = None
        self._confirmed = False
        if self.role is not Role.LEADING:
            return []
        self.role = Role.PAUSED
        return [PauseLeadership()]

    def _lose(self, reason: str) -> list[Instruction | Rejoin]:
        self._connected_at = None
        self._confirmed = False
        self._lease_until = float("-inf")
        return self._leave(reason)

    def _confirm(self, event: PingConfirmed) -> list[Instruction | Rejoin]:
        # An answer from before the connection was lost can arrive late. It could be one of an earlier session.
        if self._connected_at is None or event.sent_at < self._connected_at:
            return []
        self._confirmed = True
        self._lease_until = max(self._lease_until, event.sent_at + LEASE_SHARE * event.timeout_s)
        return self._lead(event.at)

    def _lead(self, at: float) -> list[Instruction | Rejoin]:
        if self._epoch is None or not self._confirmed or at >= self._lease_until or self.role is Role.LEADING:
            return []
        paused, self.role = self.role is Role.PAUSED, Role.LEADING
        return [ResumeLeadership()] if paused else [BecomeLeader(self._epoch)]

    def _leave(self, reason: str) -> list[Instruction | Rejoin]:
        """Give up the node in the latch, leading or not."""
        if self.role is not Role.STANDBY:
            return self._step_down(reason)
        self._joined = False
        self._epoch = None
        return [self._rejoin()] if self._connected_at is not None else []

    def _step_down(self, reason: str) -> list[Instruction | Rejoin]:
        self.role = Role.STANDBY
        return [StepDown(reason), *self._leave(reason)]

    def _rejoin(self) -> Rejoin:
        self._turn += 1
        self._joined = True
        self._epoch = None
        return Rejoin(self._turn)
