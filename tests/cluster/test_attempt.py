"""The records as the process of an attempt sees and changes them."""

from pathlib import Path

import pytest
from memory_storage import records_in_memory

from penstock.checkpoint.manifest import Fenced
from penstock.cluster.attempt import ChangedLineage, RecordedAttempt
from penstock.cluster.records import Ended, Planned, Records, Submission
from penstock.common.interrupts import Terminated
from penstock.driver.assignment import RecordedFailure, Superseded, Verdict, verdict_on
from penstock.driver.job_snapshot import ExceptionSnapshot
from penstock.driver.slots import TooFewSlots
from penstock.state.local_storage import LocalStorage
from penstock.state.storage import MissingObject, StorageError

JOB = "0" * 31 + "1"


@pytest.fixture
def records() -> Records:
    records = records_in_memory()
    records.submit(
        Submission(id=JOB, name="n", program="", entry="j", file="j.py", submitted_ms=0, python="3", penstock="0")
    )
    records.plan(JOB, 1, Planned(leader="a", at_ms=0))
    return records


def lose(records: Records, number: int = 1) -> None:
    records.end(JOB, number, Ended(verdict=Verdict.LOST, by="a", at_ms=0, reason="It died."))


def failure(text: str) -> RecordedFailure:
    exception = ExceptionSnapshot(name="E", message=text)
    return RecordedFailure(attempt=1, exception=exception, from_user=True, identity="", progressed=False, counts=True)


def test_one_process_claims_an_attempt(records: Records) -> None:
    assert RecordedAttempt(records, JOB, 1).claim()
    assert not RecordedAttempt(records, JOB, 1).claim()


def test_an_attempt_that_was_declared_lost_cannot_be_claimed(records: Records) -> None:
    lose(records)
    assert not RecordedAttempt(records, JOB, 1).claim()


def test_a_process_cannot_decide_after_its_supervisor(records: Records) -> None:
    attempt = RecordedAttempt(records, JOB, 1)
    assert attempt.claim()
    attempt.confirm()
    lose(records)
    with pytest.raises(Superseded, match=r"decided before: lost\. It died\."):
        attempt.confirm()
    with pytest.raises(Superseded):
        attempt.decide(Verdict.FINISHED)
    assert attempt.decided is None


def test_a_process_does_not_change_its_decision(records: Records) -> None:
    """The program can fail while its asynchronous job finishes: the loser must not clean up."""
    attempt = RecordedAttempt(records, JOB, 1)
    assert attempt.claim()
    attempt.decide(Verdict.FAILED, "The program exited with code 3.")
    with pytest.raises(Superseded):
        attempt.decide(Verdict.FINISHED)
    assert attempt.decided is not None
    assert attempt.decided.verdict is Verdict.FAILED


@pytest.mark.parametrize("reason", ["", "cannot open 'a\udcff.csv'"])
def test_a_decision_whose_answer_was_lost_stands(tmp_path: Path, reason: str) -> None:
    class Deaf(LocalStorage):
        deaf = False

        def publish(self, name: str, data: bytes) -> None:
            super().publish(name, data)
            if self.deaf:
                self.deaf = False
                raise StorageError("no answer")

    storage = Deaf(tmp_path)
    records = Records(storage)
    records.submit(
        Submission(id=JOB, name="n", program="", entry="j", file="j.py", submitted_ms=0, python="3", penstock="0")
    )
    attempt = RecordedAttempt(records, JOB, 1)
    assert attempt.claim()
    storage.deaf = True
    attempt.decide(Verdict.FINISHED, reason)
    assert attempt.decided is not None
    assert records.view(JOB).verdict == attempt.decided


def test_a_reason_that_utf_8_does_not_have_is_recorded(records: Records) -> None:
    """File names can contain bytes of other encodings, and errors quote them."""
    RecordedAttempt(records, JOB, 1).failed(failure("a\udcff.csv"))
    RecordedAttempt(records, JOB, 1).decide(Verdict.FAILED, "cannot open 'a\udcff.csv'")
    verdict = records.view(JOB).verdict
    assert verdict is not None
    assert verdict.reason == "cannot open 'a\\udcff.csv'"
    assert [each.exception.message for each in records.failures(JOB)] == ["a\\udcff.csv"]


def test_a_later_attempt_cannot_move_the_checkpoints(records: Records) -> None:
    RecordedAttempt(records, JOB, 1).bind("/a")
    RecordedAttempt(records, JOB, 2).bind("/a")
    with pytest.raises(ChangedLineage, match="keeps its checkpoints in '/a'"):
        RecordedAttempt(records, JOB, 2).bind("/b")


def test_an_attempt_does_not_resume_the_lineage_that_it_bound_itself(records: Records) -> None:
    first = RecordedAttempt(records, JOB, 1)
    first.bind("/a")
    assert (first.resumes, first.has_lineage) == (False, True)
    second = RecordedAttempt(records, JOB, 2)
    second.bind("/a")
    assert second.resumes


def test_records_keep_the_last_hundred_failures(records: Records) -> None:
    attempt = RecordedAttempt(records, JOB, 1)
    for number in range(120):
        attempt.failed(failure(f"failure {number}"))
    found = RecordedAttempt(records, JOB, 2).failures()
    assert [each.number for each in found] == list(range(21, 121))
    assert found[-1].exception.message == "failure 119"


def test_a_reason_in_the_records_holds_no_secret(records: Records) -> None:
    attempt = RecordedAttempt(records, JOB, 1)
    attempt.decide(Verdict.FAILED, "cannot connect to postgresql://me:hunter2@host/db")
    assert attempt.decided is not None
    assert "cannot connect" in attempt.decided.reason
    assert "hunter2" not in attempt.decided.reason


@pytest.mark.parametrize(
    ("error", "at_first", "later"),
    [
        (ValueError("x"), Verdict.FAILED, Verdict.FAILED),
        (Fenced("x"), Verdict.LOST, Verdict.LOST),
        (Superseded("x"), Verdict.LOST, Verdict.LOST),
        (KeyboardInterrupt(), Verdict.LOST, Verdict.LOST),
        (Terminated(15), Verdict.LOST, Verdict.LOST),
        (SystemExit(3), Verdict.FAILED, Verdict.FAILED),
        (StorageError("unreachable"), Verdict.FAILED, Verdict.LOST),
        (MissingObject("manifests/1", "x"), Verdict.FAILED, Verdict.FAILED),
        (ConnectionRefusedError(), Verdict.FAILED, Verdict.LOST),
        (TooFewSlots("x"), Verdict.FAILED, Verdict.LOST),
    ],
)
def test_an_attempt_is_lost_only_if_another_attempt_can_avoid_the_error(
    error: BaseException, at_first: Verdict, later: Verdict
) -> None:
    assert (verdict_on(error), verdict_on(error, starting=True)) == (at_first, later)
