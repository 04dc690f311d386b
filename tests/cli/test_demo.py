"""The verdict of `make run` is computed from the results, and a difference makes the demo fail."""

import io
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from types import SimpleNamespace

import pytest
from rich.console import Console

from penstock.cli.demo import differences, verdict
from penstock.cli.ledger import audit
from penstock.cli.presence import present
from penstock.cli.progress import Progress

DEMO = [sys.executable, "-m", "penstock.cli.demo"]
EXPECTED = Counter({"/a": 1_000_000})


def test_the_verdict_reports_the_audit():
    assert verdict(1_000_000, audit(EXPECTED, {"/a": [(1, 1_000_000)]}), 2) == (
        "1,000,000 in, 1,000,000 counted, 2 crashes, 0 lost, 0 doubled"
    )
    assert verdict(1_000_000, audit(EXPECTED, {"/a": [(2, 1_000_001)]}), 1) == (
        "1,000,000 in, 1,000,000 counted, 1 crash, 1 lost, 1 doubled"
    )


def test_matching_counts_have_no_differences():
    assert differences(1_000_000, EXPECTED, audit(EXPECTED, {"/a": [(1, 1_000_000)]}), 2, 2) == []


@pytest.mark.parametrize(
    ("written", "runs", "crashes", "words"),
    [
        (1_000_000, [(1, 999_999)], 2, "/a: 1 of 1,000,000 requests were lost"),
        (1_000_000, [(1, 1_000_000), (7, 8)], 2, "/a: 2 counts in excess of the 1,000,000 requests in the log"),
        (1_000_001, [(1, 1_000_000)], 2, "1,000,001 lines were written to the log, but it has 1,000,000"),
        (1_000_000, [(1, 1_000_000)], 1, "2 crashes were planned, 1 were seen"),
    ],
)
def test_each_difference_has_a_description(written, runs, crashes, words):
    assert words in differences(written, EXPECTED, audit(EXPECTED, {"/a": runs}), crashes, 2)


def test_a_worker_is_present_until_it_dies(tmp_path):
    code = """if True:
        import pathlib, sys
        from penstock.cli.presence import announce
        for _ in range(2):
            announce(pathlib.Path(sys.argv[1]))
        print(flush=True)
        sys.stdin.read()
    """
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
        worker.stdout.readline()
        assert present(tmp_path) == [worker.pid]
        worker.kill()
        worker.wait()
        assert present(tmp_path) == []


def shown(progress, console):
    progress.done, progress.epoch, progress.rate, progress.state_bytes, progress.crashes = (
        600_000,
        12,
        51_234.5,
        58_000,
        1,
    )
    progress.doing = "counting"
    with progress:
        progress.show()
        progress.note("kill -9 7, the driver")
    return console.file.getvalue()


def test_a_terminal_shows_rate_epoch_and_state_below_the_progress_bar():
    console = Console(file=io.StringIO(), force_terminal=True, color_system=None, width=100, _environ={})
    text = shown(Progress(console, 1_000_000), console)
    figures = "600,000 of 1,000,000   rate 51,234/s   epoch 12   state 58 kB   crashes 1"
    assert re.search(rf"s  counting *\n━+.━+ *\n{figures}", text)
    assert "kill -9 7, the driver" in text


def test_a_log_file_gets_plain_lines(monkeypatch):
    monkeypatch.setattr("penstock.cli.progress.time", SimpleNamespace(monotonic=lambda: 100.0))
    console = Console(file=io.StringIO(), force_terminal=False, width=40)
    lines = shown(Progress(console, 1_000_000), console).splitlines()
    assert [line.strip() for line in lines] == [
        "0.0 s    600,000 of 1,000,000  rate 51,234/s  epoch 12  state 58 kB  crashes 1",
        "0.0 s  kill -9 7, the driver",
    ]


@pytest.mark.spark
@pytest.mark.slow
def test_a_short_demo_survives_both_crashes_with_correct_counts(tmp_path):
    done = subprocess.run(
        [*DEMO, "--records", "20000"],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "20,000 in, 20,000 counted, 2 crashes, 0 lost, 0 doubled\n" in done.stdout
    assert re.search(r"kill -9 \d+, a Python worker, in epoch 6", done.stdout)
    assert re.search(r"kill -9 \d+, the driver, in epoch 13", done.stdout)
    # Both drivers serve the page, on the same port.
    pages = re.findall(r"page: (http://127\.0\.0\.1:\d+/web/login\?code=)\S+\n", done.stdout)
    assert len(pages) == 2, done.stdout
    assert pages[0] == pages[1]
    assert list(tmp_path.glob("penstock-demo-*")) == []


@pytest.mark.spark
@pytest.mark.slow
def test_ctrl_c_ends_the_demo_before_its_verdict_and_without_leftovers(tmp_path):
    demo = subprocess.Popen(
        [*DEMO, "--records", "20000"], stdout=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(tmp_path)}
    )
    with demo:
        for line in demo.stdout:
            if re.search(r"epoch [1-9]", line):
                break
        demo.send_signal(signal.SIGINT)
        rest = demo.stdout.read()
        assert demo.wait() == 130
    assert "Stopped." in rest
    assert "counted, " not in rest
    assert list(tmp_path.glob("penstock-demo-*")) == []
