"""State as the page reads it: real checkpoints and savepoints of a job in the harness."""

import csv
import io

import pyarrow.parquet
import pytest

from penstock.common.time import Time
from penstock.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from penstock.datastream.state import StateTtlConfig, ValueStateDescriptor
from penstock.driver.epoch_settings import Settings
from penstock.errors import PenstockError
from penstock.state.key_groups import key_group_of, owner_of
from penstock.state.local_storage import LocalStorage
from penstock.tables.keys import canonical
from penstock.testing import JobHarness
from penstock.web import state_comparison, state_reader
from penstock.web.reading import Reading, ReadStopped
from penstock.web.state_comparison import compare_moments, compare_snapshots
from penstock.web.state_reader import NEWEST
from penstock.web.state_view import changes, comparison_view, history_view, key_view, rows_view, tree

HOSTILE = "<script>alert(1)</script>"


class Count(KeyedProcessFunction):
    def open(self, runtime_context):
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", int))

    def process_element(self, value, ctx):
        self.seen.update((self.seen.value() or 0) + 1)
        yield value


@pytest.fixture
def job(tmp_path):
    env = StreamExecutionEnvironment.get_execution_environment()
    words = env.from_collection([]).uid("words")
    counts = words.key_by(lambda word: word).process(Count()).name("count").uid("count")
    with JobHarness(
        counts, parallelism=2, backend="filesystem", storage=LocalStorage(tmp_path / "checkpoints")
    ) as harness:
        yield harness


def test_a_key_is_found_with_its_owner_and_equals_the_state_table(job, tmp_path):
    job.push("a", "b", "a").epoch()
    snapshot = job.snapshot()
    opened = state_reader.open_moment(snapshot, NEWEST)
    found = state_reader.look_up(opened, "count", "seen", "a", snapshot)
    assert found.rows == opened.state("count", "seen").get("a")
    assert [row["value"] for row in found.rows] == [2]
    assert found.owner is not None
    assert found.owner.subtask in (0, 1)
    html = key_view("a", found)
    assert f"Key group {found.owner.group}" in html
    assert "<code>2</code>" in html


