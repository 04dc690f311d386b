"""The life cycle of a job, without Spark: every event in every state, and regressions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common.job import JobStatus
from penstock.driver.instructions import (
    AwaitRecovery,
    AwaitRestart,
    ChangeParallelism,
    End,
    JobFailure,
    JobTraits,
    Recover,
    Refusal,
    RunEpoch,
    Save,
    StartQuery,
    StopQuery,
)
from penstock.driver.life_cycle import InvalidEvent, LifeCycle, Phase, Wish
from penstock.driver.restarts import FixedDelay, NoRestart
from penstock.errors import PenstockError

STREAM = JobTraits()
STRATEGY = FixedDelay(attempts=3, delay_ms=1000)
FAILURE = JobFailure(at=0)

WISHES: dict[Wish, Callable[[LifeCycle], object]] = {
    Wish.GO_ON: lambda life: None,
    Wish.SUSPEND: lambda life: life.suspend_requested(),
    # A savepoint is the only way to stop, and it needs a running job.
    Wish.STOP: lambda life: life.stopped(),
    Wish.CANCEL: lambda life: life.cancel_requested(),
}


def at(phase: Phase, wish: Wish = Wish.GO_ON, traits: JobTraits = STREAM, strategy: Any = STRATEGY) -> LifeCycle:
    """Return a job in this state."""
    life = LifeCycle(traits, strategy)
    ends_itself = phase in OVER and wish is Wish.GO_ON
    if phase is not Phase.CREATED:
        life.start()
    if phase not in (Phase.CREATED, Phase.RECOVERING):
        life.recovered(7, ended=True) if ends_itself else life.recovered(None)
    if phase is Phase.RESTARTING:
        life.failed(FAILURE)
    WISHES[wish](life)
    if phase in OVER and not ends_itself:
        life.query_ended()
    if phase is Phase.ENDED:
        life.ended()
    assert (life.phase, life.wish) == (phase, wish)
    return life


ALIVE = (Phase.CREATED, Phase.RECOVERING, Phase.RUNNING, Phase.RESTARTING)
OVER = (Phase.ENDING, Phase.ENDED)
STATES = [
    (phase, wish)
    for phase in Phase
    for wish in Wish
    # A stopped job is running or ending.
    if wish is not Wish.STOP or phase in (Phase.RUNNING, *OVER)
]

EVENTS: dict[str, Callable[[LifeCycle], object]] = {
    "start": lambda life: life.start(),
    "recovered": lambda life: life.recovered(3),
    "query_started": lambda life: life.query_started(),
    "batch_ready": lambda life: life.batch_ready(life.generation),
    "wakeup_due": lambda life: life.wakeup_due(),
    "epoch_done": lambda life: life.epoch_done(),
    "listener_failed": lambda life: life.listener_failed(),
    "input_over": lambda life: life.input_over(),
    "query_ended": lambda life: life.query_ended(),
    "clock_set_back": lambda life: life.clock_set_back(),
    "failed": lambda life: life.failed(FAILURE),
    "delay_over": lambda life: life.delay_over(),
    "savepoint_requested": lambda life: life.savepoint_requested(),
    "stop_requested": lambda life: life.stop_requested(),
    "stopped": lambda life: life.stopped(),
    "rescale_requested": lambda life: life.rescale_requested(),
    "cancel_requested": lambda life: life.cancel_requested(),
    "suspend_requested": lambda life: life.suspend_requested(),
    "ended": lambda life: life.ended(),
}

UNBOUNDED = JobTraits(bounded=False)


class Then(NamedTuple):
    """The result of an event."""

    instruction: object = None
    phase: Phase | None = None
    """None: unchanged."""
    wish: Wish | None = None


def in_all(phases: Iterable[Phase], then: Then) -> dict[Phase, dict[Wish, Then]]:
    return {phase: dict.fromkeys(Wish, then) for phase in phases}


ENDS = {
    Wish.GO_ON: Then(End(JobStatus.FINISHED, end_lineage=True), Phase.ENDING),
    Wish.SUSPEND: Then(End(JobStatus.SUSPENDED), Phase.ENDING),
    Wish.STOP: Then(End(JobStatus.FINISHED, close=True, end_lineage=True), Phase.ENDING),
    Wish.CANCEL: Then(End(JobStatus.CANCELED, close=True, finish_sinks=True, end_lineage=True), Phase.ENDING),
}
"""How an unbounded job ends, by wish."""


def granted(instruction: object) -> dict[Phase, dict[Wish, Then]]:
    """Return the results of a request that a job grants while it runs and nothing ends it."""
    return {
        **{
            phase: {**dict.fromkeys(Wish, Then(Refusal.OVER)), Wish.GO_ON: Then(AwaitRecovery())}
            for phase in (Phase.CREATED, Phase.RECOVERING, Phase.RESTARTING)
        },
        Phase.RUNNING: {**dict.fromkeys(Wish, Then(Refusal.OVER)), Wish.GO_ON: Then(instruction)},
        **in_all(OVER, Then(Refusal.OVER)),
    }


EXPECTED: dict[str, dict[Phase, dict[Wish, Then]]] = {
    "start": in_all([Phase.CREATED], Then(Recover(), Phase.RECOVERING)),
    "recovered": {Phase.RECOVERING: {**ENDS, Wish.GO_ON: Then(StartQuery(0), Phase.RUNNING)}},
    "query_started": {
        Phase.RUNNING: {
            Wish.GO_ON: Then(),
            Wish.SUSPEND: Then(StopQuery()),
            Wish.STOP: Then(StopQuery()),
            Wish.CANCEL: Then(StopQuery(now=True)),
        }
    },
    "batch_ready": {
        **in_all([Phase.RECOVERING, Phase.RESTARTING, *OVER], Then()),
        Phase.RUNNING: {**dict.fromkeys(Wish, Then()), Wish.GO_ON: Then(RunEpoch())},
    },
    "wakeup_due": {Phase.RUNNING: {**dict.fromkeys(Wish, Then()), Wish.GO_ON: Then(RunEpoch())}},
    "epoch_done": in_all([Phase.RUNNING], Then()),
    "listener_failed": in_all(ALIVE, Then()),
    "input_over": in_all([Phase.RUNNING], Then()),
    "query_ended": {Phase.RUNNING: ENDS},
    "clock_set_back": {
        Phase.RUNNING: {**dict.fromkeys(Wish, Then()), Wish.GO_ON: Then(Recover(), Phase.RECOVERING)},
    },
    "failed": {
        **{phase: {**ENDS, Wish.GO_ON: Then(AwaitRestart(1, 1000, False), Phase.RESTARTING)} for phase in ALIVE},
        Phase.RESTARTING: {**ENDS, Wish.GO_ON: Then(AwaitRestart(2, 1000, False), Phase.RESTARTING)},
    },
    "delay_over": {Phase.RESTARTING: {**ENDS, Wish.GO_ON: Then(Recover(), Phase.RECOVERING)}},
    "savepoint_requested": granted(Save(first_epoch=True)),
    "stop_requested": granted(Save(first_epoch=True)),
    "stopped": {
        Phase.RUNNING: {
            **dict.fromkeys(Wish, Then(StopQuery(), wish=Wish.STOP)),
            Wish.CANCEL: Then(StopQuery(), wish=Wish.CANCEL),
        }
    },
    "rescale_requested": granted(ChangeParallelism()),
    "cancel_requested": {
        **in_all(ALIVE, Then(StopQuery(now=True), wish=Wish.CANCEL)),
        **in_all(OVER, Then()),
    },
    "suspend_requested": {
        **{
            phase: {
                Wish.GO_ON: Then(StopQuery(), wish=Wish.SUSPEND),
                Wish.SUSPEND: Then(StopQuery()),
                Wish.STOP: Then(StopQuery()),
                Wish.CANCEL: Then(StopQuery(now=True)),
            }
            for phase in ALIVE
        },
        **in_all(OVER, Then()),
    },
    "ended": in_all(Phase, Then(None, Phase.ENDED)),
}


def test_events_reach_exactly_the_tested_states() -> None:
    paths: dict[tuple[Phase, Wish], list[str]] = {(Phase.CREATED, Wish.GO_ON): []}
    unexplored = list(paths)
    while unexplored:
        path = paths[unexplored.pop()]
        for event in EVENTS:
            life = LifeCycle(UNBOUNDED, STRATEGY)
            try:
                for each in [*path, event]:
                    EVENTS[each](life)
            except InvalidEvent:
                continue
            state = (life.phase, life.wish)
            if state not in paths:
                paths[state] = [*path, event]
                unexplored.append(state)
    assert paths.keys() == set(STATES)


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize(("phase", "wish"), STATES, ids=lambda each: each.name)
def test_every_event_has_its_expected_result_in_every_state(phase: Phase, wish: Wish, event: str) -> None:
    life = at(phase, wish, UNBOUNDED)
    if phase not in EXPECTED[event]:
        with pytest.raises(InvalidEvent, match=f"{event}.*cannot happen in phase {phase.value}, {wish.name}"):
            EVENTS[event](life)
        assert (life.phase, life.wish) == (phase, wish), "an invalid event changes nothing"
        return
    then = EXPECTED[event][phase][wish]
    assert EVENTS[event](life) == then.instruction
    assert life.phase is (then.phase or phase)
    assert life.wish is (wish if then.wish is None else then.wish)


def test_an_invalid_event_lists_recent_events() -> None:
    life = at(Phase.RUNNING)
    with pytest.raises(InvalidEvent) as raised:
        life.delay_over()
    story = str(raised.value).splitlines()
    assert story[1:] == [
        "created, GO_ON: start() → recovering: Recover()",
        "recovering, GO_ON: recovered(None) → running: StartQuery(generation=0)",
    ]


def test_the_list_of_recent_events_is_bounded() -> None:
    life = at(Phase.RUNNING)
    for _ in range(1000):
        life.epoch_done()
    with pytest.raises(InvalidEvent) as raised:
        life.delay_over()
    assert len(str(raised.value).splitlines()) < 60


class TestAJobThatRuns:
    def test_a_job_finishes_at_the_end_of_its_input_and_removes_its_checkpoints(self) -> None:
        life = at(Phase.RUNNING)
        assert life.batch_ready(0) == RunEpoch()
        life.epoch_done()
        assert life.query_ended() == RunEpoch(ends_input=True)
        life.epoch_done(ended=True)
        assert life.query_ended() == End(JobStatus.FINISHED, end_lineage=True)
        assert life.status is JobStatus.RUNNING
        life.ended()
        assert life.status is JobStatus.FINISHED

    def test_an_unbounded_job_ends_with_its_query(self) -> None:
        assert at(Phase.RUNNING, traits=UNBOUNDED).query_ended() == End(JobStatus.FINISHED, end_lineage=True)

    def test_a_job_drains_its_query_after_its_sources_have_ended(self) -> None:
        life = at(Phase.RUNNING, traits=UNBOUNDED)
        assert not life.drains_query
        life.input_over()
        assert life.drains_query
        assert life.query_ended() == RunEpoch(ends_input=True)

    def test_a_job_without_sources_ends_its_input_immediately(self) -> None:
        life = at(Phase.RECOVERING, traits=JobTraits(has_sources=False))
        assert life.recovered(None) == RunEpoch(ends_input=True)

    def test_a_batch_is_one_epoch_and_is_retried_in_the_same_lineage(self) -> None:
        batch = JobTraits(checkpointing=False, resumable=False, single_epoch=True)
        life = at(Phase.RECOVERING, traits=batch)
        assert life.recovered(None) == RunEpoch(ends_input=True)
        assert life.failed(FAILURE) == AwaitRestart(1, 1000, new_lineage=False)
        assert life.delay_over() == Recover()
        assert life.recovered(None) == RunEpoch(ends_input=True)
        life.epoch_done(ended=True)
        assert life.query_ended() == End(JobStatus.FINISHED, end_lineage=True)

    @pytest.mark.parametrize("request_it", ["savepoint_requested", "stop_requested", "rescale_requested"])
    @pytest.mark.parametrize("phase", Phase, ids=lambda phase: phase.name)
    def test_a_batch_refuses_requests_that_need_checkpoints_without_waiting(
        self, phase: Phase, request_it: str
    ) -> None:
        batch = JobTraits(checkpointing=False, resumable=False, single_epoch=True)
        assert EVENTS[request_it](at(phase, traits=batch)) is Refusal.BATCH

    def test_a_job_whose_input_has_ended_refuses_another_parallelism(self) -> None:
        life = at(Phase.RUNNING)
        life.epoch_done(ended=True)
        assert life.rescale_requested() is Refusal.OVER

    def test_a_job_whose_input_has_ended_ends_after_recovery(self) -> None:
        life = at(Phase.RECOVERING)
        assert life.recovered(9, ended=True) == End(JobStatus.FINISHED, end_lineage=True)


class TestARestart:
    def test_a_restart_continues_from_the_last_checkpoint_with_a_new_query(self) -> None:
        life = at(Phase.RUNNING)
        life.epoch_done()
        assert life.failed(FAILURE) == AwaitRestart(1, 1000, new_lineage=False)
        assert (life.status, life.restarts) == (JobStatus.RESTARTING, 1)
        assert life.batch_ready(0) is None, "the batch belongs to the failed query"
        assert life.delay_over() == Recover()
        assert life.recovered(1) == StartQuery(1)
        assert life.batch_ready(0) is None
        assert life.batch_ready(1) == RunEpoch()

    def test_a_restart_without_checkpoints_begins_a_new_lineage(self) -> None:
        life = at(Phase.RUNNING, traits=JobTraits(checkpointing=False, resumable=False))
        assert life.failed(FAILURE) == AwaitRestart(1, 1000, new_lineage=True)

    def test_the_strategy_decides_about_a_restart(self) -> None:
        life = at(Phase.RUNNING, strategy=NoRestart())
        assert life.failed(FAILURE) == End(JobStatus.FAILED)
        assert life.status is JobStatus.FAILING
        life.ended()
        assert life.status is JobStatus.FAILED
        life = at(Phase.RUNNING, strategy=FixedDelay(0, 0))
        assert "fixed delay" in life.failed(FAILURE).reason  # type: ignore[union-attr]

    def test_a_recurring_failure_or_a_failed_listener_does_not_cause_a_restart(self) -> None:
        assert isinstance(at(Phase.RUNNING).failed(JobFailure(0, restartable=False)), End)
        life = at(Phase.RUNNING)
        life.listener_failed()
        assert life.failed(FAILURE) == End(JobStatus.FAILED)

    def test_restarts_after_failed_recoveries_count(self) -> None:
        life = at(Phase.RECOVERING)
        for number in (1, 2, 3):
            assert life.failed(FAILURE) == AwaitRestart(number, 1000, new_lineage=False)
            assert life.delay_over() == Recover()
        assert isinstance(life.failed(FAILURE), End)

    def test_a_job_cancelled_or_suspended_during_the_restart_delay_ends_immediately(self) -> None:
        assert at(Phase.RESTARTING, Wish.CANCEL).delay_over().status is JobStatus.CANCELED  # type: ignore[union-attr]
        assert at(Phase.RESTARTING, Wish.SUSPEND).delay_over() == End(JobStatus.SUSPENDED)


def test_a_failure_has_the_facts_that_decide_about_a_restart() -> None:
    class NotRetryable(PenstockError):
        retryable = False

    assert JobFailure.of(OSError("gone"), 5).restartable
    assert not JobFailure.of(NotRetryable("wrong"), 5).restartable
    assert not JobFailure.of(OSError("gone"), 5, restartable=False).restartable
    assert not JobFailure.of(KeyboardInterrupt(), 5).restartable


def test_setting_the_clock_back_restarts_the_query_of_an_unbounded_job() -> None:
    life = at(Phase.RUNNING, traits=UNBOUNDED)
    assert life.clock_set_back() == Recover()
    assert life.recovered(4) == StartQuery(1)
    assert life.restarts == 0, "the job has not failed"
    assert at(Phase.RUNNING).clock_set_back() is None, "a bounded job does not wait"


class TestASavepoint:
    def test_a_savepoint_runs_an_epoch_first_only_without_a_checkpoint(self) -> None:
        life = at(Phase.RUNNING)
        assert life.savepoint_requested() == Save(first_epoch=True)
        life.epoch_done()
        assert life.savepoint_requested() == Save(first_epoch=False)
        assert at(Phase.RUNNING).stop_requested(drain=True) == Save(first_epoch=False, drain=True)

    def test_a_savepoint_requested_during_a_restart_is_made_after_it(self) -> None:
        life = at(Phase.RESTARTING)
        assert life.savepoint_requested() == AwaitRecovery()
        life.delay_over()
        assert life.savepoint_requested() == AwaitRecovery()
        life.recovered(4)
        assert life.savepoint_requested() == Save(first_epoch=False)

    def test_a_stop_with_savepoint_ends_the_job_without_finishing_the_sinks(self) -> None:
        life = at(Phase.RUNNING, traits=UNBOUNDED)
        assert life.stopped() == StopQuery()
        assert life.batch_ready(0) is None
        assert life.query_ended() == End(JobStatus.FINISHED, close=True, end_lineage=True)

    def test_a_stop_between_recovery_and_query_start_stops_the_query(self) -> None:
        """Regression: the job hung, because the stop found no query and the query started afterwards."""
        life = at(Phase.RECOVERING, traits=UNBOUNDED)
        assert life.recovered(4) == StartQuery(0)
        assert life.stop_requested() == Save(first_epoch=False)
        assert life.stopped() == StopQuery()
        assert life.query_started() == StopQuery()
        assert life.query_ended() == End(JobStatus.FINISHED, close=True, end_lineage=True)

    def test_a_drained_job_ends_like_one_whose_input_ended(self) -> None:
        life = at(Phase.RUNNING, traits=UNBOUNDED)
        life.epoch_done(ended=True)
        life.stopped()
        assert life.query_ended() == End(JobStatus.FINISHED, end_lineage=True)

    def test_a_failure_after_the_final_savepoint_still_finishes_the_job(self) -> None:
        life = at(Phase.RUNNING, Wish.STOP, UNBOUNDED)
        assert life.failed(FAILURE).status is JobStatus.FINISHED  # type: ignore[union-attr]

    def test_a_cancel_with_savepoint_cancels_the_job_without_finishing_the_sinks(self) -> None:
        life = at(Phase.RUNNING, traits=UNBOUNDED)
        life.stopped(cancel=True)
        assert life.status is JobStatus.CANCELLING
        assert life.query_ended() == End(JobStatus.CANCELED, close=True, end_lineage=True)


class TestTheEndOfACancelledJob:
    def test_a_cancelled_job_finishes_its_sinks_and_removes_its_checkpoints(self) -> None:
        life = at(Phase.RUNNING, Wish.CANCEL)
        assert life.gives_up_epoch
        assert life.query_ended() == End(JobStatus.CANCELED, close=True, finish_sinks=True, end_lineage=True)

    def test_a_cancelled_job_with_retained_checkpoints_does_not_finish_its_sinks(self) -> None:
        life = at(Phase.RUNNING, Wish.CANCEL, JobTraits(retain=True))
        assert life.query_ended() == End(JobStatus.CANCELED, close=True, end_lineage=True, retain=True)

    def test_a_cancelled_job_without_checkpoints_closes_no_lineage(self) -> None:
        life = at(Phase.RUNNING, Wish.CANCEL, JobTraits(checkpointing=False, resumable=False, retain=True))
        assert life.query_ended() == End(JobStatus.CANCELED, finish_sinks=True, end_lineage=True)


class TestTheEndOfASuspendedJob:
    def test_a_suspended_job_removes_nothing(self) -> None:
        life = at(Phase.RUNNING, Wish.SUSPEND)
        assert not life.gives_up_epoch
        assert life.query_ended() == End(JobStatus.SUSPENDED)

    def test_a_suspended_job_that_cannot_be_resumed_ends_as_cancelled(self) -> None:
        life = at(Phase.RUNNING, Wish.SUSPEND, JobTraits(resumable=False))
        assert life.query_ended() == End(JobStatus.CANCELED, close=True, finish_sinks=True, end_lineage=True)

    def test_an_immediate_suspend_abandons_the_epoch(self) -> None:
        life = at(Phase.RUNNING)
        assert life.suspend_requested(now=True) == StopQuery(now=True)
        batch = at(Phase.RUNNING, traits=JobTraits(checkpointing=False, resumable=False, single_epoch=True))
        assert batch.suspend_requested() == StopQuery(now=True)

    def test_a_failure_while_suspending_still_suspends_the_job(self) -> None:
        assert at(Phase.RUNNING, Wish.SUSPEND).failed(FAILURE) == End(JobStatus.SUSPENDED)


def test_a_stronger_request_overrides_a_weaker_one_and_not_vice_versa() -> None:
    life = at(Phase.RUNNING)
    for ask, wish in [
        (life.suspend_requested, Wish.SUSPEND),
        (life.stopped, Wish.STOP),
        (life.suspend_requested, Wish.STOP),
        (life.cancel_requested, Wish.CANCEL),
        (life.stopped, Wish.CANCEL),
        (life.suspend_requested, Wish.CANCEL),
    ]:
        ask()
        assert life.wish is wish


def test_a_job_that_cannot_be_closed_has_failed() -> None:
    life = at(Phase.ENDING)
    life.ended(failed=True)
    assert life.status is JobStatus.FAILED


@given(st.lists(st.sampled_from(sorted(EVENTS)), max_size=40), st.booleans(), st.booleans())
def test_no_event_order_revives_a_job_or_runs_two_generations(
    events: list[str], bounded: bool, checkpointing: bool
) -> None:
    life = LifeCycle(JobTraits(checkpointing=checkpointing, resumable=checkpointing, bounded=bounded), STRATEGY)
    ended, started = False, 0
    for name in events:
        try:
            instruction = EVENTS[name](life)
        except InvalidEvent:
            continue
        if isinstance(instruction, StartQuery):
            assert instruction.generation == life.generation
            started += 1
        if ended:
            assert not isinstance(instruction, (Recover, StartQuery, RunEpoch, AwaitRestart, Save, ChangeParallelism))
        ended = ended or isinstance(instruction, End) or name == "ended"
        assert life.batch_ready(life.generation - 1) is None if life.phase is not Phase.CREATED else True
    assert ended == (life.phase in OVER)


def test_events_from_several_threads_are_serialized() -> None:
    life = at(Phase.RUNNING)
    ends: list[object] = []

    def end() -> None:
        try:
            ends.append(life.query_ended())
        except InvalidEvent:
            ends.append(None)

    life.cancel_requested()
    threads = [threading.Thread(target=end) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(isinstance(each, End) for each in ends) == 1
