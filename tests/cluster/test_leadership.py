"""Leadership: single transitions of the state machine."""

from __future__ import annotations

import pytest

from penstock.cluster.leadership import (
    LEASE_SHARE,
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
    Role,
    StepDown,
    Suspended,
    Tick,
)

TIMEOUT = 12.0
LEASE = LEASE_SHARE * TIMEOUT


def ping(at: float, sent_at: float | None = None) -> PingConfirmed:
    return PingConfirmed(at=at, sent_at=at if sent_at is None else sent_at, timeout_s=TIMEOUT)


@pytest.fixture
def leader() -> Leadership:
    """A leader since time 0, with a lease until 8."""
    leadership = Leadership()
    leadership.handle(Connected(0))
    leadership.handle(ping(0))
    assert leadership.handle(LatchWon(0, turn=1, epoch=7)) == [BecomeLeader(7)]
    return leadership


class TestBecomingTheLeader:
    def test_a_new_connection_joins_the_latch(self) -> None:
        assert Leadership().handle(Connected(0)) == [Rejoin(1)]

    def test_a_latch_that_is_won_leads_only_after_a_confirmed_ping(self) -> None:
        leadership = Leadership()
        leadership.handle(Connected(0))
        assert leadership.handle(LatchWon(1, turn=1, epoch=7)) == []
        assert not leadership.leading(1)
        assert leadership.handle(ping(2, sent_at=1)) == [BecomeLeader(7)]
        assert leadership.leading(2)

    def test_a_ping_that_took_longer_than_the_lease_confirms_nothing(self) -> None:
        leadership = Leadership()
        leadership.handle(Connected(0))
        leadership.handle(LatchWon(0, turn=1, epoch=7))
        assert leadership.handle(ping(LEASE, sent_at=0)) == []
        assert not leadership.leading(LEASE)

    def test_the_latch_of_an_earlier_turn_counts_for_nothing(self) -> None:
        leadership = Leadership()
        leadership.handle(Connected(0))
        leadership.handle(Lost(1))
        assert leadership.handle(Connected(2)) == [Rejoin(2)]
        leadership.handle(ping(2))
        assert leadership.handle(LatchWon(3, turn=1, epoch=7)) == []
        assert leadership.handle(LatchWon(3, turn=2, epoch=9)) == [BecomeLeader(9)]

    def test_winning_again_in_the_same_turn_changes_nothing(self, leader: Leadership) -> None:
        assert leader.handle(LatchWon(1, turn=1, epoch=7)) == []
        assert leader.leading(1)


class TestALostConnection:
    def test_the_leader_pauses_and_resumes_with_the_next_confirmed_ping(self, leader: Leadership) -> None:
        assert leader.handle(Suspended(1)) == [PauseLeadership()]
        assert not leader.leading(1)
        assert leader.handle(Connected(2)) == []
        assert not leader.leading(2)
        assert leader.handle(ping(3, sent_at=2)) == [ResumeLeadership()]
        assert leader.leading(3)

    def test_an_answer_from_before_the_loss_does_not_resume(self, leader: Leadership) -> None:
        leader.handle(Suspended(2))
        leader.handle(Connected(3))
        assert leader.handle(ping(4, sent_at=1)) == []
        assert leader.role is Role.PAUSED

    def test_a_paused_leader_steps_down_when_the_lease_runs_out(self, leader: Leadership) -> None:
        leader.handle(Suspended(1))
        assert leader.handle(Tick(LEASE - 0.1)) == []
        [stepped] = leader.handle(Tick(LEASE))
        assert isinstance(stepped, StepDown)

    def test_a_leader_that_stepped_down_joins_again_when_it_is_connected(self, leader: Leadership) -> None:
        leader.handle(Suspended(1))
        leader.handle(Tick(LEASE))
        assert leader.handle(Connected(LEASE + 1)) == [Rejoin(2)]

    def test_a_reconnection_after_the_lease_steps_down_first(self, leader: Leadership) -> None:
        leader.handle(Suspended(1))
        stepped, joined = leader.handle(Connected(LEASE))
        assert isinstance(stepped, StepDown)
        assert joined == Rejoin(2)

    def test_an_answer_about_the_latch_that_arrives_late_does_not_resume(self, leader: Leadership) -> None:
        leader.handle(Suspended(1))
        assert leader.handle(LatchWon(2, turn=1, epoch=7)) == []
        assert leader.role is Role.PAUSED

    def test_a_standby_does_not_notice(self) -> None:
        leadership = Leadership()
        leadership.handle(Connected(0))
        assert leadership.handle(Suspended(1)) == []
        assert leadership.handle(Connected(2)) == []


class TestSteppingDown:
    def test_a_lost_session_steps_down(self, leader: Leadership) -> None:
        assert leader.handle(Lost(1)) == [StepDown("The ZooKeeper session is lost.")]
        assert leader.handle(Connected(2)) == [Rejoin(2)]

    def test_the_lease_of_a_lost_session_does_not_count_for_the_next_one(self, leader: Leadership) -> None:
        leader.handle(Lost(1))
        leader.handle(Connected(2))
        leader.handle(PingConfirmed(2, sent_at=2, timeout_s=1.5))
        leader.handle(LatchWon(2, turn=2, epoch=9))
        assert leader.deadline == 3

    def test_a_leader_whose_node_was_removed_steps_down_and_joins_again(self, leader: Leadership) -> None:
        stepped, joined = leader.handle(LatchLost(1, turn=1))
        assert isinstance(stepped, StepDown)
        assert joined == Rejoin(2)
        assert not leader.leading(1)

    def test_a_process_that_was_stopped_does_not_lead_even_before_its_next_event(self, leader: Leadership) -> None:
        assert leader.leading(LEASE - 0.1)
        assert not leader.leading(LEASE)

    @pytest.mark.parametrize(
        "late",
        [
            Tick(100),
            ping(100, sent_at=1),
            LatchWon(100, turn=1, epoch=7),
            Suspended(100),
            Lost(100),
            LatchLost(100, turn=1),
        ],
        ids=lambda event: type(event).__name__,
    )
    def test_a_process_that_continues_after_its_lease_steps_down_before_anything_else(
        self, leader: Leadership, late: Event
    ) -> None:
        first, *others = leader.handle(late)
        assert isinstance(first, StepDown)
        assert not any(isinstance(each, (BecomeLeader, ResumeLeadership, StepDown)) for each in others)
        assert not leader.leading(100)

    def test_confirmed_pings_extend_the_lease(self, leader: Leadership) -> None:
        for at in range(1, 100):
            assert leader.handle(ping(at)) == []
            assert leader.leading(at)
        assert leader.deadline == 99 + LEASE

    def test_a_late_answer_does_not_shorten_the_lease(self, leader: Leadership) -> None:
        leader.handle(ping(3))
        leader.handle(ping(4, sent_at=1))
        assert leader.deadline == 3 + LEASE