def test_the_owner_of_a_key_is_that_of_the_checkpoint_that_is_read(tmp_path):
    words = StreamExecutionEnvironment.get_execution_environment().from_collection([]).uid("words")
    counts = words.key_by(lambda word: word).process(Count()).name("count").uid("count")
    storage = LocalStorage(tmp_path / "checkpoints")
    settings = Settings(retained=5)
    with JobHarness(
        counts, parallelism=2, max_parallelism=128, backend="filesystem", storage=storage, settings=settings
    ) as job:
        job.push("a", "b").epoch()
        job.rescale(24).push("a").epoch()
        saved = job.savepoint(tmp_path / "savepoints")
        job.rescale(3)
        now, group = job.snapshot(), key_group_of(canonical("a"), 128)
        owners = {
            moment: state_reader.look_up(state_reader.open_moment(now, moment), "count", "seen", "a", now).owner
            for moment in ("checkpoint:1", "checkpoint:2", saved)
        }
    assert owners["checkpoint:1"] == (group, group * 16 // 128, owner_of(group, 2, 128))
    assert owners["checkpoint:2"] == (group, group, owner_of(group, 24, 128))
    # A savepoint can be restored at any parallelism.
    assert owners[saved] == (group, owners[saved].block, owner_of(group, 3, 128))


def test_a_checkpoint_that_is_removed_while_it_is_read_is_read_again(job, monkeypatch):
    job.push("a").epoch()
    snapshot, answers = job.snapshot(), [set(), {1}]
    monkeypatch.setattr(state_reader, "_readable", lambda job, moment: answers.pop(0))
    rows = state_reader.read_moment(snapshot, NEWEST, lambda opened: opened.state("count", "seen").get("a"))
    assert [row["value"] for row in rows] == [1]
    assert answers == []


def test_a_checkpoint_that_is_always_removed_names_the_setting_that_keeps_more(job, monkeypatch):
    job.push("a").epoch()
    monkeypatch.setattr(state_reader, "_readable", lambda job, moment: set())
    with pytest.raises(PenstockError, match="removed the checkpoint") as caught:
        state_reader.read_moment(job.snapshot(), NEWEST, lambda opened: None)
    assert "execution.checkpointing.num-retained" in caught.value.fix


def test_a_checkpoint_that_is_there_is_read_once(job):
    job.push("a").epoch()
    read = []
    state_reader.read_moment(job.snapshot(), NEWEST, lambda opened: read.append(opened.manifest.id))
    assert read == [1]


def test_a_key_without_a_value_is_reported_as_such(job):
    job.push("a").epoch()
    snapshot = job.snapshot()
    found = state_reader.look_up(state_reader.open_moment(snapshot, NEWEST), "count", "seen", "z", snapshot)
    assert "no value in this state" in key_view("z", found)


def test_rows_are_paged_and_searched(job):
    job.push(*(f"word-{number}" for number in range(120))).epoch()
    opened = state_reader.open_moment(job.snapshot(), NEWEST)
    first = state_reader.page_of(opened, "count", "seen")
    last = state_reader.page_of(opened, "count", "seen", 100)
    assert (len(first.rows), first.more) == (50, True)
    assert (len(last.rows), last.more) == (20, False)
    assert "Rows 101 to 120, the last one" in rows_view(last)
    keys = {row["key"] for offset in (0, 50, 100) for row in state_reader.page_of(opened, "count", "seen", offset).rows}
    assert len(keys) == 120
    (row,) = state_reader.page_of(opened, "count", "seen", where='"word-77"').rows
    assert row["key"] == "word-77"
    none = state_reader.page_of(opened, "count", "seen", where='key = "word-999"')
    assert "120 rows searched" in rows_view(none)


def test_examples_are_keys_that_can_be_looked_up(job):
    job.push("a", "b").epoch()
    snapshot = job.snapshot()
    opened = state_reader.open_moment(snapshot, NEWEST)
    examples = state_reader.examples(opened, "count", "seen")
    assert (sorted(examples.keys), examples.kind) == (["a", "b"], "str")
    assert all(state_reader.look_up(opened, "count", "seen", each, snapshot).rows for each in examples.keys)


def test_a_savepoint_is_a_moment_and_the_history_compares_them(job, tmp_path):
    job.push("a").epoch()
    path = str(job.savepoint(tmp_path / "savepoints"))
    job.push("a", "b").epoch()
    snapshot = job.snapshot()
    assert path in state_reader.moments(snapshot)
    saved = state_reader.open_moment(snapshot, path)
    assert [row["value"] for row in state_reader.look_up(saved, "count", "seen", "a", snapshot).rows] == [1]
    newest = state_reader.open_moment(snapshot, NEWEST)
    values = [version.value for version in state_reader.versions(snapshot, newest, "count", "seen", "a")]
    assert values[0] == 1
    assert values[-1] == 2
    assert "History of" in history_view("a", state_reader.versions(snapshot, newest, "count", "seen", "a"))


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_an_export_has_all_rows(job, form):
    job.push("a", "b", "a").epoch()
    data = state_reader.exported(state_reader.open_moment(job.snapshot(), NEWEST), "count", "seen", form)
    if form == "csv":
        rows = [(row["key"], int(row["value"])) for row in csv.DictReader(io.StringIO(data.decode()))]
    else:
        table = pyarrow.parquet.read_table(io.BytesIO(data)).to_pylist()
        rows = [(row["key"], row["value"]) for row in table]
    assert sorted(rows) == [("a", 2), ("b", 1)]


def test_a_job_without_stored_checkpoints_says_which_setting_helps():
    env = StreamExecutionEnvironment.get_execution_environment()
    words = env.from_collection([]).uid("words").key_by(lambda word: word).process(Count()).uid("count")
    with JobHarness(words, backend="memory") as harness:
        snapshot = harness.snapshot()
        assert state_reader.moments(snapshot) == {}
        with pytest.raises(PenstockError, match="memory of its driver") as caught:
            state_reader.open_moment(snapshot, NEWEST)
        assert "state.checkpoints.dir" in caught.value.fix


def test_a_path_without_a_savepoint_is_an_error(job, tmp_path):
    with pytest.raises(PenstockError):
        state_reader.open_moment(job.snapshot(), str(tmp_path / "nothing"))


def test_one_retained_checkpoint_names_the_setting_that_keeps_more():
    assert "execution.checkpointing.num-retained" in state_reader.retention_note({NEWEST: "", "checkpoint:1": ""})
    assert state_reader.retention_note({NEWEST: "", "checkpoint:1": "", "checkpoint:2": ""}) == ""


def test_hostile_keys_and_values_are_shown_as_text(job):
    job.push(HOSTILE).epoch()
    snapshot = job.snapshot()
    opened = state_reader.open_moment(snapshot, NEWEST)
    found = state_reader.look_up(opened, "count", "seen", HOSTILE, snapshot)
    versions = state_reader.versions(snapshot, opened, "count", "seen", HOSTILE)
    for html in (
        key_view(HOSTILE, found),
        rows_view(state_reader.page_of(opened, "count", "seen")),
        history_view(HOSTILE, versions),
        tree({HOSTILE: [HOSTILE, {HOSTILE: None}]}),
        changes({HOSTILE: 1, "x": HOSTILE}, {HOSTILE: HOSTILE}),
    ):
        assert HOSTILE not in html
        assert "&lt;script&gt;" in html


def test_a_large_value_is_cut():
    assert "… 900 more items" in tree(list(range(1000)))
    assert "10,001 characters" in tree("x" * 10_001)


def test_changes_mark_what_differs():
    html = changes({"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 5, "d": 4})
    assert "<del>2</del> <ins>5</ins>" in html
    assert "<del>c: 3</del>" in html
    assert "<ins>4</ins>" in html
    assert html.count("<ins>") == 2


def test_two_moments_are_compared(job, tmp_path):
    job.push("a", "b").epoch()
    path = str(job.savepoint(tmp_path / "savepoints"))
    job.push("a", "c").epoch()
    snapshot = job.snapshot()
    reading = Reading()
    found = compare_moments(snapshot, path, NEWEST, "count", "seen", reading)
    assert found.counts == {"changed": 1, "added": 1, "removed": 0}
    assert [(each.key, each.before, each.after) for each in found.kept] == [("a", 1, 2), ("c", None, 1)]
    assert (found.keys, found.limited, reading.share) == (3, False, 1.0)
    html = comparison_view(found, 0)
    assert "1 changed, 1 added, 0 removed of 3 keys" in html
    assert "Differences 1 to 2 of 2" in html
    assert path in html
    same = compare_moments(snapshot, NEWEST, NEWEST, "count", "seen", Reading())
    assert "Both have the same values." in comparison_view(same, 0)


def test_differences_are_paged_and_end_at_the_limit(job, monkeypatch, tmp_path):
    job.push("a").epoch()
    path = str(job.savepoint(tmp_path / "savepoints"))
    job.push(*(f"word-{number}" for number in range(120))).epoch()
    snapshot = job.snapshot()
    monkeypatch.setattr(state_comparison, "_KEPT", 70)
    found = compare_moments(snapshot, path, NEWEST, "count", "seen", Reading())
    assert "Differences 51 to 70 of 120. The page keeps 70." in comparison_view(found, 50)
    monkeypatch.setattr(state_comparison, "MOST_COMPARED", 30)
    found = compare_moments(snapshot, path, NEWEST, "count", "seen", Reading())
    assert found.limited
    assert 30 <= found.keys < 121
    assert "ended at its limit" in comparison_view(found, 0)


def test_a_state_that_neither_moment_has_is_an_error_that_lists_the_states(job):
    job.push("a").epoch()
    opened = state_reader.open_moment(job.snapshot(), NEWEST)
    with pytest.raises(PenstockError, match="has no state 'other', only"):
        compare_snapshots(opened, opened, "count", "other", Reading())


def test_a_viewer_stops_a_search_an_export_and_a_comparison(job):
    job.push(*(f"word-{number}" for number in range(120))).epoch()
    opened = state_reader.open_moment(job.snapshot(), NEWEST)
    reading = Reading()
    reading.stop()
    with pytest.raises(ReadStopped, match="Stopped after"):
        state_reader.page_of(opened, "count", "seen", where="value = 7", reading=reading)
    with pytest.raises(ReadStopped):
        state_reader.exported(opened, "count", "seen", "csv", reading)
    with pytest.raises(ReadStopped):
        compare_snapshots(opened, opened, "count", "seen", reading)


def test_a_search_ends_at_its_limit_and_says_so(job, monkeypatch):
    job.push(*(f"word-{number}" for number in range(120))).epoch()
    opened = state_reader.open_moment(job.snapshot(), NEWEST)
    assert not state_reader.page_of(opened, "count", "seen").limited
    monkeypatch.setattr(state_reader, "_MOST_SEARCHED", 40)
    found = state_reader.page_of(opened, "count", "seen", where="value = 7")
    assert (found.rows, found.searched, found.limited) == ([], 40, True)
    assert "The search ended after 40 rows." in rows_view(found)


def test_rows_are_found_by_a_condition_on_fields(job):
    job.push("a", "b", "a", "c", "a").epoch()
    opened = state_reader.open_moment(job.snapshot(), NEWEST)
    found = state_reader.page_of(opened, "count", "seen", where='value >= 2 or key = "c"')
    assert sorted((row["key"], row["value"]) for row in found.rows) == [("a", 3), ("c", 1)]
    with pytest.raises(PenstockError, match="no column 'price', only key, value"):
        state_reader.page_of(opened, "count", "seen", where="price > 3")
    with pytest.raises(PenstockError, match="type int"):
        state_reader.page_of(opened, "count", "seen", where='value = "3"')


class Watched(KeyedProcessFunction):
    """Keeps a value for an hour, and sets a timer of each clock."""

    def open(self, runtime_context):
        last = ValueStateDescriptor("last", int)
        last.enable_time_to_live(StateTtlConfig.new_builder(Time.hours(1)).build())
        self.last = runtime_context.get_state(last)

    def process_element(self, value, ctx):
        self.last.update(value[1])
        ctx.timer_service().register_event_time_timer(60_000)
        ctx.timer_service().register_processing_time_timer(7_000_000)


def test_a_key_is_shown_with_its_time_to_live_and_timers(tmp_path):
    env = StreamExecutionEnvironment.get_execution_environment()
    pairs = env.from_collection([]).uid("pairs")
    watched = pairs.key_by(lambda pair: pair[0]).process(Watched()).name("watched").uid("watched")
    with JobHarness(watched, backend="filesystem", storage=LocalStorage(tmp_path / "checkpoints")) as harness:
        harness.set_clock(1_000)
        harness.push((("a", 1), 5)).epoch()
        snapshot = harness.snapshot()
        opened = state_reader.open_moment(snapshot, NEWEST)
        examples = state_reader.examples(opened, "watched", "last")
        found = state_reader.look_up(opened, "watched", "last", examples.keys[0], snapshot)
        other = state_reader.look_up(opened, "watched", "last", '["b", 1]', snapshot)
    assert examples == (['["a",1]'], "tuple (f0: str, f1: int), written as a JSON list")
    assert found.ttl_ms == 3_600_000
    assert sorted((each["timestamp"], each["domain"]) for each in found.timers) == [
        (60_000, "EVENT_TIME"),
        (7_000_000, "PROCESSING_TIME"),
    ]
    html = key_view(examples.keys[0], found)
    assert "Values live 1 h after their last access." in html
    assert 'data-ms="3601000"' in html
    assert 'data-ms="60000"' in html
    assert "processing time" in html
    assert other.timers == []
    assert "Timers" not in key_view("b", other)
