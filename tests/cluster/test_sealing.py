"""Secrets in the records of a cluster."""

from pathlib import Path

import pytest

from penstock.cluster.records import BadRecord, Records, Submission, new_job_id
from penstock.cluster.sealing import KEY
from penstock.state.local_storage import LocalStorage

SECRET = "correct-horse-battery-staple"


def submission() -> Submission:
    return Submission(
        id=new_job_id(),
        name="counts",
        program="",
        file="job.py",
        arguments=["--password", SECRET],
        configuration={"spark.hadoop.fs.s3a.secret.key": SECRET},
        savepoint=f"s3://user:{SECRET}@bucket/savepoint-1",
        submitted_ms=1,
        python="3.11",
        penstock="0.1",
    )


def test_a_submission_comes_back_complete(tmp_path: Path) -> None:
    submitted = submission()
    Records(LocalStorage(tmp_path)).submit(submitted)
    assert Records(LocalStorage(tmp_path)).view(submitted.id).submission == submitted


def test_no_file_of_the_storage_contains_a_secret_in_clear(tmp_path: Path) -> None:
    Records(LocalStorage(tmp_path)).submit(submission())
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if SECRET in path.read_text()]


def test_the_key_is_readable_by_its_user_only(tmp_path: Path) -> None:
    Records(LocalStorage(tmp_path)).submit(submission())
    assert (tmp_path / KEY).stat().st_mode & 0o777 == 0o600


def test_a_record_with_another_key_is_reported(tmp_path: Path) -> None:
    submitted = submission()
    Records(LocalStorage(tmp_path)).submit(submitted)
    (tmp_path / KEY).write_text("another key")
    with pytest.raises(BadRecord, match=f"job {submitted.id} cannot be read: .* encrypted with another key"):
        Records(LocalStorage(tmp_path)).view(submitted.id)
