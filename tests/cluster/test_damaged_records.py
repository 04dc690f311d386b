"""A damaged record affects its own job only."""

from typing import cast

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from memory_storage import MemoryStorage
from simulated_host import Host

from penstock.checkpoint.lineages import SharedStorage
from penstock.cluster.coordination import NoCoordination
from penstock.cluster.order import Order
from penstock.cluster.records import BadRecord, Claim, Ended, Planned, Records, Submission
from penstock.cluster.recovery import found_jobs
from penstock.cluster.supervision import Policy
from penstock.cluster.supervisor import Supervisor
from penstock.driver.assignment import RecordedFailure, Verdict
from penstock.driver.job_snapshot import ExceptionSnapshot

DAMAGED, SOUND = "0" * 31 + "1", "0" * 31 + "2"
PARTS = (
    "job",
    "lineage",
    "cancel",
    "failures/000001",
    "attempts/000001/planned",
    "attempts/000001/claimed",
    "attempts/000001/ended",
)
NOT_UTF8 = b"\xff\xfe"


def submission(job_id: str) -> Submission:
    return Submission(id=job_id, name="n", program="", file="j.py", submitted_ms=0, python="3", penstock="0")


@pytest.fixture(scope="module")
def files() -> dict[str, bytes]:
    """The records of a job with one lost attempt, and of a job that waits for its start."""
    storage = MemoryStorage()
    records = Records(cast(SharedStorage, storage))
    for job_id in (DAMAGED, SOUND):
        records.submit(submission(job_id))
    records.bind_lineage(DAMAGED, "/a")
    records.request_cancel(DAMAGED)
    exception = ExceptionSnapshot(name="E", message="m")
    failure = RecordedFailure(
        attempt=1, exception=exception, from_user=True, identity="", progressed=False, counts=True
    )
    records.add_failure(DAMAGED, failure)
    records.plan(DAMAGED, 1, Planned(leader="a", at_ms=0))
    records.claim(DAMAGED, 1, Claim(token="t", host="h", boot="b", pid=1, started=1, at_ms=0))
    records.end(DAMAGED, 1, Ended(verdict=Verdict.LOST, by="a", at_ms=0))
    assert {f"jobs/{DAMAGED}/{part}" for part in PARTS} | {f"jobs/{SOUND}/job", "record-key"} == set(storage.files)
    return storage.files


def supervisor_of(records: Records, host: Host) -> Supervisor:
    return Supervisor(
        leader="a",
        records=records,
        launcher=host,
        policy=Policy(),
        most_starts=2,
        order=lambda job, number, finalize: Order(
            job_id=job, attempt=number, finalize=finalize, records="", settings={}, control="", folder=""
        ),
        heard_ms=lambda job, number: None,
        has_started=lambda job, number: False,
        present=set,
        ask_to_cancel=lambda job, number: None,
        changed=lambda view: None,
        broken=lambda job, problem: None,
        clean_up=lambda view: None,
        can_act=lambda: True,
        now_ms=lambda: 10**6,
    )


@pytest.mark.parametrize("part", PARTS)
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(content=st.binary(max_size=40))
@example(content=NOT_UTF8)
@example(content=b'{"id": "\xff"}')
@example(content=b"[" * 100_000)
def test_a_job_starts_whatever_the_records_of_another_one_contain(
    files: dict[str, bytes], part: str, content: bytes
) -> None:
    storage = MemoryStorage()
    storage.files = {**files, f"jobs/{DAMAGED}/{part}": content}
    records = Records(cast(SharedStorage, storage))
    found = {each.job_id: each for batch in found_jobs(NoCoordination(records), records) for each in batch}
    assert set(found) == {DAMAGED, SOUND}
    assert found[SOUND].view is not None
    assert found[DAMAGED].view is not None or (found[DAMAGED].problem and not found[DAMAGED].retryable)
    host = Host(records)
    supervisor = supervisor_of(records, host)
    for job_id in found:
        supervisor.add(job_id)
    supervisor.tick()
    assert (SOUND, 1) in host.started
    supervisor.close()


def test_a_lineage_and_a_sealed_part_that_cannot_be_read_are_named(files: dict[str, bytes]) -> None:
    storage = MemoryStorage()
    storage.files = {**files, f"jobs/{DAMAGED}/lineage": NOT_UTF8}
    with pytest.raises(BadRecord, match=rf"jobs/{DAMAGED}/lineage in memory cannot be read"):
        Records(cast(SharedStorage, storage)).view(DAMAGED)
    records = Records(cast(SharedStorage, storage))
    for private in (b"[]", NOT_UTF8):
        sealed = records._seal().close(private)
        storage.files[f"jobs/{SOUND}/job"] = (
            b'{"id": "%b", "name": "n", "program": "", "file": "f", "submitted_ms": 0, "python": "", "penstock": "", '
            b'"sealed": "%b"}' % (SOUND.encode(), sealed.encode())
        )
        with pytest.raises(BadRecord, match=f"submission of job {SOUND} cannot be read"):
            Records(cast(SharedStorage, storage)).view(SOUND)


def test_the_record_of_another_job_is_refused(files: dict[str, bytes]) -> None:
    storage = MemoryStorage()
    storage.files = {**files, f"jobs/{DAMAGED}/job": files[f"jobs/{SOUND}/job"]}
    with pytest.raises(BadRecord, match=f"is that of job {SOUND}"):
        Records(cast(SharedStorage, storage)).view(DAMAGED)


def test_a_damaged_failure_is_not_counted(files: dict[str, bytes]) -> None:
    storage = MemoryStorage()
    storage.files = {**files, f"jobs/{DAMAGED}/failures/000002": b"{"}
    assert len(Records(cast(SharedStorage, storage)).failures(DAMAGED)) == 1


def test_an_upload_with_a_damaged_time_is_listed() -> None:
    storage = MemoryStorage()
    records = Records(cast(SharedStorage, storage))
    for number, time in enumerate((b"12", b"", NOT_UTF8, b"1e5", b"9" * 5000)):
        storage.files[f"uploads/{number:064}_a.py"] = time
    assert list(records.uploads().values()) == [12, 0, 0, 0, 0]
