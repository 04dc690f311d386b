"""Logs over HTTP: complete, in ranges and followed; only names of the list lead to files."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from fake_gateway import EXECUTOR, JOB, JOBS, snapshot
from http_service import OPEN, Service, served, wait_for

from penstock.rest.client import RestClient

LOG = f"/penstock/v1/jobs/{JOB}/logs/job-1.log"
TEXT = "first line of job-1.log\nsecond line of job-1.log\n"


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/jobmanager/log", "service.log"),
        ("/jobmanager/stdout", "service.out"),
        ("/jobmanager/logs/service.out", "service.out"),
        (f"/taskmanagers/{EXECUTOR}/log", "job-1.log"),
        (f"/taskmanagers/{EXECUTOR}/stdout", "job-1.out"),
        (f"/taskmanagers/{EXECUTOR}/logs/job-1.log", "job-1.log"),
        (LOG, "job-1.log"),
    ],
)
def test_a_log_is_plain_text(service: Service, path: str, name: str) -> None:
    answer = service.get(path)
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.body.decode() == f"first line of {name}\nsecond line of {name}\n"


def test_logs_are_listed_with_their_sizes(service: Service) -> None:
    logs = service.get(f"/penstock/v1/jobs/{JOB}/logs").json["logs"]
    assert {(log["name"], log["size"]) for log in logs} == {("job-1.log", len(TEXT)), ("job-1.out", len(TEXT))}
    assert all(log["mtime"] > 0 for log in logs)


def test_the_url_of_a_log_leads_to_it(service: Service) -> None:
    url = service.get(f"/jobs/{JOB}/jobmanager/log-url").json["url"]
    prefix = f"http://127.0.0.1:{service.server.port}"
    assert url.startswith(prefix)
    assert service.get(url.removeprefix(prefix)).body.decode() == TEXT


def test_output_that_is_in_no_file_is_not_an_error(service: Service) -> None:
    os.unlink(service.folder / "logs" / "service.out")
    answer = service.get("/jobmanager/stdout")
    assert (answer.status, answer.headers["content-type"]) == (200, "text/plain; charset=utf-8")
    assert "no file" in answer.body.decode()


def test_an_executor_of_another_job_is_not_found(service: Service) -> None:
    other = snapshot(JOBS["RESTARTING"], "RESTARTING", application="app-2")
    service.gateway.by_id[other.id] = other
    assert service.get(f"/jobs/{JOB}/taskmanagers/{EXECUTOR}/log-url").status == 200
    assert service.get(f"/jobs/{other.id}/taskmanagers/{EXECUTOR}/log-url").status == 404


@pytest.mark.parametrize(
    "name",
    [
        "../token",
        "..%2ftoken",
        "..%2f..%2f..%2fetc%2fpasswd",
        "%2fetc%2fpasswd",
        "%2e%2e",
        ".",
        "service.log",
        "job-1.log%00",
        "job-1",
        "",
        "*",
        "JOB-1.LOG",
    ],
)
@pytest.mark.parametrize("prefix", [f"/penstock/v1/jobs/{JOB}/logs/", f"/taskmanagers/{EXECUTOR}/logs/"])
def test_a_name_outside_the_list_leads_to_no_file(service: Service, prefix: str, name: str) -> None:
    answer = service.get(prefix + name)
    assert (answer.status == 200) == (name == "" and "job-1.log" in answer.body.decode())
    assert answer.status in (200, 404)
    assert b"root:" not in answer.body


def test_a_log_that_was_removed_is_not_found(service: Service) -> None:
    os.unlink(service.folder / "logs" / "job-1.out")
    answer = service.get(f"/penstock/v1/jobs/{JOB}/logs/job-1.out")
    assert answer.status == 404


@pytest.mark.parametrize(
    ("given", "start", "end"),
    [("bytes=0-4", 0, 5), ("bytes=6-9", 6, 10), ("bytes=40-", 40, 49), ("bytes=-5", 44, 49), ("bytes=-999", 0, 49)],
)
def test_a_range_of_a_log_is_partial_content(service: Service, given: str, start: int, end: int) -> None:
    assert len(TEXT) == 49
    answer = service.get(LOG, Range=given)
    assert answer.status == 206
    assert answer.body.decode() == TEXT[start:end]
    assert answer.headers["content-range"] == f"bytes {start}-{end - 1}/49"


@pytest.mark.parametrize("given", ["bytes=", "bytes=-", "lines=1-2", "bytes=1-2,3-4", "bytes=5-1", "bytes=a-b"])
def test_a_malformed_range_is_refused(service: Service, given: str) -> None:
    answer = service.get(LOG, Range=given)
    assert answer.status == 400
    assert "Range" in answer.error


def test_a_range_after_the_end_is_not_satisfiable(service: Service) -> None:
    answer = service.get(LOG, Range="bytes=49-")
    assert answer.status == 416
    assert answer.headers["content-range"] == "bytes */49"


class Follower:
    """Follows a log in another thread."""

    def __init__(self, service: Service, path: str = LOG) -> None:
        self.text = ""
        self.ended = False
        self._parts = RestClient("127.0.0.1", service.server.port).follow(path)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        for part in self._parts:
            self.text += part.decode()
        self.ended = True


def test_a_followed_log_grows_and_ends_with_its_job(service: Service) -> None:
    follower = Follower(service)
    wait_for(lambda: follower.text == TEXT)
    path = service.folder / "logs" / "job-1.log"
    with open(path, "a") as file:
        file.write("third\n")
    wait_for(lambda: follower.text == TEXT + "third\n")
    assert not follower.ended
    with open(path, "a") as file:
        file.write("last\n")
    service.gateway.by_id[JOB] = snapshot(JOB, "FINISHED")
    wait_for(lambda: follower.ended)
    assert follower.text == TEXT + "third\nlast\n"


def test_a_followed_log_continues_after_its_rotation(service: Service) -> None:
    follower = Follower(service)
    wait_for(lambda: follower.text == TEXT)
    path = service.folder / "logs" / "job-1.log"
    with open(path, "a") as file:
        os.rename(path, path.with_suffix(".log.1"))
        file.write("before\n")
    path.write_text("after\n")
    wait_for(lambda: follower.text == TEXT + "before\nafter\n")
    os.unlink(path.with_suffix(".log.1"))
    service.gateway.by_id[JOB] = snapshot(JOB, "FAILED")
    wait_for(lambda: follower.ended)


def test_a_followed_log_continues_after_it_was_truncated(service: Service) -> None:
    path = service.folder / "logs" / "job-1.log"
    follower = Follower(service)
    wait_for(lambda: follower.text == TEXT)
    os.truncate(path, 0)
    with open(path, "a") as log:
        log.write("after\n")
    wait_for(lambda: follower.text == TEXT + "after\n")
    service.gateway.by_id[JOB] = snapshot(JOB, "FINISHED")
    wait_for(lambda: follower.ended)


def test_a_followed_log_starts_where_the_range_does(service: Service) -> None:
    path = f"/penstock/v1/jobs/{JOBS['FINISHED']}/logs/job-1.log?follow=true"
    answer = service.get(path, Range="bytes=-5")
    assert (answer.status, answer.body.decode()) == (200, TEXT[-5:])
    assert service.get(path, Range="bytes=9999-").body == b""


def test_the_log_of_an_ended_job_is_followed_to_its_end_only(service: Service) -> None:
    follower = Follower(service, f"/penstock/v1/jobs/{JOBS['FINISHED']}/logs/job-1.log")
    wait_for(lambda: follower.ended)
    assert follower.text == TEXT


def test_a_client_that_leaves_frees_the_file(service: Service) -> None:
    def open_logs() -> int:
        paths = (f"/proc/self/fd/{each}" for each in os.listdir("/proc/self/fd"))
        return sum(os.path.realpath(path).endswith("job-1.log") for path in paths)

    before = open_logs()
    parts = RestClient("127.0.0.1", service.server.port).follow(LOG)
    assert next(parts).decode() == TEXT
    assert open_logs() == before + 1
    parts.close()  # type: ignore[attr-defined]
    wait_for(lambda: open_logs() == before)


def test_a_stopping_server_ends_its_streams(tmp_path: Path) -> None:
    with served(tmp_path, OPEN) as service:
        follower = Follower(service)
        wait_for(lambda: follower.text == TEXT)
    wait_for(lambda: follower.ended)
