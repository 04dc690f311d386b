"""The records of a cluster: published once, decided once, and refused when damaged."""

import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock.cluster.records import (
    BadRecord,
    Claim,
    Ended,
    Planned,
    Records,
    Submission,
    UnknownJob,
    Verdict,
    attempt_folder,
    new_job_id,
)
from penstock.state.local_storage import LocalStorage
from penstock.state.storage import AlreadyPublished


@pytest.fixture
def records(tmp_path: Path) -> Records:
    return Records(LocalStorage(tmp_path))


def submission(**changes: object) -> Submission:
    known = {
        "id": new_job_id(),
        "name": "counts",
        "program": "0" * 64,
        "file": "job.py",
        "arguments": ["--day", "1"],
        "configuration": {"parallelism.default": "2"},
        "submitted_ms": 5,
        "python": "3.11.7",
        "penstock": "0.1.0",
    }
    return Submission(**{**known, **changes})  # type: ignore[arg-type]


def claim(token: str) -> Claim:
    return Claim(token=token, host="h", boot="b", pid=1, started=2, at_ms=3)


def ended(verdict: Verdict, by: str) -> Ended:
    return Ended(verdict=verdict, by=by, at_ms=4)


class TestJobs:
    def test_a_submitted_job_is_read_back(self, records: Records) -> None:
        job = submission()
        records.submit(job)
        view = records.view(job.id)
        assert view.submission == job
        assert (view.lineage, view.cancel_requested, view.attempts, view.verdict) == (None, False, [], None)
        assert records.job_ids() == [job.id]

    def test_an_id_can_be_used_once(self, records: Records) -> None:
        job = submission()
        records.submit(job)
        with pytest.raises(AlreadyPublished):
            records.submit(submission(id=job.id, name="another"))
        assert records.view(job.id).submission.name == "counts"

    def test_jobs_of_one_name_are_independent(self, records: Records) -> None:
        first, second = submission(), submission()
        records.submit(first)
        records.submit(second)
        records.request_cancel(first.id)
        assert records.view(first.id).cancel_requested
        assert not records.view(second.id).cancel_requested

    @pytest.mark.parametrize("job_id", ["../../etc", "A" * 32, "0" * 31, "", "0" * 32 + "/x"])
    def test_a_text_that_is_not_an_id_never_becomes_a_path(self, records: Records, job_id: str) -> None:
        for call in (records.view, records.request_cancel, records.remove):
            with pytest.raises(UnknownJob):
                call(job_id)
        with pytest.raises(UnknownJob):
            records.submit(submission(id=job_id))

    def test_an_unknown_job_is_reported(self, records: Records) -> None:
        with pytest.raises(UnknownJob, match="penstock list"):
            records.view(new_job_id())
        with pytest.raises(UnknownJob, match="penstock list"):
            records.request_cancel(new_job_id())
        assert records.job_ids() == []

    def test_the_first_lineage_counts(self, records: Records) -> None:
        job = submission()
        records.submit(job)
        assert records.bind_lineage(job.id, "file:///a") == "file:///a"
        assert records.bind_lineage(job.id, "file:///b") == "file:///a"
        assert records.view(job.id).lineage == "file:///a"

    def test_a_job_is_removed_only_after_its_end(self, records: Records) -> None:
        job = submission()
        records.submit(job)
        with pytest.raises(BadRecord, match="has not ended"):
            records.remove(job.id)
        records.end(job.id, 1, ended(Verdict.CANCELED, "a"))
        records.remove(job.id)
        assert records.job_ids() == []


