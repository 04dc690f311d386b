"""Actions of the page: through the same gateway as REST, audited, and refused if a setting turns them off."""

import asyncio
import json

import pytest
from fake_gateway import JOB, JOBS, FakeGateway

from penstock.cluster.gateway import ClusterState, Conflict
from penstock.driver.control_messages import MakeSavepoint
from penstock.driver.job_snapshot import Operation
from penstock.rest.audit import AuditLog
from penstock.rest.errors import BadRequest, Forbidden
from penstock.rest.service import service_of
from penstock.web.board import Board


@pytest.fixture
def make(tmp_path):
    (tmp_path / "logs").mkdir()

    def made(**settings):
        named = {name.replace("_", "."): value for name, value in settings.items()}
        gateway = FakeGateway(named, tmp_path / "logs")
        return Board(service_of(gateway, named, tmp_path, "token"), AuditLog(tmp_path / "audit.log", 1 << 20, 1))

    return made


def test_a_savepoint_is_awaited_and_audited(make, tmp_path):
    board = make()
    board.service.gateway.result = Operation(trigger_id="1" * 32, done=True, savepoint="/s")
    assert asyncio.run(board.perform(JOB, MakeSavepoint())).savepoint == "/s"
    (line,) = (tmp_path / "audit.log").read_text().splitlines()
    assert json.loads(line)["action"] == "page: makesavepoint"


def test_an_ended_job_takes_no_actions(make):
    with pytest.raises(Conflict, match="has ended"):
        asyncio.run(make().perform(JOBS["FINISHED"], MakeSavepoint()))


def test_cancelling_can_be_turned_off(make):
    board = make(web_cancel_enable="false")
    with pytest.raises(Forbidden, match=r"web\.cancel\.enable"):
        asyncio.run(board.cancel(JOB))
    assert board.service.gateway.asked == []
    board = make()
    asyncio.run(board.cancel(JOB))
    assert board.service.gateway.asked == [("cancel", JOB)]


def test_a_program_is_stored_and_submitted_with_its_settings(make, tmp_path):
    board = make()
    (tmp_path / "job.py").write_text("program")
    stored = asyncio.run(board.upload("job.py", tmp_path / "job.py"))
    settings = "parallelism.default: 3\n\n state.checkpoints.dir: s3://bucket/a:b "
    job = asyncio.run(board.submit(stored.id, "--from 'a b'", settings, " /saved "))
    assert job == "c" * 32
    ((kind, request),) = board.service.gateway.asked
    assert kind == "run"
    assert request.arguments == ["--from", "a b"]
    assert request.configuration == {"parallelism.default": "3", "state.checkpoints.dir": "s3://bucket/a:b"}
    assert request.savepoint == "/saved"


def test_a_dry_run_starts_nothing_and_needs_a_savepoint(make, tmp_path):
    board = make()
    (tmp_path / "job.py").write_text("program")
    stored = asyncio.run(board.upload("job.py", tmp_path / "job.py"))
    assert json.loads(asyncio.run(board.submit(stored.id, "", "", "/saved", dry_run=True)))["would_start"]
    assert [each[0] for each in board.service.gateway.asked] == ["dry_run"]
    with pytest.raises(BadRequest, match="savepoint"):
        asyncio.run(board.submit(stored.id, "", "", "", dry_run=True))


@pytest.mark.parametrize(
    ("settings", "savepoint"), [("no colon", ""), (": 3", ""), ("", "relative/path"), ("rest.port: 1", "")]
)
def test_bad_settings_and_paths_are_refused(make, settings, savepoint):
    with pytest.raises(BadRequest):
        asyncio.run(make().submit("p", "", settings, savepoint))


def test_submitting_can_be_turned_off_and_an_application_takes_no_programs(make, tmp_path):
    board = make(web_submit_enable="false")
    assert not board.accepts_programs
    with pytest.raises(Forbidden, match=r"web\.submit\.enable"):
        asyncio.run(board.upload("job.py", tmp_path))
    with pytest.raises(Forbidden):
        asyncio.run(board.submit("p", "", "", ""))
    board = make()
    assert board.accepts_programs
    board.service.gateway.cluster = ClusterState(leading=True, ready=True, application=True)
    assert not board.accepts_programs


def test_state_can_be_turned_off(make):
    assert make().shows_state
    assert not make(web_state_enable="false").shows_state


def test_a_standby_names_the_leader(make):
    board = make()
    board.service.gateway.other_leader = "http://other:8081"
    assert board.elsewhere() == "http://other:8081"


def test_viewers_share_the_contents_of_the_overview(make):
    board = make()
    first = board.overview()
    board.service.gateway.failure = AssertionError("the jobs are read again")
    assert board.overview() is first


def test_the_watch_of_an_ended_and_forgotten_job_is_dropped(make):
    board = make()
    board.jobs()
    assert board.watches.of(JOB).moments
    board.service.gateway.by_id = {}
    board.jobs()
    assert not board.watches.of(JOB).moments
