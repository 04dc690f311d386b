"""The log lines of a running job: its start, progress and end."""

import logging
import queue
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.common.job import JobStatus
from penstock.datastream import job_report
from penstock.datastream.job_report import JobReport
from penstock.driver.epoch_statistics import EpochStatistics
from penstock.runtime.event_time import ChannelTime, OperatorTime
from penstock.runtime.metrics import BACKLOG
from penstock.runtime.watermarks import LEAST

ID = "5f3a" * 8


def made_job(**changes: Any) -> Any:
    spec = SimpleNamespace(
        name="counts",
        parallelism=4,
        checkpointing=True,
        single_epoch=False,
        interval_ms=10_000,
        checkpoint_root=SimpleNamespace(where="/var/checkpoints/counts"),
        restore=None,
    )
    job = SimpleNamespace(
        id=ID,
        spec=spec,
        web_ui=None,
        savepoint_at_end=None,
        driver=SimpleNamespace(last=None, flow=None),
        status=lambda: JobStatus.RUNNING,
    )
    for name, value in changes.items():
        setattr(spec if hasattr(spec, name) else job, name, value)
    return job


def checkpoint(number: int, parent: bytes = b"parent", **times: OperatorTime) -> Any:
    return SimpleNamespace(id=number, parent=parent, times=times)


def epoch(number: int, records: int, state_bytes: int = 0) -> EpochStatistics:
    return EpochStatistics(
        number=number,
        records=records,
        duration_ms=10.0,
        cycle_ms=10.0,
        delta_bytes=0,
        delta_entries=0,
        state_bytes=state_bytes,
    )


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    now = [1000.0]
    monkeypatch.setattr(job_report.time, "monotonic", lambda: now[0])

    def advance(seconds: float) -> None:
        now[0] += seconds

    return advance


def start_line(job: Any, last: Any, caplog: pytest.LogCaptureFixture) -> str:
    caplog.set_level(logging.INFO, "penstock")
    report = JobReport(job, None)
    report.started(last)
    report._over.set()
    (line,) = caplog.messages
    return line


class TestTheStart:
    @pytest.mark.parametrize(
        ("last", "begins"),
        [
            (None, "starts from scratch"),
            (checkpoint(12), "resumes from checkpoint 12"),
            (checkpoint(7, parent=b""), "starts from the savepoint /saved"),
            (checkpoint(8), "resumes from checkpoint 8"),
        ],
        ids=["nothing", "a checkpoint", "a savepoint", "a checkpoint after a savepoint"],
    )
    def test_the_start_line_says_where_the_job_resumes_from(self, last, begins, caplog) -> None:
        job = made_job(restore=SimpleNamespace(path="/saved") if last and last.id in (7, 8) else None)
        assert start_line(job, last, caplog) == (
            f"Job 'counts' ({ID}) {begins}, parallelism 4, checkpoints every 10 s in /var/checkpoints/counts."
        )

    def test_the_start_line_contains_the_spark_ui(self, caplog) -> None:
        line = start_line(made_job(web_ui="http://localhost:4040"), None, caplog)
        assert line.endswith(", Spark UI http://localhost:4040.")

    @pytest.mark.parametrize(
        ("changes", "checkpoints"),
        [
            ({"checkpointing": False}, "no checkpoints"),
            ({"checkpoint_root": None}, "checkpoints every 10 s in the driver's memory"),
        ],
    )
    def test_the_start_line_says_where_checkpoints_are_stored(self, changes, checkpoints, caplog) -> None:
        assert f", {checkpoints}." in start_line(made_job(**changes), None, caplog)

    def test_restarts_do_not_repeat_the_start_line(self, caplog) -> None:
        caplog.set_level(logging.INFO, "penstock")
        report = JobReport(made_job(), None)
        report.started(None)
        report.started(checkpoint(3))
        report._over.set()
        assert len(caplog.messages) == 1


class TestTheEnd:
    def end_line(self, clock, caplog, **changes: Any) -> logging.LogRecord:
        caplog.set_level(logging.INFO, "penstock")
        report = JobReport(made_job(**changes), None)
        clock(75)
        report.completed(epoch(1, 1000))
        report.completed(epoch(2, 234))
        report.ended()
        (record,) = caplog.records
        return record

    def test_the_end_line_has_duration_epochs_and_records(self, clock, caplog) -> None:
        record = self.end_line(clock, caplog, status=lambda: JobStatus.FINISHED)
        assert record.getMessage() == "Job 'counts' finished after 1 min 15 s: 2 epochs, 1,234 records."
        assert record.levelno == logging.INFO

    def test_the_end_line_of_a_failed_job_says_how_to_resume(self, clock, caplog) -> None:
        driver = SimpleNamespace(last=checkpoint(12), flow=None)
        record = self.end_line(clock, caplog, status=lambda: JobStatus.FAILED, driver=driver)
        assert record.getMessage() == (
            "Job 'counts' failed after 1 min 15 s: 2 epochs, 1,234 records. "
            "Last checkpoint: 12. Start the program again to resume from it."
        )
        assert record.levelno == logging.ERROR

    @pytest.mark.parametrize("changes", [{"checkpointing": False}, {"checkpoint_root": None}, {}])
    def test_the_end_line_of_a_failed_job_without_a_checkpoint_says_so(self, changes, clock, caplog) -> None:
        record = self.end_line(clock, caplog, status=lambda: JobStatus.FAILED, **changes)
        assert record.getMessage().endswith("the next start is from scratch.")

    @pytest.mark.parametrize(
        ("status", "did"), [(JobStatus.FINISHED, "stopped"), (JobStatus.CANCELED, "was cancelled")]
    )
    def test_the_end_line_says_how_to_resume_from_the_savepoint(self, status, did, clock, caplog) -> None:
        record = self.end_line(clock, caplog, status=lambda: status, savepoint_at_end="/saved/savepoint-1")
        assert record.getMessage().startswith(f"Job 'counts' {did} after")
        assert record.getMessage().endswith("Resume it with: penstock run -s /saved/savepoint-1 PROGRAM")

    def test_the_end_line_of_a_cancelled_job_says_so(self, clock, caplog) -> None:
        record = self.end_line(clock, caplog, status=lambda: JobStatus.CANCELED)
        assert record.getMessage() == "Job 'counts' was cancelled after 1 min 15 s: 2 epochs, 1,234 records."