class TestAttempts:
    def test_one_of_many_claims_succeeds(self, records: Records) -> None:
        job = submission()
        records.submit(job)
        assert records.plan(job.id, 1, Planned(leader="a", at_ms=1))
        assert not records.plan(job.id, 1, Planned(leader="b", at_ms=1))
        with ThreadPoolExecutor(8) as pool:
            won = list(pool.map(lambda n: records.claim(job.id, 1, claim(f"t{n}")), range(8)))
        assert won.count(True) == 1
        last = records.view(job.id).last
        assert last is not None
        assert last.claim == claim(f"t{won.index(True)}")

    def test_an_attempt_that_was_declared_lost_cannot_be_claimed(self, records: Records) -> None:
        job = submission()
        records.submit(job)
        records.plan(job.id, 1, Planned(leader="a", at_ms=1))
        records.end(job.id, 1, ended(Verdict.LOST, "a"))
        assert not records.claim(job.id, 1, claim("t"))

    def test_a_verdict_and_a_loss_at_the_same_time_leave_one_decision(self, records: Records) -> None:
        for _ in range(20):
            job = submission()
            records.submit(job)
            with ThreadPoolExecutor(2) as pool:
                decisions = list(
                    pool.map(
                        lambda verdict: records.end(job.id, 1, ended(verdict, verdict.name)),  # noqa: B023
                        [Verdict.FINISHED, Verdict.LOST],
                    )
                )
            assert decisions[0] == decisions[1]
            view = records.view(job.id)
            assert view.last is not None
            assert view.last.ended == decisions[0]
            assert (view.verdict is None) == (decisions[0].verdict is Verdict.LOST)


class Touches:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self._path,)


class TestDamage:
    def test_a_damaged_record_is_named(self, records: Records, tmp_path: Path) -> None:
        job = submission()
        records.submit(job)
        (tmp_path / "jobs" / job.id / "job").write_bytes(b"{")
        with pytest.raises(BadRecord, match=rf"jobs/{job.id}/job .*cannot be read"):
            records.view(job.id)

    def test_a_pickle_in_place_of_any_record_is_not_loaded(self, records: Records, tmp_path: Path) -> None:
        job = submission()
        records.submit(job)
        records.plan(job.id, 1, Planned(leader="a", at_ms=1))
        records.claim(job.id, 1, claim("t"))
        records.bind_lineage(job.id, "file:///a")
        records.end(job.id, 1, ended(Verdict.FAILED, "t"))
        ran = tmp_path / "ran"
        folder = tmp_path / "jobs" / job.id
        names = [path for path in folder.rglob("*") if path.is_file()]
        assert len(names) == 5
        for path in names:
            content = path.read_bytes()
            path.write_bytes(pickle.dumps(Touches(ran)))
            with pytest.raises(BadRecord, match="cannot be read"):
                Records(LocalStorage(tmp_path)).view(job.id)
            path.write_bytes(content)
        assert not ran.exists()
        assert Records(LocalStorage(tmp_path)).view(job.id) == records.view(job.id)

    def test_a_field_of_a_newer_version_is_refused(self, records: Records, tmp_path: Path) -> None:
        job = submission()
        records.submit(job)
        path = tmp_path / "jobs" / job.id / "job"
        path.write_bytes(path.read_bytes().replace(b"{", b'{"later": 1, ', 1))
        with pytest.raises(BadRecord, match="later"):
            records.view(job.id)

    def test_a_missing_attempt_is_reported(self, records: Records, tmp_path: Path) -> None:
        job = submission()
        records.submit(job)
        records.end(job.id, 2, ended(Verdict.LOST, "a"))
        with pytest.raises(BadRecord, match=r"\[2\]"):
            records.view(job.id)

    def test_a_program_with_another_content_is_refused(self, records: Records, tmp_path: Path) -> None:
        name = records.store_program(b"print(1)")
        assert records.store_program(b"print(1)") == name
        assert records.read_program(name) == b"print(1)"
        (tmp_path / "programs" / name).write_bytes(b"print(2)")
        with pytest.raises(BadRecord, match="is damaged"):
            records.read_program(name)

    def test_a_name_that_is_not_a_hash_is_refused(self, records: Records) -> None:
        with pytest.raises(BadRecord, match="not the hash"):
            records.read_program("../jobs")

    def test_folders_of_attempts_sort_by_number(self) -> None:
        assert sorted(map(attempt_folder, (10, 2, 999_999))) == [attempt_folder(n) for n in (2, 10, 999_999)]
