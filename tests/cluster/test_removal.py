"""A process dies while it removes the records of an ended job: the job never runs again."""

from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import cast

import pytest
from memory_storage import MemoryStorage

from penstock.checkpoint.lineages import SharedStorage
from penstock.cluster.gateway import Conflict
from penstock.cluster.records import Claim, Ended, Planned, Records, Submission, UnknownJob
from penstock.cluster.supervision import Nothing, Observation, Policy, next_step
from penstock.driver.assignment import Verdict
from penstock.state.local_storage import LocalStorage
from penstock.state.storage import AlreadyPublished

JOB = "0" * 31 + "1"


class Died(Exception):
    """Instead of the death of the process."""


class Mortal:
    """Dies at the n-th change of a storage."""

    changes_left: int | None = None

    def _change(self) -> None:
        if self.changes_left is not None:
            if not self.changes_left:
                raise Died
            self.changes_left -= 1


class MortalDirectory(Mortal, LocalStorage):
    def write(self, name: str, data: bytes) -> None:
        self._change()
        super().write(name, data)

    def delete(self, name: str) -> None:
        self._change()
        super().delete(name)


class MortalMemory(Mortal, MemoryStorage):
    """Deletions are durable after the next write into the same folder, as in a directory."""

    def __init__(self) -> None:
        super().__init__()
        self.not_durable: dict[str, bytes] = {}

    def write(self, name: str, data: bytes) -> None:
        self._change()
        super().write(name, data)
        folder = name.rpartition("/")[0]
        self.not_durable = {each: old for each, old in self.not_durable.items() if each.rpartition("/")[0] != folder}

    def delete(self, name: str) -> None:
        self._change()
        if name in self.files:
            self.not_durable[name] = self.files[name]
        super().delete(name)


def submission() -> Submission:
    return Submission(id=JOB, name="n", program="", file="j.py", submitted_ms=0, python="3", penstock="0")


def record(storage: object, attempts: int) -> Records:
    """Record a job that finished in the last of some attempts."""
    records = Records(cast(SharedStorage, storage))
    records.submit(submission())
    records.bind_lineage(JOB, "/a")
    for number in range(1, attempts + 1):
        records.plan(JOB, number, Planned(leader="a", at_ms=0))
        records.claim(JOB, number, Claim(token="t", host="h", boot="b", pid=1, started=1, at_ms=0))
        verdict = Verdict.FINISHED if number == attempts else Verdict.LOST
        records.end(JOB, number, Ended(verdict=verdict, by="t", at_ms=0))
    records.store_history(JOB, b"{}")
    return records


def die_during_removal(storage: Mortal, records: Records, changes: int) -> bool:
    storage.changes_left = changes
    try:
        records.remove(JOB)
    except Died:
        return True
    finally:
        storage.changes_left = None
    return False


def assert_never_runs_again(storage: object) -> Records:
    """The job has ended or is unknown, for a process that starts now."""
    records = Records(cast(SharedStorage, storage))
    try:
        view = records.view(JOB)
    except UnknownJob:
        assert records.job_ids() == []
    else:
        assert records.job_ids() == [JOB]
        assert isinstance(next_step(view, Observation(now_ms=10**9, since_ms=0), Policy()), Nothing)
        assert view.verdict is not None
    return records


@pytest.mark.parametrize("attempts", [1, 3])
@pytest.mark.parametrize("make", [lambda folder: MortalMemory(), MortalDirectory], ids=["memory", "directory"])
def test_a_job_whose_removal_is_interrupted_at_any_point_never_runs_again(
    tmp_path: Path, make: Callable[[Path], MortalDirectory], attempts: int
) -> None:
    points = 0
    while True:
        storage = make(tmp_path / str(points))
        died = die_during_removal(storage, record(storage, attempts), points)
        records = assert_never_runs_again(storage)
        if not died:
            break
        points += 1
        records.finish_removals()
        assert_never_runs_again(storage)
        # Without a mark, the removal had not begun.
        assert storage.list("jobs/") == [] or points == 1
    assert storage.list("") == ["record-key"]
    assert points >= 2 + 3 * attempts


def test_a_job_whose_removal_ends_in_a_power_failure_never_runs_again() -> None:
    """Any of the last deletions can be undone."""
    points = 0
    while True:
        storage = MortalMemory()
        died = die_during_removal(storage, record(storage, 1), points)
        left, undone = dict(storage.files), dict(storage.not_durable)
        for count in range(len(undone) + 1):
            for names in combinations(undone, count):
                storage.files = {**left, **{name: undone[name] for name in names}}
                assert_never_runs_again(storage)
        if not died:
            break
        points += 1


def test_an_id_cannot_be_used_again_before_its_records_are_removed() -> None:
    storage = MortalMemory()
    records = record(storage, 1)
    assert die_during_removal(storage, records, 2)
    with pytest.raises(Conflict, match="not completely removed"):
        records.submit(submission())
    records.finish_removals()
    records.submit(submission())
    assert records.view(JOB).attempts == []


def test_a_job_submitted_while_its_id_is_removed_is_not_accepted() -> None:
    """The submission is published between two steps of a removal, which might remove it."""
    storage = MortalMemory()
    publish = storage.publish

    def removing(name: str, data: bytes) -> None:
        publish(name, data)
        if name.endswith("/job"):
            storage.files[f"jobs/{JOB}/removed"] = b""

    storage.publish = removing  # type: ignore[method-assign]
    with pytest.raises(Conflict):
        Records(cast(SharedStorage, storage)).submit(submission())


def test_an_id_that_another_process_removed_and_used_again_is_read_again() -> None:
    storage = MortalMemory()
    first = record(storage, 1)
    assert first.view(JOB).verdict is not None
    second = Records(cast(SharedStorage, storage))
    second.remove(JOB)
    first.submit(Submission(id=JOB, name="new", program="", file="j.py", submitted_ms=0, python="3", penstock="0"))
    assert (first.view(JOB).submission.name, first.view(JOB).attempts) == ("new", [])
    with pytest.raises(AlreadyPublished):
        second.submit(submission())


def test_a_removed_job_is_forgotten_when_its_records_are_missed() -> None:
    storage = MortalMemory()
    records, other = record(storage, 1), Records(cast(SharedStorage, storage))
    records.view(JOB)
    other.remove(JOB)
    with pytest.raises(UnknownJob):
        records.view(JOB)
    other.submit(Submission(id=JOB, name="new", program="", file="j.py", submitted_ms=0, python="3", penstock="0"))
    assert records.view(JOB).submission.name == "new"
