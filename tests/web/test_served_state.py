"""The state browser of a job whose checkpoints are in the memory of its driver: its state server answers."""

import msgspec
import pytest
from query_jobs import every_kind, free_ports

from penstock.common.configuration import Configuration
from penstock.datastream.state_serving import serve_memory
from penstock.errors import PenstockError
from penstock.query.errors import QueryError
from penstock.query.flight_server import query_token
from penstock.web import served_state, state_reader
from penstock.web.live_state import NotLive
from penstock.web.reading import Reading
from penstock.web.state_view import key_view


@pytest.fixture
def settings(tmp_path):
    proxy, *servers = free_ports(3)
    made = {
        "queryable-state.enable": "true",
        "queryable-state.proxy.ports": str(proxy),
        "queryable-state.server.ports": ",".join(map(str, servers)),
        "queryable-state.auth.token-file": str(tmp_path / "token"),
    }
    assert query_token(made)
    return made


@pytest.fixture
def harness():
    with every_kind(backend="memory") as made:
        made.push(("ann", 3), ("bob", 4)).epoch()
        assert made.storage.in_memory
        yield made


def snapshot_of(harness, settings, **changes):
    taken = harness.snapshot()
    return msgspec.structs.replace(taken, configuration={**taken.configuration, **settings}, **changes)


@pytest.fixture
def job(harness, settings):
    """The snapshot of a job whose state server has its first checkpoint."""
    taken = snapshot_of(harness, settings)
    configuration = Configuration.from_dict(taken.configuration)
    served = serve_memory(taken.id, taken.name, lambda: ("lineage", harness.storage), configuration)
    served.start()
    while True:
        try:
            served_state.look_up(taken, {}, "kinds", "value", "ann")
            break
        except (QueryError, NotLive):
            pass
    yield taken
    served._server.close()


def test_the_states_are_those_that_the_program_declares_queryable(job):
    assert served_state.is_served_only(job)
    assert state_reader.moments(job) == {}
    found = {each.name: (each.uid, each.kind) for each in served_state.states(job, {})}
    assert found["value"] == ("kinds", "value")
    assert found["map"] == ("kinds", "map")


def test_a_key_has_its_value_key_group_and_subtask(job):
    found = served_state.look_up(job, {}, "kinds", "value", "ann")
    assert [row["value"] for row in found.rows] == [3]
    assert found.source == "checkpoint 1, live from the job's state server"
    assert found.owner is not None
    assert found.owner.subtask is not None
    shown = key_view("ann", found)
    assert f"Key group {found.owner.group}, owned by subtask {found.owner.subtask}" in shown
    assert "no value in this state" in key_view("eve", served_state.look_up(job, {}, "kinds", "value", "eve"))


def test_examples_have_the_type_of_the_keys(job):
    found = served_state.examples(job, {}, "kinds", "value")
    assert sorted(found.keys) == ["ann", "bob"]
    assert found.kind == "str"


def test_rows_are_searched_at_the_newest_checkpoint(job, harness):
    harness.push(("ann", 30), ("eve", 40)).epoch()
    found = None
    while found is None or not found.source.startswith("checkpoint 2,"):
        found = served_state.page(job, {}, "kinds", "value", 0, "value >= 30", Reading())
    assert sorted(row["value"] for row in found.rows) == [30, 40]


def test_what_only_checkpoints_have_is_refused_with_the_next_step(job):
    for read in (
        lambda: state_reader.open_moment(job, state_reader.NEWEST),
        lambda: state_reader.snippet(job, state_reader.NEWEST, "kinds", "value"),
    ):
        with pytest.raises(PenstockError, match="keeps its checkpoints in the memory of its driver") as caught:
            read()
        assert caught.value.fix == "Set state.checkpoints.dir, or make a savepoint and enter its path."


def test_the_page_says_in_words_what_it_does_not_show_and_which_setting_changes_it(harness, settings):
    served = snapshot_of(harness, settings)
    assert "shows the newest values of its queryable states" in served_state.memory_note(served)
    hidden = snapshot_of(harness, {"queryable-state.enable": "false"})
    assert not served_state.is_served_only(hidden)
    note = served_state.memory_note(hidden)
    assert "where this page cannot read them. Set state.checkpoints.dir to see all states" in note
    assert "call set_queryable for a state and set queryable-state.enable to true." in note
    ended = snapshot_of(harness, settings, state="FINISHED")
    assert not served_state.is_served_only(ended)
    assert "ended with it" in served_state.memory_note(ended)


def test_a_job_with_checkpoints_in_files_needs_no_note(settings):
    with every_kind(backend="filesystem") as stored:
        stored.push(("ann", 3)).epoch()
        taken = snapshot_of(stored, settings)
        assert served_state.memory_note(taken) == ""
        assert not served_state.is_served_only(taken)