class TestProgress:
    def test_the_progress_line_has_epoch_rate_and_state(self, clock) -> None:
        report = JobReport(made_job(), None)
        clock(20)
        report.completed(epoch(1, 4_000_000))
        clock(11)
        report.completed(epoch(2, 12_000, 1_234_567))
        clock(1)
        report.completed(epoch(3, 8_000, 2_345_678))
        assert report.figures() == "epoch 3, 2,000 records/s, state 2.35 MB"

    def test_the_rate_of_an_idle_job_drops_to_zero(self, clock) -> None:
        report = JobReport(made_job(), None)
        clock(1)
        report.completed(epoch(1, 100))
        clock(60)
        assert report.figures() == "epoch 1, 0 records/s, state 0 B"

    def test_the_progress_line_has_the_backlog_of_all_sources(self, clock) -> None:
        flow = SimpleNamespace(gauges=lambda: {("a", BACKLOG): 1000, ("b", BACKLOG): 200, ("a", "credits"): 7})
        report = JobReport(made_job(driver=SimpleNamespace(last=None, flow=flow)), None)
        clock(1)
        report.completed(epoch(1, 0))
        assert "backlog 1,200" in report.figures()

    @pytest.mark.parametrize(
        ("least", "shown"),
        [(1_700_000_000_000, "watermark 2023-11-14 22:13:20"), (LEAST, None), (2**62, f"watermark {2**62}")],
    )
    def test_the_progress_line_has_the_lowest_watermark(self, least, shown, clock) -> None:
        last = checkpoint(
            1,
            source=OperatorTime(
                channels={
                    "0": ChannelTime(watermark=2**61, active_at=0),
                    "1": ChannelTime(watermark=5, active_at=0, idle=True),
                }
            ),
            window=OperatorTime(subtasks=[2**62, least]) if least != 2**62 else OperatorTime(subtasks=[]),
        )
        if least == 2**62:
            last.times["source"] = OperatorTime(channels={"0": ChannelTime(watermark=least, active_at=0)})
        report = JobReport(made_job(driver=SimpleNamespace(last=last, flow=None)), None)
        clock(1)
        report.completed(epoch(1, 0))
        assert (shown or "state 0 B") in report.figures()
        assert ("watermark" in report.figures()) == (shown is not None)

    def test_the_progress_line_has_the_status_of_a_job_that_is_not_running(self, clock) -> None:
        report = JobReport(made_job(status=lambda: JobStatus.RESTARTING), None)
        assert report.figures() == "restarting, no epoch complete yet"
        clock(1)
        report.completed(epoch(1, 0))
        assert report.figures().endswith(", restarting")

    def test_progress_is_shown_on_a_terminal_until_the_end(self, monkeypatch: pytest.MonkeyPatch) -> None:
        shown: queue.Queue[str] = queue.Queue()
        monkeypatch.setattr(job_report, "_SECONDS_BETWEEN_STATUS", 0.001)
        report = JobReport(made_job(), SimpleNamespace(takes_status=True, show_status=shown.put))  # type: ignore[arg-type]
        report.started(None)
        report.completed(epoch(1, 0, 500))
        while shown.get(timeout=10) != "counts: epoch 1, 0 records/s, state 500 B":
            pass
        report.ended()
        while shown.get(timeout=10):
            pass

    @pytest.mark.parametrize("quiet", [False, True])
    def test_progress_is_logged_periodically_without_a_terminal(self, quiet, monkeypatch, caplog) -> None:
        said: queue.Queue[str] = queue.Queue()
        monkeypatch.setattr(job_report, "_SECONDS_BETWEEN_LINES", 0.001)
        monkeypatch.setattr(job_report._logger, "info", lambda text, *values: said.put(text % values))
        report = JobReport(made_job(), None, quiet)
        report.started(None)
        assert said.get(timeout=10).startswith("Job 'counts' (")
        report.completed(epoch(1, 0, 500))
        assert said.get(timeout=10) == "Job 'counts': epoch 1, 0 records/s, state 500 B."
        report._over.set()
