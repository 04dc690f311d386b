"""Leadership of several candidates, against a model of ZooKeeper with every kind of delay."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.cluster.leadership import (
    BecomeLeader,
    Connected,
    Event,
    LatchLost,
    LatchWon,
    Leadership,
    Lost,
    PauseLeadership,
    PingConfirmed,
    Rejoin,
    ResumeLeadership,
    StepDown,
    Suspended,
    Tick,
)

TIMEOUT = 12.0
EARLIEST_EXPIRY = TIMEOUT * (1 - 1 / 4 - 1 / 12)
"""Time from the arrival of a ping to the end of a session, if the ensemble's leader did not hear of that ping."""


@dataclass
class Server:
    """A model of ZooKeeper: sessions, and the latch in order."""

    heard: dict[int, float] = field(default_factory=dict)
    """When each living session was last heard from."""
    latch: list[tuple[int, int, int, int]] = field(default_factory=list)
    """Candidate, turn, session, epoch."""
    epochs: int = 0

    def expire(self, session: int) -> None:
        del self.heard[session]
        self.latch = [node for node in self.latch if node[2] != session]


@dataclass
class Candidate:
    number: int
    leadership: Leadership = field(default_factory=Leadership)
    session: int | None = None
    connected: bool = False
    unnoticed: bool = False
    turn: int = 0
    under_way: list[float] = field(default_factory=list)
    """Pings that were sent, by time."""
    arriving: list[tuple[str, float, int, int]] = field(default_factory=list)
    """Answers that were sent: kind, time of the ping, turn, epoch."""
    instructions: list[object] = field(default_factory=list)


class World:
    """Candidates whose messages take any time and whose sessions end at any moment that ZooKeeper permits."""

    def __init__(self, candidates: int) -> None:
        self.now = 0.0
        self.sessions = 0
        self.server = Server()
        self.candidates = [Candidate(number) for number in range(candidates)]
        self.epochs: list[int] = []

    def feed(self, one: Candidate, event: Event) -> None:
        for instruction in one.leadership.handle(event):
            if isinstance(instruction, Rejoin):
                one.turn = instruction.turn
            else:
                one.instructions.append(instruction)
            if isinstance(instruction, BecomeLeader):
                self.epochs.append(instruction.epoch)
        self.check()

    def check(self) -> None:
        leaders = [each.number for each in self.candidates if each.leadership.leading(self.now)]
        assert len(leaders) <= 1, f"{leaders} lead at {self.now}"
        assert self.epochs == sorted(set(self.epochs)), "an epoch is not higher than those before"

    # Each of these is one thing that can happen. It does nothing when it cannot happen.

    def time_passes(self, _: Candidate, amount: float) -> None:
        self.now += amount
        self.check()

    def ticks(self, one: Candidate, _: float) -> None:
        self.feed(one, Tick(self.now))

    def connects(self, one: Candidate, _: float) -> None:
        if one.connected:
            return
        self.notices(one, 0)
        if one.session is not None and one.session not in self.server.heard:
            one.session = None
            self.feed(one, Lost(self.now))
        if one.session is None:
            self.sessions += 1
            one.session = self.sessions
        self.server.heard[one.session] = self.now
        one.connected = True
        self.feed(one, Connected(self.now))

    def disconnects(self, one: Candidate, _: float) -> None:
        if one.connected:
            self.cut(one)

    def session_expires(self, one: Candidate, _: float) -> None:
        if one.session in self.server.heard and self.now >= self.server.heard[one.session] + EARLIEST_EXPIRY:
            self.server.expire(one.session)
            self.cut(one)

    def cut(self, one: Candidate) -> None:
        one.connected = False
        one.unnoticed = True
        one.under_way.clear()

    def notices(self, one: Candidate, _: float) -> None:
        """A stopped process notices the loss of its connection only when it continues."""
        if one.unnoticed:
            one.unnoticed = False
            self.feed(one, Suspended(self.now))

    def enters_the_latch(self, one: Candidate, _: float) -> None:
        server = self.server
        if one.connected and one.session in server.heard and one.turn:
            if any(node[:2] == (one.number, one.turn) for node in server.latch):
                return
            server.latch = [node for node in server.latch if node[0] != one.number]
            server.epochs += 1
            server.latch.append((one.number, one.turn, one.session, server.epochs))
            self.check()

    def sends_a_ping(self, one: Candidate, _: float) -> None:
        if one.connected:
            one.under_way.append(self.now)

    def server_answers(self, one: Candidate, _: float) -> None:
        if one.under_way and one.connected and one.session in self.server.heard:
            self.server.heard[one.session] = self.now
            one.arriving.append(("ping", one.under_way.pop(0), 0, 0))

    def looks_at_the_latch(self, one: Candidate, _: float) -> None:
        if not one.connected or one.session not in self.server.heard or not one.turn:
            return
        mine = [node for node in self.server.latch if node[:3] == (one.number, one.turn, one.session)]
        if not mine:
            one.arriving.append(("lost", 0, one.turn, 0))
        elif self.server.latch[0] == mine[0]:
            one.arriving.append(("won", 0, one.turn, mine[0][3]))

    def answer_arrives(self, one: Candidate, _: float) -> None:
        if one.arriving:
            kind, sent_at, turn, epoch = one.arriving.pop(0)
            if kind == "ping":
                self.feed(one, PingConfirmed(self.now, sent_at, TIMEOUT))
            elif kind == "won":
                self.feed(one, LatchWon(self.now, turn=turn, epoch=epoch))
            else:
                self.feed(one, LatchLost(self.now, turn=turn))

    def is_stopped(self, one: Candidate, amount: float) -> None:
        self.calm(one, rounds=int(amount * 2))

    def calm(self, *stopped: Candidate, rounds: int = 120) -> None:
        """Let everything work for a while, except for processes that are stopped."""
        for _ in range(rounds):
            self.now += 0.5
            self.check()
            for one in self.candidates:
                if one in stopped:
                    self.session_expires(one, 0)
                    continue
                for happens in (
                    *(self.ticks, self.connects, self.enters_the_latch),
                    *(self.sends_a_ping, self.server_answers, self.looks_at_the_latch),
                ):
                    happens(one, 0)
                while one.arriving:
                    self.answer_arrives(one, 0)


