"""Charts of metrics that the viewer chose: which there are, their values and units, and what a browser remembers."""

import json

import msgspec
import pytest
from snapshot_jobs import running
from watched_jobs import COUNT, START, job, subtask, with_vertex

from penstock.web.chosen_metrics import choices, unit_of, values_of
from penstock.web.job_sections import chosen_chart
from penstock.web.observation import Watch


def test_every_choice_has_values(tmp_path):
    snapshot = running(tmp_path)
    found = choices(snapshot)
    assert [key for key in found if not values_of(snapshot, key)] == []
    texts = set(found.values())
    assert {"Job: numRestarts", "last: busyTimeMsPerSecond", "last: last.numRecordsIn"} <= texts
    assert any(text.endswith(": parse.parsed") for text in texts)


def test_a_job_that_runs_again_has_the_same_keys(tmp_path):
    first, second = running(tmp_path / "1"), running(tmp_path / "2")
    assert first.id != second.id
    assert choices(first).keys() == choices(second).keys()


def test_a_metric_of_a_function_has_a_line_for_each_subtask():
    measured = with_vertex(job(5), 1, metrics={"count.seen:so.far": [3, None, 5]})
    assert values_of(measured, f"operator:{COUNT}:count.seen:so.far") == {"subtask 0": 3, "subtask 2": 5}


def test_many_subtasks_are_drawn_as_maximum_mean_and_minimum():
    wide = with_vertex(job(5), 1, subtasks=[subtask(0, rate=float(each)) for each in range(101)])
    assert values_of(wide, f"task:{COUNT}:numRecordsInPerSecond") == {"maximum": 100, "mean": 50, "minimum": 0}


@pytest.mark.parametrize("key", ["", "job", "job:nothing", "task:x:y", f"task:{COUNT}:nothing", "operator::", "x:y:z"])
def test_what_a_job_does_not_have_has_no_values(key):
    assert values_of(job(5), key) == {}


def test_a_followed_metric_is_kept_while_the_job_runs_and_after_its_restart():
    watch = Watch()
    values = watch.follow("job:epoch")
    watch.observe(job(5))
    watch.observe(job(10))
    watch.observe(job(20, restarts=1))
    assert list(values) == [(START + 1000 * at, {"job": float(at)}) for at in (5, 10, 20)]
    assert watch.follow("job:epoch") is values


def test_the_number_of_followed_metrics_is_bounded_and_the_oldest_goes_first():
    watch = Watch()
    for number in range(40):
        watch.follow(f"job:{number}")
    watch.follow("job:0")
    watch.follow("job:new")
    assert len(watch.followed) == 40
    assert "job:0" in watch.followed
    assert "job:1" not in watch.followed


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("busyTimeMsPerSecond", 420.0, "42 %"),
        ("numBytesInPerSecond", 2048.0, "2.0 KiB/s"),
        ("numRecordsOutPerSecond", 12.0, "12 records/s"),
        ("lastCheckpointDuration", 1500.0, "1.5 s"),
        ("lastCheckpointSize", 2048.0, "2.0 KiB"),
        ("currentInputWatermark", 0.0, "1970-01-01 00:00:00.000 UTC"),
        ("last.numRecordsIn", 7.0, "7 records"),
        ("rate.PerSecond", 7.0, "7/s"),
        ("parsed", 7.0, "7"),
    ],
)
def test_values_have_the_unit_that_the_name_tells(name, value, shown):
    assert unit_of(f"task:{COUNT}:{name}")(value) == shown


def test_a_chart_shows_each_line_with_its_newest_value():
    html = chosen_chart("count: <b>", "job:epoch", [(1, {"a": 1.0}), (2, {"a": 2.0, "b": 7.0})])
    assert "count: &lt;b&gt;" in html
    assert html.count("<polyline") == 2
    assert "<b>7</b>" in html


def test_a_browser_that_remembers_something_else_adds_no_chart():
    chart_page = pytest.importorskip("penstock.web.chart_page")
    assert chart_page.remembered(json.dumps(["a", "b", "a", 3, None, "x" * 401])) == ["a", "b"]
    assert len(chart_page.remembered(json.dumps([str(each) for each in range(99)]))) == 20
    for broken in (None, 3, "", "{", "{}", '"a"'):
        assert chart_page.remembered(broken) == []


def test_a_chart_without_values_says_so():
    assert "No values yet." in chosen_chart("x", "job:x", [])
    bare = msgspec.structs.replace(job(5), vertices=[])
    assert all(key.startswith("job:") for key in choices(bare))
