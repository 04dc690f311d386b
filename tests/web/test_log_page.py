"""The end of a log, without incomplete lines, and the links to the logs of executors."""

from html.parser import HTMLParser

import pytest

pytest.importorskip("nicegui", reason="NiceGUI is not installed: pip install 'penstock[web]'")

from penstock.driver.job_snapshot import ExecutorSnapshot, JobSnapshot
from penstock.web.log_page import executor_logs, tail


def test_the_end_of_a_log_begins_with_a_complete_line(tmp_path):
    log = tmp_path / "log"
    log.write_text("".join(f"line {number}\n" for number in range(1000)))
    lines = tail(log, most=100).splitlines()
    assert lines[-1] == "line 999"
    assert lines[0] == f"line {1000 - len(lines)}"


def test_lines_are_filtered_regardless_of_case(tmp_path):
    log = tmp_path / "log"
    log.write_bytes(b"Error: one\nfine\nan ERROR \xff\n")
    assert tail(log, "error") == "Error: one\nan ERROR \ufffd\n"


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
    return Links(executor_logs(JobSnapshot(id="1" * 32, name="a", state="RUNNING", executors=list(executors))) or "")


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
