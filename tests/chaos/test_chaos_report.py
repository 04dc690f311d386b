"""The report of a run and its exit code."""

import io
from argparse import Namespace
from pathlib import Path

import pytest
from rich.console import Console

from chaos.command_line import TO_BE_CONTINUED, conclude
from chaos.progress import Outcome, Progress
from chaos.report import Report

OUTCOMES = [
    Outcome(index=0, kind="driver", did="killed", recovery_s=4.0, ended="died"),
    Outcome(index=1, kind="driver", did="killed", recovery_s=2.0),
    Outcome(index=2, kind="worker", did="nothing", recovery_s=None, missed=True),
]


def test_a_run_of_a_job_counts_its_drivers() -> None:
    progress = Progress("", OUTCOMES, drivers=3, epochs=1200, total=5000, seconds=90, left_behind=1, finished=True)
    lines = Report(progress, ["worker", "disk", "driver"]).markdown("python -m chaos").splitlines()
    assert lines == [
        "`python -m chaos`",
        "",
        "| fault | count | without a target | recovery, s (median / max) | driver exits |",
        "|---|---|---|---|---|",
        "| worker | 1 | 1 | – | 0 |",
        "| driver | 2 | 0 | 3.0 / 4.0 | 1 |",
        "",
        "3 faults, 3 drivers, 1,200 epochs, 5,000 records, 1.5 minutes, 1 leftover processes: no violations.",
    ]


def test_a_run_of_a_service_has_no_drivers_to_count() -> None:
    lines = Report(Progress("", OUTCOMES[:2], ["A job is lost."], seconds=60), ["driver"]).markdown("x").splitlines()
    assert lines[2:] == [
        "| fault | count | without a target | recovery, s (median / max) |",
        "|---|---|---|---|",
        "| driver | 2 | 0 | 3.0 / 4.0 |",
        "",
        "2 faults, 1.0 minutes: 1 violations.",
        "- A job is lost.",
    ]


@pytest.mark.parametrize(
    ("violations", "over", "code", "said"),
    [
        ([], True, 0, "All is well."),
        ([], False, TO_BE_CONTINUED, "To continue: repeat local[2]"),
        (["Output [a] is lost."], True, 1, "VIOLATION: Output [a] is lost."),
        (["Output [a] is lost."], False, 1, "To repeat the run: repeat local[2]"),
    ],
)
def test_the_exit_code_tells_a_finished_run_from_an_unfinished_and_a_failed_one(
    violations: list[str], over: bool, code: int, said: str, tmp_path: Path
) -> None:
    output = io.StringIO()
    report = Report(Progress("", OUTCOMES, violations), ["driver"])
    chosen = Namespace(work=tmp_path, summary=tmp_path / "table")
    console = Console(file=output, width=160)
    assert conclude(report, chosen, console, over=over, command="repeat local[2]", success="All is well.") == code
    assert said in output.getvalue()
    assert (tmp_path / "table").read_text() == report.markdown("repeat local[2]")
