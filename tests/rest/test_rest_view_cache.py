"""Answers of views are encoded once for each snapshot, and never outlive it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fake_gateway import JOB, FakeGateway, snapshot

from penstock.cluster.records import UnknownJob
from penstock.rest.contract import JobDetailsInfo, MultipleJobsDetails
from penstock.rest.view_cache import ViewCache, query_of
from penstock.rest.views import VIEWS


class Counted:
    """The real views, with a count of their calls by path."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.views = {path: self._counting(path) for path in VIEWS}

    def _counting(self, path: str) -> Any:
        def view(*arguments: Any) -> Any:
            self.calls[path] += 1
            return VIEWS[path](*arguments)

        return view


class Fixture:
    def __init__(self, folder: Path) -> None:
        self.gateway = FakeGateway({}, folder)
        self.counted = Counted()
        self.cache = ViewCache(self.gateway, self.counted.views)

    def job(self) -> JobDetailsInfo:
        return msgspec.json.decode(self.cache.body("/jobs/:jobid", {"jobid": JOB}, b""), type=JobDetailsInfo)

    def overview(self) -> MultipleJobsDetails:
        return msgspec.json.decode(self.cache.body("/jobs/overview", {}, b""), type=MultipleJobsDetails)


@pytest.fixture
def fixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fixture:
    monkeypatch.setattr("penstock.rest.view_cache._REUSE_S", 3600.0)
    return Fixture(tmp_path)


def test_an_answer_is_reused_while_the_snapshot_is_the_same(fixture: Fixture) -> None:
    for _ in range(5):
        assert fixture.job().state == "RUNNING"
    assert fixture.counted.calls == {"/jobs/:jobid": 1}


def test_a_new_snapshot_is_visible_at_once(fixture: Fixture) -> None:
    fixture.job()
    fixture.overview()
    fixture.gateway.by_id[JOB] = snapshot(JOB, "FAILED")
    assert fixture.job().state == "FAILED"
    assert {job.jid: job.state for job in fixture.overview().jobs}[JOB] == "FAILED"


def test_a_change_of_one_job_encodes_only_its_part_of_the_overview(fixture: Fixture) -> None:
    fixture.overview()
    before = fixture.counted.calls["/jobs/overview"]
    fixture.gateway.by_id[JOB] = snapshot(JOB, "RUNNING")
    fixture.overview()
    assert fixture.counted.calls["/jobs/overview"] == before + 1


def test_the_overview_equals_that_of_all_jobs_at_once(fixture: Fixture) -> None:
    def without_times(jobs: Sequence[Any]) -> list[Any]:
        return [msgspec.structs.replace(job, duration=0) for job in jobs]

    whole = VIEWS["/jobs/overview"](fixture.gateway.jobs(), {}, {})
    assert without_times(fixture.overview().jobs) == without_times(whole.jobs)


def test_a_removed_job_leaves_the_answers(fixture: Fixture) -> None:
    fixture.job()
    fixture.overview()
    del fixture.gateway.by_id[JOB]
    assert JOB not in [job.jid for job in fixture.overview().jobs]
    with pytest.raises(UnknownJob):
        fixture.job()


def test_an_old_answer_is_encoded_again_since_it_contains_the_time(
    fixture: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.rest.view_cache._REUSE_S", 0.0)
    first = fixture.job()
    assert fixture.job().now >= first.now
    assert fixture.counted.calls == {"/jobs/:jobid": 2}


def test_queries_are_not_mixed_up(fixture: Fixture) -> None:
    path, parameters = "/jobs/:jobid/metrics", {"jobid": JOB}
    every = msgspec.json.decode(fixture.cache.body(path, parameters, b""))
    name = every[0]["id"]
    (chosen,) = msgspec.json.decode(fixture.cache.body(path, parameters, f"get={name}".encode()))
    assert chosen["id"] == name
    assert "value" in chosen
    assert "value" not in every[0]


def test_repeated_parameters_become_a_list() -> None:
    assert query_of(b"get=a&get=b%2Cc&x=&agg=min%20max") == {"get": "a,b,c", "x": "", "agg": "min max"}
    assert query_of("get=ä".encode()) == query_of(b"get=%C3%A4") == {"get": "ä"}
