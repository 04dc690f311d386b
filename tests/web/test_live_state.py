"""Live reads of the page: a state server answers; without one, the page reads the newest checkpoint."""

import msgspec
import pytest
from query_jobs import Job, free_ports

from penstock.query.flight_server import query_token
from penstock.query.server import StateServer
from penstock.web import state_reader
from penstock.web.live_state import LiveState, NotLive, is_queryable, look_up_now, page_now
from penstock.web.reading import Reading
from penstock.web.state_reader import NEWEST
from penstock.web.state_view import key_view, rows_view


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
def job(tmp_path):
    made = Job(tmp_path / "job")
    yield made
    made.harness.close()


@pytest.fixture
def server(settings, job):
    made = StateServer(settings)
    made.start()
    yield made
    made.close()


def snapshot_of(job, settings):
    taken = job.harness.snapshot()
    return msgspec.structs.replace(taken, configuration={**taken.configuration, **settings})


def serve(server, job, snapshot):
    followed = server.follow(snapshot.id, snapshot.name, job.root)
    server.await_checkpoint(followed, job.harness.checkpoint)


def look_up(snapshot, state, key, settings=None):
    opened = state_reader.open_moment(snapshot, NEWEST)
    return look_up_now(opened, snapshot, settings or {}, "kinds", state, key)


def page(snapshot, state, where="", settings=None):
    opened = state_reader.open_moment(snapshot, NEWEST)
    return page_now(opened, snapshot, settings or {}, "kinds", state, 0, where, Reading())


def test_a_key_is_read_live_and_equals_the_checkpoint(job, server, settings):
    job.run(("a", 1), ("b", 2), ("a", 3))
    snapshot = snapshot_of(job, settings)
    serve(server, job, snapshot)
    found = look_up(snapshot, "value", "a")
    assert found.source == f"checkpoint {job.harness.checkpoint}, live from the job's state server"
    assert [row["value"] for row in found.rows] == [3]
    assert (
        found.owner
        == state_reader.look_up(state_reader.open_moment(snapshot, NEWEST), "kinds", "value", "a", snapshot).owner
    )
    assert "live from the job&#x27;s state server" in key_view("a", found)
    assert [row["value"] for row in look_up(snapshot, "map", "a").rows] == [{"n1": 1, "n3": 3}]
    assert look_up(snapshot, "value", "unknown").rows == []


def test_rows_are_searched_live(job, server, settings):
    job.run(*((f"key-{number}", number) for number in range(1, 80)))
    snapshot = snapshot_of(job, settings)
    serve(server, job, snapshot)
    found = page(snapshot, "value", "value > 70 and value <= 75")
    assert sorted(row["value"] for row in found.rows) == [71, 72, 73, 74, 75]
    assert "live" in found.source
    assert page(snapshot, "value").more
    assert "Read from" in rows_view(found)


def test_the_newest_checkpoint_is_read_and_named_if_no_state_is_queryable(job):
    job.run(("a", 1))
    snapshot = snapshot_of(job, {"queryable-state.enable": "false"})
    assert not is_queryable(snapshot)
    found = look_up(snapshot, "value", "a")
    assert [row["value"] for row in found.rows] == [1]
    assert "checkpoint 1 in" in found.source
    assert "Not live: queryable-state.enable is not true for this job" in found.source
    assert "Not live" in page(snapshot, "value").source


def test_a_state_server_that_does_not_answer_is_no_error(job, settings):
    job.run(("a", 1))
    found = look_up(snapshot_of(job, settings), "value", "a")
    assert [row["value"] for row in found.rows] == [1]
    assert "Not live: " in found.source
    assert settings["queryable-state.proxy.ports"] in found.source


def test_a_job_that_the_server_does_not_follow_is_read_from_its_checkpoint(job, server, settings):
    job.run(("a", 1))
    found = look_up(snapshot_of(job, settings), "value", "a")
    assert [row["value"] for row in found.rows] == [1]
    assert "is served on this host" in found.source


def test_a_state_that_the_program_does_not_declare_is_not_live(job, server, settings):
    job.run(("a", 1))
    snapshot = snapshot_of(job, settings)
    serve(server, job, snapshot)
    with pytest.raises(NotLive, match="did not call set_queryable"), LiveState(snapshot, {}, "kinds", "other"):
        pass