HAPPENINGS = [
    World.time_passes,
    World.ticks,
    World.connects,
    World.disconnects,
    World.notices,
    World.session_expires,
    World.enters_the_latch,
    World.sends_a_ping,
    World.server_answers,
    World.looks_at_the_latch,
    World.answer_arrives,
    World.is_stopped,
]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(HAPPENINGS), st.integers(0, 2), st.sampled_from([0.1, 1.0, 3.0, 6.0, EARLIEST_EXPIRY, TIMEOUT])
    ),
    max_size=60,
)


def after(steps: list[tuple[object, int, float]]) -> World:
    world = World(3)
    # Most random beginnings elect no leader, so begin with one.
    world.calm()
    for happens, number, amount in steps:
        happens(world, world.candidates[number], amount)  # type: ignore[operator]
    return world


class TestSeveralCandidates:
    @settings(max_examples=300)
    @given(STEPS)
    def test_never_lead_at_the_same_time(self, steps: list[tuple[object, int, float]]) -> None:
        after(steps)

    @given(STEPS)
    def test_elect_one_when_everything_works_again(self, steps: list[tuple[object, int, float]]) -> None:
        world = after(steps)
        world.calm()
        assert [each.leadership.leading(world.now) for each in world.candidates].count(True) == 1

    @given(STEPS)
    def test_get_their_instructions_in_an_order_that_makes_sense(self, steps: list[tuple[object, int, float]]) -> None:
        follows: dict[type | None, set[type]] = {
            None: {BecomeLeader},
            BecomeLeader: {PauseLeadership, StepDown},
            PauseLeadership: {ResumeLeadership, StepDown},
            ResumeLeadership: {PauseLeadership, StepDown},
            StepDown: {BecomeLeader},
        }
        for one in after(steps).candidates:
            last: type | None = None
            for instruction in one.instructions:
                assert type(instruction) in follows[last]
                last = type(instruction)

    def test_a_stopped_leader_is_replaced_and_steps_down_when_it_continues(self) -> None:
        world = World(2)
        world.calm()
        [leader] = [each for each in world.candidates if each.leadership.leading(world.now)]
        world.calm(leader)
        [successor] = [each for each in world.candidates if each.leadership.leading(world.now)]
        assert successor is not leader
        world.answer_arrives(leader, 0)
        world.ticks(leader, 0)
        assert isinstance(leader.instructions[-1], StepDown)

    def test_the_model_would_find_a_lease_that_is_too_long(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("penstock.cluster.leadership.LEASE_SHARE", 2.0)
        world = World(2)
        world.calm()
        [leader] = [each for each in world.candidates if each.leadership.leading(world.now)]
        with pytest.raises(AssertionError, match="lead at"):
            world.calm(leader)
