"""Actions of the page: through the same gateway as REST, audited, and refused if a setting turns them off."""

import asyncio
import json

import pytest
from fake_gateway import JOB, JOBS, FakeGateway

from penstock.cluster.gateway import Conflict
from penstock.driver.control_messages import MakeSavepoint
from penstock.driver.job_snapshot import Operation
from penstock.rest.audit import AuditLog
from penstock.rest.errors import Forbidden
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
