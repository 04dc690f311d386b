"""Errors of programs: those of the user end the job, and a storage that cannot be reached costs an attempt."""

import sys
import zipfile
from pathlib import Path

import pytest

from penstock.cluster.jobmanager import JobManager
from penstock.cluster.order import Order
from penstock.cluster.records import Ended, Planned, Records, Submission, new_job_id
from penstock.datastream.program_runner import execute_program, raised_by_program
from penstock.driver.assignment import Verdict
from penstock.state.local_storage import LocalStorage


@pytest.fixture(autouse=True)
def _same_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, launched: object) -> None:
    """A JobManager changes its process, which is that of the test; `launched` restores its launch context."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])


MISSING_FILE = "open('/missing/file')"
NO_SERVER = "import urllib.request; urllib.request.urlopen('http://127.0.0.1:1/')"
NO_STORAGE = """
from penstock.state.local_storage import LocalStorage
LocalStorage("/proc/nothing").write("a", b"")
"""
RAW_ERROR_OF_PENSTOCK = "from penstock.common.durable_files import sync_directory; sync_directory('/missing')"


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (MISSING_FILE, True),
        (NO_SERVER, True),
        ("import json; json.loads('{')", True),
        (RAW_ERROR_OF_PENSTOCK, False),
        (NO_STORAGE, False),
    ],
    ids=["file", "server", "library", "Penstock", "storage"],
)
def test_the_frames_of_an_error_tell_whose_it_is(tmp_path: Path, program: str, expected: bool) -> None:
    file = tmp_path / "job.py"
    file.write_text(program)
    with pytest.raises(Exception) as raised:
        execute_program(file, [])
    assert raised_by_program(raised.value) is expected


def test_an_error_outside_of_any_program_is_not_one_of_a_program(tmp_path: Path) -> None:
    with pytest.raises(OSError) as raised:
        execute_program(tmp_path / "missing.py", [])
    assert not raised_by_program(raised.value)
    assert not raised_by_program(OSError("never raised"))


def end_of(tmp_path: Path, program: str) -> Ended:
    """Return the end of the second attempt of a job with this program, whose first one was lost."""
    records = Records(LocalStorage(tmp_path / "records" / "default"))
    file = tmp_path / "upload.zip"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("__main__.py", program)
    job_id = new_job_id()
    name = records.store_program(file.read_bytes())
    records.submit(
        Submission(id=job_id, name="n", program=name, file="job.zip", submitted_ms=0, python="3", penstock="0")
    )
    records.plan(job_id, 1, Planned(leader="a", at_ms=0))
    records.bind_lineage(job_id, "/a")
    records.end(job_id, 1, Ended(verdict=Verdict.LOST, by="a", at_ms=0))
    records.plan(job_id, 2, Planned(leader="a", at_ms=0))
    folder, control = tmp_path / "attempt", tmp_path / "control"
    folder.mkdir()
    control.mkdir(mode=0o700)
    order = Order(
        job_id=job_id,
        attempt=2,
        records=str(tmp_path / "records"),
        settings={},
        control=str(control),
        folder=str(folder),
    )
    assert JobManager(order).run() == 0
    last = records.view(job_id).last
    assert last is not None
    assert last.ended is not None
    return last.ended


@pytest.mark.parametrize(
    ("program", "verdict"),
    [
        (MISSING_FILE, Verdict.FAILED),
        (NO_SERVER, Verdict.FAILED),
        (RAW_ERROR_OF_PENSTOCK, Verdict.LOST),
        (NO_STORAGE, Verdict.LOST),
    ],
    ids=["file", "server", "Penstock", "storage"],
)
def test_an_error_of_the_program_ends_a_resumed_job(tmp_path: Path, program: str, verdict: Verdict) -> None:
    assert end_of(tmp_path, program).verdict is verdict
