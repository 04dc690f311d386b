"""Each hint appears with its cause, names it, and disappears with it."""

import ast
import inspect
import re

import pytest
from watched_jobs import COUNT, START, epochs, found_after, job, kinds_after, subtask, with_vertex

from penstock.common import WatermarkStrategy
from penstock.common.options import OPTIONS
from penstock.datastream.joins import IntervalJoined
from penstock.datastream.windowed import WindowedStream
from penstock.driver.job_snapshot import (
    CheckpointSnapshot,
    CheckpointsSnapshot,
    ExceptionSnapshot,
    JobSnapshot,
    SlotsSnapshot,
    SubtaskSnapshot,
)
from penstock.web import hints as problem_hints
from penstock.web.job_sections import SECTIONS


def test_a_healthy_job_has_no_hints():
    assert kinds_after(*(job(at) for at in range(0, 600, 5))) == []


@pytest.mark.parametrize("state", ["CREATED", "INITIALIZING", "FINISHED", "CANCELED"])
def test_a_job_without_tasks_has_no_hints(state):
    assert kinds_after(JobSnapshot(id="1" * 32, name="bare", state=state)) == []


def failure(at_s: float) -> ExceptionSnapshot:
    return ExceptionSnapshot(
        name="ValueError", message="bad line\nmore", at_ms=START + int(1000 * at_s), task="parse (1/2)"
    )


def test_a_restarting_job_is_reported_with_its_cause_until_it_runs():
    waiting = job(
        20, state="RESTARTING", state_since_ms={"RESTARTING": START + 15_000}, restarts=3, exceptions=[failure(15)]
    )
    (hint,) = found_after(job(10), waiting)
    assert hint.kind == "restarting"
    assert hint.severity == "error"
    assert "for 5.0 s, after 3 restarts. Cause: ValueError in parse (1/2): bad line" in hint.text
    assert "more" not in hint.text
    assert kinds_after(job(10), waiting, job(25, restarts=3, exceptions=[failure(15)])) == []


def test_repeated_failures_are_reported_for_ten_minutes():
    twice = [failure(15), failure(30)]
    assert kinds_after(job(40, exceptions=twice)) == ["restarting"]
    assert kinds_after(job(700, exceptions=twice)) == []


def test_a_failed_job_is_reported_with_its_reason():
    (hint,) = found_after(job(9, state="FAILED", exceptions=[failure(8)]))
    assert hint.text == "The job failed: ValueError in parse (1/2): bad line"


def test_missing_slots_are_reported_until_they_come():
    (hint,) = found_after(job(1, slots=SlotsSnapshot(needed=8, available=4, waits=True)))
    assert "it needs 8, and 4 are available" in hint.text
    assert kinds_after(job(2, slots=SlotsSnapshot(needed=8, available=8))) == []


def with_backlog(at_s: int, backlog: int) -> JobSnapshot:
    snapshot = with_vertex(job(at_s), 0, driver_metrics={"backlog": backlog})
    return with_vertex(snapshot, 1, subtasks=[subtask(10_000, busy=0.9), subtask(10_000, busy=0.5)])


def test_a_growing_backlog_is_reported_with_the_busiest_chain():
    growing = [with_backlog(at, 1000 * at) for at in range(10, 60, 5)]
    hint = next(each for each in found_after(*growing) if each.kind == "backlog")
    assert "source 'lines' grew" in hint.text
    assert "'count', the busiest chain (90 %)" in hint.fix
    shrinking = [with_backlog(60 + at, 50_000 - 1000 * at) for at in range(0, 45, 5)]
    assert "backlog" not in kinds_after(*growing, *shrinking)


def test_a_backlog_of_few_records_is_normal():
    assert "backlog" not in kinds_after(*(with_backlog(at, at) for at in range(10, 60, 5)))


