"""The coordinator: every valid transition of a checkpoint, and the event history in the error for an invalid one."""

import re

import pytest

from penstock.driver.coordinator import (
    Abort,
    Acknowledge,
    AllIn,
    CheckpointStatus,
    CommitSinks,
    Coordinator,
    Decline,
    Expire,
    InvalidTransition,
    Publish,
    Published,
    TriggerCheckpoint,
)
from penstock.runtime.report import EdgeTotals, Report, channel_fingerprint
from penstock.runtime.rows import Failure, channel_of

SOURCE, COUNT = 0, 1
"""A source's chain and a chain of two subtasks."""

TIMEOUT = 1000


def trigger(epoch=1, at=0):
    return TriggerCheckpoint(epoch, at, frozenset({(COUNT, 0), (COUNT, 1)}), frozenset({SOURCE}))


def sent(target, buffers=1, records=10, producer=0, checksum=7, edge=0):
    """Return the totals of one channel."""
    return EdgeTotals(
        edge=edge,
        channels=1,
        buffers=buffers,
        records=records,
        fingerprint=channel_fingerprint(channel_of(edge, producer), target, buffers, records, checksum),
    )


def report(chain, subtask, epoch=1, sent=(), received=()):
    return Report(
        chain=chain, subtask=subtask, epoch=epoch, records_in=0, sent=list(sent), received=list(received), operators=[]
    )


def reports(epoch=1):
    """The source sends ten records to each of the two subtasks."""
    return [
        report(SOURCE, 0, epoch, sent=[sent(0), sent(1)]),
        report(COUNT, 0, epoch, received=[sent(0)]),
        report(COUNT, 1, epoch, received=[sent(1)]),
    ]


def failure(error="KeyError: 'x'", from_user=True):
    return Failure(operator="count", uid="c", subtask=0, error=error, traceback="", from_user=from_user)


@pytest.fixture
def coordinator():
    return Coordinator(TIMEOUT)


def acknowledge_all(coordinator, epoch=1):
    for each in reports(epoch):
        assert coordinator.handle(Acknowledge(each, at=10)) is None


def assert_published(instruction):
    """Check that the first epoch is published, with the reports of all tasks."""
    assert instruction == Publish(1)
    assert {chain: set(tasks) for chain, tasks in instruction.totals.by_task.items()} == {SOURCE: {0}, COUNT: {0, 1}}


class TestACheckpointThatSucceeds:
    def test_a_checkpoint_is_triggered_acknowledged_published_and_committed(self, coordinator):
        assert coordinator.handle(trigger()) is None
        assert coordinator.current.status is CheckpointStatus.TRIGGERED
        acknowledge_all(coordinator)
        assert_published(coordinator.handle(AllIn(1, at=20)))
        assert coordinator.current.status is CheckpointStatus.TRIGGERED, "not complete before it is published"
        assert coordinator.handle(Published(1, at=30)) == CommitSinks(1)
        assert coordinator.current.status is CheckpointStatus.COMPLETED

    def test_a_completed_checkpoint_is_followed_by_the_next(self, coordinator):
        for epoch in (1, 2, 3):
            coordinator.handle(trigger(epoch))
            acknowledge_all(coordinator, epoch)
            coordinator.handle(AllIn(epoch, at=20))
            coordinator.handle(Published(epoch, at=30))
        assert [(each.epoch, each.status) for each in coordinator.recent] == [
            (epoch, CheckpointStatus.COMPLETED) for epoch in (1, 2, 3)
        ]

    def test_a_completed_checkpoint_keeps_acknowledgement_times_but_not_reports(self, coordinator):
        coordinator.handle(trigger(at=5))
        acknowledge_all(coordinator)
        coordinator.handle(AllIn(1, at=20))
        coordinator.handle(Published(1, at=30))
        done = coordinator.recent[0]
        assert done.acknowledged_at == {(SOURCE, 0): 10, (COUNT, 0): 10, (COUNT, 1): 10}
        assert (done.triggered_at, done.ended_at, done.totals.by_task) == (5, 30, {})

    def test_a_checkpoint_can_have_any_number_of_source_partitions(self, coordinator):
        coordinator.handle(trigger())
        for subtask in (0, 1):
            coordinator.handle(Acknowledge(report(COUNT, subtask), at=1))
        instruction = coordinator.handle(AllIn(1, at=2))
        assert isinstance(instruction, Publish)

    def test_a_checkpoint_can_take_as_long_as_the_timeout(self, coordinator):
        coordinator.handle(trigger(at=100))
        acknowledge_all(coordinator)
        instruction = coordinator.handle(AllIn(1, at=100 + TIMEOUT))
        assert isinstance(instruction, Publish)


