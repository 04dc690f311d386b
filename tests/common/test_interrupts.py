"""Ctrl-C and SIGTERM: the first one stops a job for the next start to resume, the second stops it immediately."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable

import pytest

from penstock.common.interrupts import Terminated, stop_to_resume
from penstock.datastream.job_client import LocalJobClient


class FakeJob:
    """Records the calls to it."""

    name = "orders"
    ended = False
    resumes_from: int | None = 7

    def __init__(self, interrupted_by: BaseException | None = None) -> None:
        self.asked: list[str] = []
        self._interrupted_by = interrupted_by

    def suspend(self) -> None:
        self.asked.append("suspend")
        if self._interrupted_by is not None:
            raise self._interrupted_by
        self.ended = True

    def abandon(self) -> None:
        self.asked.append("abandon")

    def cancel(self) -> None:
        self.asked.append("cancel")
        self.ended = True


def client(job: FakeJob) -> LocalJobClient:
    return LocalJobClient(job, lambda directory: None)  # type: ignore[arg-type, return-value]


def test_an_interrupt_stops_the_job_and_logs_how_to_resume(caplog: pytest.LogCaptureFixture) -> None:
    job = FakeJob()
    stop_to_resume(job, KeyboardInterrupt())
    assert job.asked == ["suspend"]
    assert caplog.messages == [
        "SIGINT: job 'orders' stops after the current epoch. Press Ctrl-C again to stop at once.",
        "Job 'orders' stopped. Its checkpoints are kept: start the program again to resume from checkpoint 7.",
    ]
    assert {record.name for record in caplog.records} == {"penstock"}
    assert {record.levelno for record in caplog.records} == {logging.WARNING}, "shown without any configuration"


def test_a_job_without_checkpoints_logs_that_it_will_start_from_scratch(caplog: pytest.LogCaptureFixture) -> None:
    job = FakeJob()
    job.resumes_from = None
    stop_to_resume(job, Terminated(signal.SIGTERM))
    assert caplog.messages[0] == "SIGTERM: job 'orders' stops after the current epoch."
    assert caplog.messages[1].endswith("the next start begins from scratch.")


def test_a_second_interrupt_stops_the_job_immediately(caplog: pytest.LogCaptureFixture) -> None:
    job = FakeJob(interrupted_by=KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        stop_to_resume(job, KeyboardInterrupt())
    assert job.asked == ["suspend", "abandon"]
    assert "stopped at once. Its checkpoints are kept" in caplog.messages[-1]


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt(), Terminated(signal.SIGTERM)])
def test_an_interrupt_in_a_with_block_suspends_the_job_instead_of_cancelling_it(interrupt: BaseException) -> None:
    job = FakeJob()
    with pytest.raises(type(interrupt)), client(job):
        raise interrupt
    assert job.asked == ["suspend"]


@pytest.mark.parametrize("leave", [lambda: None, lambda: sys.exit(1), lambda: int("x")])
def test_the_end_of_a_with_block_cancels_the_job(leave: Callable[[], object]) -> None:
    job = FakeJob()
    try:
        with client(job):
            leave()
    except (SystemExit, ValueError):
        pass
    assert job.asked == ["cancel"]


PROGRAM = """
import os, signal, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
from penstock.common.interrupts import stop_to_resume, watch

class Job:
    name, resumes_from = "orders", 7
    def __init__(self): self.over, self.wanted = threading.Event(), threading.Event()
    @property
    def ended(self): return self.over.is_set()
    def suspend(self):
        print("suspend", flush=True)
        self.wanted.set()
        while not self.over.wait(0.05): pass
        print("stopped", flush=True)
    def abandon(self): print("abandon", flush=True)

job = Job()
def run():  # an epoch that ends only after the stop request
    job.wanted.wait()
    {epoch}
    job.over.set()
threading.Thread(target=run, daemon=True).start()
watch(job)
{end}
"""


def run(end: str, epoch: str = "pass") -> tuple[int, list[str]]:
    program = PROGRAM.format(end=textwrap.dedent(end), epoch=epoch)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout.split()


def test_a_program_stops_its_jobs_before_it_exits() -> None:
    # Thread pools must still work: sinks commit in one.
    epoch = "ThreadPoolExecutor(1).submit(print, 'commit').result()"
    assert run("pass", epoch) == (0, ["suspend", "commit", "stopped"])


def test_sigterm_stops_the_jobs_and_exits_with_143() -> None:
    assert run("os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)") == (143, ["suspend", "stopped"])


def test_ctrl_c_stops_the_jobs_and_exits_like_any_program() -> None:
    assert run("os.kill(os.getpid(), signal.SIGINT); time.sleep(60)") == (-signal.SIGINT, ["suspend", "stopped"])


def test_a_second_signal_during_the_last_epoch_exits_immediately() -> None:
    epoch = "os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)"
    code, said = run("os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)", epoch)
    assert said[:2] == ["suspend", "abandon"]
    assert code == 143


def test_sigterm_without_a_running_job_has_its_default_effect() -> None:
    assert run("job.over.set(); os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)") == (-signal.SIGTERM, [])


def test_a_signal_handler_of_the_program_stays_installed() -> None:
    end = """
    job.over.set()
    signal.signal(signal.SIGTERM, lambda *_: print("mine", flush=True))
    watch(job)
    os.kill(os.getpid(), signal.SIGTERM)
    """
    assert run(end) == (0, ["mine"])
