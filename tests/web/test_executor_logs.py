"""The logs of executors: files on this host, and links to the pages of Spark."""

import os
import socket
from html.parser import HTMLParser

import pytest

from penstock.driver.job_snapshot import ExecutorSnapshot, JobSnapshot
from penstock.web.executor_logs import executor_logs, local_logs


def job_with(*executors: ExecutorSnapshot) -> JobSnapshot:
    return JobSnapshot(id="1" * 32, name="a", state="RUNNING", executors=list(executors))


def test_the_logs_of_an_executor_on_this_host_are_files(tmp_path):
    (tmp_path / "stderr").write_text("line")
    (tmp_path / "other").write_text("no log")
    here = ExecutorSnapshot(id="4", host=socket.gethostname(), directory=str(tmp_path))
    assert local_logs(job_with(here)) == {"executor 4: stderr": tmp_path / "stderr"}


@pytest.mark.parametrize("host", ["elsewhere", ""])
def test_a_path_on_another_host_is_not_looked_for_here(tmp_path, host):
    (tmp_path / "stderr").write_text("line")
    assert local_logs(job_with(ExecutorSnapshot(id="4", host=host, directory=str(tmp_path)))) == {}


def test_a_link_or_a_pipe_is_not_read_as_a_log(tmp_path):
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "stdout").symlink_to(tmp_path / "secret")
    os.mkfifo(tmp_path / "stderr")
    found = [ExecutorSnapshot(id=each, host=socket.gethostname(), directory=each) for each in (str(tmp_path), "", "\0")]
    assert local_logs(job_with(*found)) == {}


class Links(HTMLParser):
    """The links of some HTML, by their text, and all text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: dict[str, dict[str, str | None]] = {}
        self.text = ""
        self._open: dict[str, str | None] | None = None
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        assert tag in ("a", "div", "h2", "p", "span", "table", "tbody", "td", "th", "thead", "tr")
        self._open = dict(attrs) if tag == "a" else None

    def handle_data(self, data):
        self.text += data
        if self._open is not None:
            self.found[data], self._open = self._open, None


def logs_of(*executors: ExecutorSnapshot) -> Links:
    return Links(executor_logs(job_with(*executors)) or "")


def test_the_logs_of_executors_elsewhere_are_links_to_the_pages_of_spark():
    stderr = "http://worker:8081/logPage/?appId=app-1&executorId=0&logType=stderr"
    links = logs_of(ExecutorSnapshot(id="0", logs={"stderr": stderr, "stdout": "https://worker/out"}))
    assert {text: each["href"] for text, each in links.found.items()} == {
        "stderr": stderr,
        "stdout": "https://worker/out",
    }
    # The page of another host learns neither the address of the job nor gets hold of its window.
    assert {each["rel"] for each in links.found.values()} == {"noopener noreferrer"}


@pytest.mark.parametrize(
    "url",
    [
        *("javascript:alert(1)", "data:text/html,<b>", "file:///etc/passwd", "/proxy/log", "http://", "http://["),
        *("", "<script>alert(1)</script>", " javascript:alert(1)//http://a"),
    ],
)
def test_an_address_that_is_no_web_page_is_shown_as_text(url):
    links = logs_of(ExecutorSnapshot(id="0", logs={"stderr": url}))
    assert links.found == {}
    assert f"stderr: {url}" in links.text


def test_an_executor_whose_log_spark_does_not_know_says_so():
    assert "Spark gives no address." in logs_of(ExecutorSnapshot(id="0")).text


def test_an_executor_in_the_driver_has_the_log_of_the_job():
    assert "the same log as the program" in logs_of(ExecutorSnapshot(id="driver")).text
    assert logs_of().text == ""
