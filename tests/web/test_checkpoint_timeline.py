"""The timeline of a checkpoint: what each chain and the driver did, without gaps and within its duration."""

from snapshot_jobs import running
from watched_jobs import COUNT, SOURCE

from penstock.driver.job_snapshot import CheckpointSnapshot, CheckpointSummary, TaskCheckpoint
from penstock.web.checkpoint_timeline import parts_of_driver, parts_of_task, timeline, whole_ms


def task(**changes: object) -> TaskCheckpoint:
    facts = {
        **{"vertex": COUNT, "subtasks": 2, "duration_ms": 100, "align_ms": 20, "upload_ms": 15},
        **{"start_delay": CheckpointSummary(max=10), "sync_duration": CheckpointSummary(max=40)},
    }
    return TaskCheckpoint(**facts | changes)  # type: ignore[arg-type]


def lengths(found: TaskCheckpoint) -> dict[str, int]:
    return {name: length for _, name, length in parts_of_task(found)}


def test_the_parts_of_a_chain_add_up_to_its_duration():
    assert lengths(task()) == {"trigger": 10, "align": 20, "process": 30, "snapshot": 25, "upload": 15}


def test_parts_of_different_subtasks_are_cut_to_the_duration():
    found = lengths(task(align_ms=500))
    assert found == {"trigger": 10, "align": 50, "process": 0, "snapshot": 25, "upload": 15}
    assert sum(lengths(task(start_delay=CheckpointSummary(max=900))).values()) == 100


def checkpoint(**changes: object) -> CheckpointSnapshot:
    facts = {"id": 7, "status": "COMPLETED", "duration_ms": 130, "publish_ms": 12, "commit_ms": 40, "tasks": [task()]}
    return CheckpointSnapshot(**facts | changes)  # type: ignore[arg-type]


def test_the_driver_publishes_at_the_end_of_the_checkpoint_and_commits_after_it():
    assert parts_of_driver(checkpoint()) == (118, [("s2", "publish", 12), ("s6", "commit", 40)])
    assert whole_ms(checkpoint()) == 170


def test_a_checkpoint_without_these_times_is_drawn_too():
    before = checkpoint(publish_ms=-1, commit_ms=-1)
    assert parts_of_driver(before) == (100, [("s2", "publish", 30), ("s6", "commit", 0)])
    assert whole_ms(before) == 130
    assert "<svg" in timeline(CheckpointSnapshot(id=1, status="IN_PROGRESS"), {}, 0)


def test_the_drawing_stays_within_its_scale():
    html = timeline(checkpoint(), {COUNT: "<count>"}, 170)
    assert "&lt;count&gt;: trigger 10 ms, align 20 ms, process 30 ms, snapshot 25 ms, upload 15 ms" in html
    assert "Driver: publish 12 ms, commit 40 ms" in html
    parts = html.split("<rect ")[1:]
    ends = [float(each.split('x="')[1].split('"')[0]) + float(each.split('width="')[1].split('"')[0]) for each in parts]
    assert max(ends) <= 280.2


def test_a_real_job_measures_all_parts(tmp_path):
    snapshot = running(tmp_path)
    newest = next(each for each in snapshot.checkpoints.history if not each.savepoint)
    assert newest.publish_ms >= 0
    assert newest.commit_ms >= 0
    assert {task.vertex for task in newest.tasks} == {vertex.id for vertex in snapshot.vertices}
    assert SOURCE not in {task.vertex for task in newest.tasks}
    for each in newest.tasks:
        assert each.upload_ms <= each.sync_duration.max + 1
        assert sum(length for _, _, length in parts_of_task(each)) == each.duration_ms