class TestACheckpointThatFails:
    def end(self, coordinator, at=20):
        abort = coordinator.handle(AllIn(1, at=at))
        assert isinstance(abort, Abort)
        assert abort.status is coordinator.current.status
        assert coordinator.current.ended_at == at
        assert coordinator.current.totals.by_task == {}
        return abort

    def test_one_failure_declines_a_checkpoint_despite_all_acknowledgements(self, coordinator):
        coordinator.handle(trigger())
        acknowledge_all(coordinator)
        assert coordinator.handle(Decline(1, failure(), at=11)) is None
        abort = self.end(coordinator)
        assert (abort.status, abort.reason) == (CheckpointStatus.DECLINED, "KeyError: 'x'")
        assert abort.failures == (failure(),)

    def test_a_user_failure_is_listed_before_an_engine_failure(self, coordinator):
        coordinator.handle(trigger())
        lost, users = failure("executor lost", from_user=False), failure("ValueError")
        coordinator.handle(Decline(1, lost, at=1))
        coordinator.handle(Decline(1, users, at=2))
        assert self.end(coordinator).failures == (users, lost)

    def test_a_missing_acknowledgement_declines_a_checkpoint(self, coordinator):
        coordinator.handle(trigger())
        coordinator.handle(Acknowledge(reports()[0], at=1))
        coordinator.handle(Acknowledge(reports()[2], at=1))
        abort = self.end(coordinator)
        assert abort.status is CheckpointStatus.DECLINED
        assert abort.reason == "no acknowledgement from chain 1 subtask 0"

    @pytest.mark.parametrize(
        ("received", "message"),
        [
            ([sent(1, records=9)], r"edge 0: sent 20 records in 2 buffers .*, received 19 records in 2 buffers"),
            ([sent(1, buffers=2)], r"sent 20 records in 2 buffers .*, received 20 records in 3 buffers"),
            ([], r"over 2 channels .*, received 10 records in 1 buffers over 1 channels"),
            ([sent(1), sent(1, producer=7)], r"over 2 channels .*, received 30 records in 3 buffers over 3 channels"),
            ([sent(1), sent(1, edge=3)], r"edge 3: sent nothing, received 10 records"),
            ([sent(2)], r"sent 20 records .*, received 20 records"),
            ([sent(1, producer=7)], r"sent 20 records .*, received 20 records"),
            ([sent(1, checksum=8)], r"sent 20 records .*, received 20 records"),
        ],
        ids=[
            "fewer records",
            "more buffers",
            "a lost channel",
            "an unknown channel",
            "an unknown edge",
            "another target",
            "another producer",
            "other content",
        ],
    )
    def test_ends_that_disagree_about_a_channel_decline_a_checkpoint(self, coordinator, received, message):
        coordinator.handle(trigger())
        source, first, _ = reports()
        for each in (source, first, report(COUNT, 1, received=received)):
            coordinator.handle(Acknowledge(each, at=1))
        abort = self.end(coordinator)
        assert abort.status is CheckpointStatus.DECLINED
        assert re.search(message, abort.reason)

    def test_a_checkpoint_that_exceeds_the_timeout_expires(self, coordinator):
        coordinator.handle(trigger(at=100))
        acknowledge_all(coordinator)
        abort = self.end(coordinator, at=1101)
        assert abort.status is CheckpointStatus.EXPIRED
        assert abort.reason == "it took 1001 ms, more than the checkpoint timeout of 1000 ms"

    def test_channels_that_differ_are_found_even_if_their_sums_agree(self, coordinator):
        coordinator.handle(trigger())
        source = report(SOURCE, 0, sent=[sent(0, records=12), sent(1, records=8)])
        swapped = [report(COUNT, number, received=[sent(number, records=(8, 12)[number])]) for number in (0, 1)]
        for each in (source, *swapped):
            coordinator.handle(Acknowledge(each, at=1))
        assert self.end(coordinator).reason.startswith("edge 0: sent 20 records in 2 buffers over 2 channels")

    @pytest.mark.parametrize("how", ["declined", "expired"])
    def test_a_failed_checkpoint_can_be_triggered_again_from_scratch(self, coordinator, how):
        coordinator.handle(trigger(at=0))
        if how == "declined":
            coordinator.handle(Decline(1, failure(), at=1))
        else:
            acknowledge_all(coordinator)
        self.end(coordinator, at=5000)
        coordinator.handle(trigger(at=6000))
        acknowledge_all(coordinator)
        assert_published(coordinator.handle(AllIn(1, at=6010)))
        assert [each.status.name for each in coordinator.recent] == [how.upper(), "TRIGGERED"]


