"""Endpoints of the `penstock` command over real sockets."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_gateway import JOB, JOBS
from http_service import OPEN, Service, served

from penstock.cluster.gateway import ClusterState
from penstock.driver.control_messages import Rescale


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with served(tmp_path / "service", OPEN) as service:
        yield service


def test_the_cluster_describes_why_it_is_not_ready(service: Service) -> None:
    service.gateway.cluster = ClusterState(
        leading=False, ready=False, problem="ZooKeeper is away.", leader="http://h:1"
    )
    found = service.get("/penstock/v1/cluster").json
    assert {key: found[key] for key in ("leading", "leader", "ready", "draining", "problem")} == {
        "leading": False,
        "leader": "http://h:1",
        "ready": False,
        "draining": False,
        "problem": "ZooKeeper is away.",
    }


def test_every_job_has_a_line(service: Service) -> None:
    lines = {line["status"]: line for line in service.get("/penstock/v1/jobs").json}
    assert {state: line["id"] for state, line in lines.items()} == JOBS
    assert lines["RUNNING"]["ended"] == -1
    assert lines["FINISHED"]["ended"] > 0


@pytest.mark.parametrize("parallelism", [3, {"count": 3}])
def test_a_job_is_rescaled_as_a_whole_or_by_operator(service: Service, parallelism: Any) -> None:
    answer = service.ask("POST", f"/penstock/v1/jobs/{JOB}/rescaling", {"parallelism": parallelism})
    assert answer.status == 202
    assert service.gateway.asked == [("trigger", JOB, Rescale(parallelism=parallelism))]
    assert service.get(f"/jobs/{JOB}/rescaling/{answer.json['request-id']}").json["status"] == {"id": "IN_PROGRESS"}


@pytest.mark.parametrize("parallelism", [0, -1, 1 << 20, {}, {"count": 0}, "3", 1.5, None, True])
def test_a_parallelism_that_is_not_one_is_refused(service: Service, parallelism: Any) -> None:
    answer = service.ask("POST", f"/penstock/v1/jobs/{JOB}/rescaling", {"parallelism": parallelism})
    assert answer.status == 400
    assert service.gateway.asked == []


def test_draining_needs_the_token(tmp_path: Path) -> None:
    with served(tmp_path / "guarded") as guarded:
        assert guarded.ask("POST", "/penstock/v1/drain", headers={"Authorization": "Bearer wrong"}).status == 401
        assert guarded.gateway.asked == []
        assert guarded.ask("POST", "/penstock/v1/drain").status == 200
        assert guarded.gateway.asked == [("drain",)]
        assert [entry["action"] for entry in guarded.audit()][-1] == "POST /penstock/v1/drain"