def test_a_large_backlog_that_grows_slowly_but_steadily_is_reported():
    growing = [with_backlog(at, 10_000_000 + 1000 * at) for at in range(0, 600, 5)]
    assert "backlog" in kinds_after(*growing)
    waves = [with_backlog(at, 10_000_000 + 100_000 * (at // 5 % 3)) for at in range(0, 600, 5)]
    assert "backlog" not in kinds_after(*waves)


def standing(at_s: int, until_s: int = 1000, **changes: object) -> JobSnapshot:
    """Return the job whose second source subtask stands still from 30 s on, until it moves again."""
    snapshot = job(at_s)
    held = START + 30_000 if 30 < at_s < until_s else snapshot.taken_ms
    records = snapshot.vertices[0].subtasks[0].records_in
    sources = [subtask(records, watermark=snapshot.taken_ms), subtask(records, watermark=held)]
    snapshot = with_vertex(snapshot, 0, subtasks=sources)
    counts = [subtask(records, watermark=held), subtask(records, watermark=held)]
    return with_vertex(snapshot, 1, subtasks=counts, **changes)


def test_a_watermark_that_stands_still_is_reported_with_the_subtask_that_holds_it_back():
    (hint,) = found_after(*(standing(at) for at in range(0, 120, 5)))
    assert hint.kind == "watermark"
    assert "The watermark of 'count' has stood at 2025-10-09 08:53:50.000 UTC for 1 min 25 s" in hint.text
    assert "held back by subtask 1 of 'lines'" in hint.text
    assert kinds_after(*(standing(at, until_s=110) for at in range(0, 120, 5))) == []


def test_a_watermark_stands_still_without_a_report_while_no_records_arrive():
    idle = [standing(at, totals=SubtaskSnapshot(records_in=10_000)) for at in range(0, 120, 5)]
    assert kinds_after(*idle) == []


def test_a_job_without_event_time_has_no_watermark_that_stands_still():
    def processing_time(at_s: int) -> JobSnapshot:
        return with_vertex(with_vertex(job(at_s), 0, subtasks=[subtask(1)]), 1, subtasks=[subtask(at_s)])

    assert kinds_after(*(processing_time(at) for at in range(0, 120, 5))) == []


def test_a_skewed_subtask_is_reported_with_its_key_groups():
    rates = [10.0, 900.0, 50.0, 40.0]
    skewed = with_vertex(job(5), 1, subtasks=[subtask(5000, each) for each in rates])
    (hint,) = found_after(skewed)
    assert hint.text == "Subtask 1 of 'count', which owns key groups 32 to 63, receives 90 % of the records."
    even = with_vertex(job(9), 1, subtasks=[subtask(5000, 250.0) for _ in rates])
    assert kinds_after(skewed, even) == []


def test_a_difference_of_few_records_is_not_skew():
    assert kinds_after(with_vertex(job(5), 1, subtasks=[subtask(9, 9.0), subtask(0, 0.0)])) == []


def checkpointed(*durations_ms: int, **changes: object) -> JobSnapshot:
    """Return the job after checkpoints of these durations, oldest first."""
    done = [
        CheckpointSnapshot(
            **{"id": number, "status": "COMPLETED", "triggered_ms": START, "duration_ms": each, **changes}  # type: ignore[arg-type]
        )
        for number, each in enumerate(durations_ms, 5)
    ]
    return job(5, checkpoints=CheckpointsSnapshot(latest_completed=done[-1], history=done[::-1]))


def test_checkpoints_slower_than_their_interval_are_reported_until_one_is_faster():
    (hint,) = found_after(checkpointed(2500, 2600, 2700))
    assert hint.text == "Checkpoint 7 took 2.7 s, longer than the interval of 1.0 s, and so did the one before it."
    assert kinds_after(checkpointed(2500, 2600, 80)) == []


@pytest.mark.parametrize("durations_ms", [[2500], [80, 2500, 2500], [1100, 1100, 1100]])
def test_a_single_checkpoint_and_one_close_to_the_interval_are_not_slow(durations_ms):
    assert kinds_after(checkpointed(*durations_ms)) == []


def test_slow_savepoints_are_not_slow_checkpoints():
    assert kinds_after(checkpointed(9000, 9000, 9000, savepoint=True)) == []


def test_a_failed_checkpoint_is_reported_until_a_later_one_completes():
    failed = CheckpointSnapshot(id=8, status="FAILED", triggered_ms=START + 500, failure="expired")
    before = CheckpointSnapshot(id=7, status="COMPLETED", triggered_ms=START)
    after = CheckpointSnapshot(id=9, status="COMPLETED", triggered_ms=START + 900)
    (hint,) = found_after(job(1, checkpoints=CheckpointsSnapshot(latest_failed=failed, latest_completed=before)))
    assert hint.text == "Checkpoint 8 failed: expired"
    assert kinds_after(job(1, checkpoints=CheckpointsSnapshot(latest_failed=failed, latest_completed=after))) == []


def sized(sizes: list[int]) -> JobSnapshot:
    recent = [epochs(1, number=number, state_bytes=each << 20)[0] for number, each in enumerate(sizes, 1)]
    return job(60, recent_epochs=recent)


def test_state_that_grows_steadily_is_reported():
    (hint,) = found_after(sized(list(range(10, 40, 2))))
    assert hint.kind == "state"
    assert "from 10.0 MiB to 38.0 MiB in the last 15 epochs" in hint.text


@pytest.mark.parametrize(
    "sizes", [[10] * 15, [*range(10, 24), 12], [10, 20, 30, 35, 38, 39, 40, 40, 40, 40, 40], [10, 20, 30]]
)
def test_state_that_shrinks_again_or_fills_up_is_normal(sizes):
    assert kinds_after(sized(sizes)) == []


def test_a_sink_that_holds_up_epochs_is_reported_until_it_is_fast_again():
    (hint,) = found_after(job(20, recent_epochs=epochs(6, duration_ms=2000.0, stages_ms=[100, 100, 1800])))
    assert hint.text == "The sinks hold up the epochs: each waits 1.8 s of 2.0 s for commits."
    assert kinds_after(job(20, recent_epochs=epochs(6, duration_ms=2000.0, stages_ms=[900, 900, 200]))) == []


@pytest.mark.parametrize(
    ("metric", "kind", "text"),
    [
        ("numLateRecordsDropped", "late", "Operator 'count.x' dropped 5 late records since the job started."),
        ("numDeadLetters", "dead-letters", "Source 'count.x' could not read 5 records, which became dead letters."),
    ],
)
def test_dropped_records_are_reported_for_ten_minutes_after_the_last(metric, kind, text):
    def dropped(at_s: int, count: int) -> JobSnapshot:
        return with_vertex(job(at_s), 1, metrics={f"count.x.{metric}": [count, None]})

    (hint,) = found_after(dropped(1, 0), dropped(5, 5))
    assert (hint.kind, hint.text) == (kind, text)
    assert kinds_after(dropped(1, 0), dropped(5, 5), dropped(500, 5)) == [kind]
    assert kinds_after(dropped(1, 0), dropped(5, 5), dropped(700, 5)) == []


def test_a_restart_forgets_watermarks_of_the_previous_attempt():
    before = [standing(at) for at in range(0, 120, 5)]
    assert kinds_after(*before) == ["watermark"]
    assert COUNT in {vertex.id for vertex in before[-1].vertices}
    assert kinds_after(*before, job(125, restarts=1)) == []


def test_errors_come_before_warnings():
    found = found_after(
        job(
            5,
            slots=SlotsSnapshot(needed=8, available=4, waits=True),
            recent_epochs=epochs(6, duration_ms=2000.0, stages_ms=[100, 100, 1800]),
        )
    )
    assert [hint.severity for hint in found] == ["error", "warning"]


def test_settings_methods_and_sections_that_hints_name_exist():
    constants = [
        each.value
        for each in ast.walk(ast.parse(inspect.getsource(problem_hints)))
        if isinstance(each, ast.Constant) and isinstance(each.value, str)
    ]
    settings = {key for text in constants for key in re.findall(r"\b(?:execution|penstock|state)\.[a-z.-]+[a-z]", text)}
    assert len(settings) >= 3
    assert settings <= OPTIONS.keys()
    methods = {name for text in constants for name in re.findall(r"\b(?:with|side_output)_[a-z_]+", text)}
    assert len(methods) >= 4
    owners = (WatermarkStrategy, WindowedStream, IntervalJoined)
    assert [name for name in methods if not any(hasattr(owner, name) for owner in owners)] == []
    made = [each for each in ast.walk(ast.parse(inspect.getsource(problem_hints))) if isinstance(each, ast.Call)]
    hints = [each.args for each in made if isinstance(each.func, ast.Name) and each.func.id == "Hint"]
    sections = {ast.literal_eval(arguments[4]) for arguments in hints}
    assert len(hints) >= len(problem_hints.CHECKS)
    assert sections <= {*SECTIONS, "state"}