def at_rest(coordinator):
    pass


def triggered(coordinator):
    coordinator.handle(trigger())


def ready(coordinator):
    coordinator.handle(trigger())
    acknowledge_all(coordinator)
    coordinator.handle(AllIn(1, at=20))


def completed(coordinator):
    ready(coordinator)
    coordinator.handle(Published(1, at=30))


def declined(coordinator):
    coordinator.handle(trigger())
    coordinator.handle(Decline(1, failure(), at=1))
    coordinator.handle(AllIn(1, at=2))


ACKNOWLEDGE = Acknowledge(report(COUNT, 0), at=50)
DECLINE = Decline(1, failure(), at=50)
ALL_IN = AllIn(1, at=50)
PUBLISHED = Published(1, at=50)


class TestInvalidEvents:
    @pytest.mark.parametrize(
        ("state", "event"),
        [
            *((at_rest, event) for event in (ACKNOWLEDGE, DECLINE, ALL_IN, PUBLISHED)),
            (triggered, trigger()),
            (triggered, trigger(2)),
            (triggered, PUBLISHED),
            (triggered, Acknowledge(report(COUNT, 0, epoch=2), at=1)),
            (triggered, Acknowledge(report(COUNT, 2), at=1)),
            (triggered, Acknowledge(report(5, 0), at=1)),
            (triggered, Decline(2, failure(), at=1)),
            (triggered, AllIn(2, at=1)),
            *((ready, event) for event in (ACKNOWLEDGE, DECLINE, ALL_IN, trigger(), Published(2, at=1))),
            *((completed, event) for event in (ACKNOWLEDGE, DECLINE, ALL_IN, PUBLISHED, trigger(1), trigger(3))),
            *((declined, event) for event in (ACKNOWLEDGE, DECLINE, ALL_IN, PUBLISHED, trigger(2))),
        ],
        ids=lambda value: getattr(value, "__name__", None) or f"{type(value).__name__}",
    )
    def test_an_invalid_event_raises_with_the_current_state(self, coordinator, state, event):
        state(coordinator)
        where = {at_rest: "no checkpoint", triggered: "TRIGGERED 1", ready: "TRIGGERED 1", completed: "COMPLETED 1"}
        with pytest.raises(InvalidTransition, match=f"cannot happen in {where.get(state, 'DECLINED 1')}"):
            coordinator.handle(event)

    def test_a_second_acknowledgement_from_a_subtask_raises(self, coordinator):
        coordinator.handle(trigger())
        for chain in (COUNT, SOURCE):
            coordinator.handle(Acknowledge(report(chain, 0), at=1))
            with pytest.raises(InvalidTransition):
                coordinator.handle(Acknowledge(report(chain, 0), at=2))

    def test_the_error_lists_recent_events_in_order(self, coordinator):
        completed(coordinator)
        with pytest.raises(InvalidTransition) as caught:
            coordinator.handle(ALL_IN)
        _, *story = str(caught.value).splitlines()
        assert [line.split("(")[0] for line in story] == [
            "TriggerCheckpoint",
            "Acknowledge",
            "Acknowledge",
            "Acknowledge",
            "AllIn",
            "Published",
            "AllIn",
        ]

    def test_the_error_does_not_contain_what_grows_with_the_job(self, coordinator):
        coordinator.handle(trigger())
        large = report(SOURCE, 0, sent=[sent(target) for target in range(1000)])
        coordinator.handle(Acknowledge(large, at=1))
        with pytest.raises(InvalidTransition) as caught:
            coordinator.handle(Acknowledge(large, at=2))
        assert "Acknowledge(chain=0, subtask=0, epoch=1, at=2) cannot happen" in str(caught.value)
        assert len(str(caught.value)) < 500

    def test_an_invalid_event_changes_nothing(self, coordinator):
        coordinator.handle(trigger())
        with pytest.raises(InvalidTransition):
            coordinator.handle(PUBLISHED)
        acknowledge_all(coordinator)
        assert_published(coordinator.handle(AllIn(1, at=20)))


