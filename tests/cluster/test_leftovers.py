"""Checkpoints of ended jobs whose process died before it removed them."""

from pathlib import Path

import pytest

from penstock.checkpoint.lineages import Lineages
from penstock.cluster.leftovers import remove_leftovers
from penstock.cluster.records import Attempt, Ended, JobView, Submission, new_job_id
from penstock.driver.assignment import Verdict
from penstock.state.local_storage import LocalStorage

JOB = new_job_id()


def checkpoints(tmp_path: Path) -> Path:
    """Return the directory of a job with one lineage that was not removed."""
    root = tmp_path / "checkpoints" / JOB
    lineages = Lineages(LocalStorage(root))
    storage = lineages.storage_of(lineages.current())
    storage.write("manifests/000000000001", b"manifest")
    storage.write("deltas/1", b"delta")
    (tmp_path / "checkpoints" / "another").mkdir()
    return root


def view(root: Path | str, verdict: Verdict | None, removes: bool) -> JobView:
    ended = None if verdict is None else Ended(verdict=verdict, by="t", at_ms=1, removes_checkpoints=removes)
    return JobView(
        submission=Submission(id=JOB, name="j", program="", file="j.py", submitted_ms=0, python="3", penstock="0"),
        lineage=str(root),
        cancel_requested=False,
        attempts=[Attempt(number=1, ended=ended)],
    )


def test_the_directory_of_an_ended_job_is_removed_with_its_lineages(tmp_path: Path) -> None:
    root = checkpoints(tmp_path)
    remove_leftovers(view(root, Verdict.FINISHED, removes=True), {})
    assert [path.name for path in root.parent.iterdir()] == ["another"]


def test_a_second_call_changes_nothing(tmp_path: Path) -> None:
    root = checkpoints(tmp_path)
    for _ in range(2):
        remove_leftovers(view(root, Verdict.FINISHED, removes=True), {})
    assert not root.exists()


@pytest.mark.parametrize(
    ("verdict", "removes"),
    [(None, False), (Verdict.CANCELED, False), (Verdict.FAILED, False)],
    ids=["still running", "retained", "failed"],
)
def test_checkpoints_that_are_needed_stay(tmp_path: Path, verdict: Verdict | None, removes: bool) -> None:
    root = checkpoints(tmp_path)
    remove_leftovers(view(root, verdict, removes), {})
    assert list(root.rglob("000000000001"))


def test_a_job_without_checkpoints_removes_nothing(tmp_path: Path) -> None:
    checkpoints(tmp_path)
    remove_leftovers(view("", Verdict.FINISHED, removes=True), {})
    assert len(list((tmp_path / "checkpoints").iterdir())) == 2


@pytest.mark.parametrize("name", ["a#b", "a?b", "a%23b"])
def test_a_path_with_characters_of_uris_is_taken_literally(tmp_path: Path, name: str) -> None:
    root = checkpoints(tmp_path / name)
    other = checkpoints(tmp_path / "a")
    remove_leftovers(view(root, Verdict.FINISHED, removes=True), {})
    assert not root.exists()
    assert list(other.rglob("000000000001"))


def test_a_directory_that_is_not_named_after_the_job_stays(tmp_path: Path) -> None:
    root = checkpoints(tmp_path)
    remove_leftovers(view(root.parent, Verdict.FINISHED, removes=True), {})
    assert list(root.rglob("000000000001"))
