"""A job whose process dies at each change of its checkpoints or records, in turn: it finishes once, with all output.

The attempts follow the order of the real JobManager: recover, run epochs, decide, remove the checkpoints.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from dying import Died, Dying
from epoch_jobs import Clock, CommitLog, program

from penstock.checkpoint.lineages import Lineages
from penstock.cluster.attempt import RecordedAttempt
from penstock.cluster.records import Ended, Planned, Records, Submission
from penstock.driver.assignment import Superseded, Verdict
from penstock.driver.epoch_settings import Settings
from penstock.driver.epochs import EpochDriver
from penstock.runtime.report import OperatorReport, Report, encode_report
from penstock.runtime.rows import REPORT
from penstock.state.backends import Backend
from penstock.state.local_storage import LocalStorage

JOB = "0" * 32
EPOCHS = 2

Output = set[tuple[str, int, bytes]]
"""The lineage, epoch and content of each committed page."""


def execute(parameters):
    number = parameters.number
    out = OperatorReport(uid="out", states={}, deltas=[], committable=f"page {number}".encode())
    for chain, operators in ((0, []), (1, [out])):
        report = Report(chain=chain, subtask=0, epoch=number, records_in=0, sent=[], received=[], operators=operators)
        yield REPORT, encode_report(report)


class Sink(CommitLog):
    """Output by lineage, epoch and subtask: committing again changes nothing."""

    def __init__(self, output: Output) -> None:
        super().__init__()
        self.output = output

    def start(self, context):
        pass

    def commit(self, commits, context):
        self.output |= {(each.lineage, each.epoch, each.payload) for each in commits}


def run_attempt(
    records: Records, number: int, checkpoints: LocalStorage, output: Output, pause: Callable[[], None] = lambda: None
) -> None:
    """`pause` is called before the process looks for the checkpoints of the job."""
    attempt = RecordedAttempt(records, JOB, number)
    if not attempt.claim():
        return
    attempt.bind(checkpoints.where)
    pause()
    lineages = Lineages(checkpoints)
    lineage = lineages.current()
    attempt.confirm()
    driver = EpochDriver(
        program(), lineages.storage_of(lineage), Settings(backend=Backend(name="filesystem")), execute,
        {"out": Sink(output)}, lineage=lineage, clock=Clock(), monotonic=Clock(),
    )  # fmt: skip
    last = driver.recover()
    while last is None or not last.ended:
        driver.run_epoch(None, {}, ends_input=driver.next_number == EPOCHS)
        last = driver.last
    attempt.decide(Verdict.FINISHED)
    lineages.end(lineage, last=last.id, retain=False)


def submitted(storage: LocalStorage) -> Records:
    records = Records(storage)
    records.submit(Submission(id=JOB, name="n", program="", file="j.py", submitted_ms=0, python="3", penstock="0"))
    return records


def run_job(folder: Path, deaths_every: int) -> tuple[Records, Output, int]:
    """Run a job whose processes die after this many changes, the first time; return its output and the deaths."""
    storage = Dying(folder)
    records, output, deaths, number = submitted(storage.below("records")), set(), 0, 0
    while records.view(JOB).verdict is None:
        number += 1
        # The supervisor lives: it declares the dead attempt lost, and plans the next one.
        storage.left = None
        if number > 1:
            records.end(JOB, number - 1, Ended(verdict=Verdict.LOST, by="s", at_ms=0))
        if records.view(JOB).verdict is None:
            records.plan(JOB, number, Planned(leader="s", at_ms=0))
            storage.left = deaths_every if deaths == 0 else None
            try:
                run_attempt(records, number, storage.below("checkpoints"), output)
            except Died:
                deaths += 1
    return records, output, deaths


@pytest.mark.parametrize("changes", range(60))
def test_a_job_that_dies_at_any_change_finishes_once_with_all_its_output(tmp_path: Path, changes: int) -> None:
    records, output, deaths = run_job(tmp_path, changes)
    view = records.view(JOB)
    assert sorted(payload for _, _, payload in output) == [b"page 1", b"page 2"]
    ends = [each.ended.verdict for each in view.attempts if each.ended]
    assert ends[-1] is Verdict.FINISHED
    assert ends[:-1] == [Verdict.LOST] * (len(ends) - 1)
    assert len(ends) <= deaths + 1


def test_a_process_that_continues_after_its_successor_finished_does_not_run_the_job_again(tmp_path: Path) -> None:
    """It finds no checkpoints, because its successor removed them."""
    records, checkpoints, output = (
        submitted(LocalStorage(tmp_path / "records")),
        LocalStorage(tmp_path / "checkpoints"),
        set(),
    )
    records.plan(JOB, 1, Planned(leader="s", at_ms=0))

    def others_go_on() -> None:
        records.end(JOB, 1, Ended(verdict=Verdict.LOST, by="s", at_ms=0))
        records.plan(JOB, 2, Planned(leader="s", at_ms=0))
        run_attempt(records, 2, checkpoints, output)

    with pytest.raises(Superseded):
        run_attempt(records, 1, checkpoints, output, pause=others_go_on)
    assert sorted(payload for _, _, payload in output) == [b"page 1", b"page 2"]


def test_the_deaths_cover_all_changes(tmp_path: Path) -> None:
    assert [run_job(tmp_path / str(changes), changes)[2] for changes in (0, 59)] == [1, 0]