class TestACheckpointThatIsStopped:
    def test_a_stopped_checkpoint_expires_even_if_the_engine_reports_a_loss(self, coordinator):
        coordinator.handle(trigger())
        coordinator.handle(Decline(1, failure("the job was cancelled", from_user=False), at=TIMEOUT))
        coordinator.handle(Expire(1, at=TIMEOUT))
        abort = coordinator.handle(AllIn(1, at=TIMEOUT))
        assert abort.status is CheckpointStatus.EXPIRED
        assert abort.failures == ()

    def test_a_stopped_checkpoint_reports_a_user_failure_if_there_is_one(self, coordinator):
        coordinator.handle(trigger())
        coordinator.handle(Decline(1, failure(), at=10))
        coordinator.handle(Expire(1, at=TIMEOUT))
        abort = coordinator.handle(AllIn(1, at=TIMEOUT))
        assert (abort.status, abort.failures) == (CheckpointStatus.DECLINED, (failure(),))


class TestRecovery:
    @pytest.mark.parametrize("next_epoch", [1, 2])
    def test_recovery_continues_whether_or_not_the_last_checkpoint_was_published(self, coordinator, next_epoch):
        coordinator.handle(trigger())
        acknowledge_all(coordinator)
        coordinator.handle(AllIn(1, at=20))
        coordinator.forget(at=25)
        assert coordinator.handle(trigger(next_epoch, at=30)) is None
        assert [each.status.name for each in coordinator.recent] == ["DECLINED", "TRIGGERED"]

    def test_recovery_keeps_completed_checkpoints(self, coordinator):
        coordinator.handle(trigger())
        acknowledge_all(coordinator)
        coordinator.handle(AllIn(1, at=20))
        coordinator.handle(Published(1, at=22))
        coordinator.forget(at=25)
        assert [each.status.name for each in coordinator.recent] == ["COMPLETED"]


def test_the_coordinator_keeps_a_limited_number_of_checkpoints():
    coordinator = Coordinator(TIMEOUT, keep=3)
    for epoch in range(1, 8):
        coordinator.handle(trigger(epoch))
        acknowledge_all(coordinator, epoch)
        coordinator.handle(AllIn(epoch, at=1))
        coordinator.handle(Published(epoch, at=2))
    assert [each.epoch for each in coordinator.recent] == [5, 6, 7]
