"""A job that a cluster assigned to this process."""

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.cluster.attempt import RecordedAttempt
from penstock.cluster.records import Ended, Planned, Records, Submission
from penstock.common import Encoder
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.file_system import FileSink
from penstock.datastream.launch import LaunchContext, launch
from penstock.driver.assignment import Superseded, Verdict
from penstock.state.local_storage import LocalStorage

pytestmark = pytest.mark.spark

JOB = "0" * 31 + "1"


@pytest.fixture
def records(tmp_path: Path) -> Records:
    """The records of a job whose first attempt is planned."""
    records = Records(LocalStorage(tmp_path / "records"))
    records.submit(
        Submission(id=JOB, name="n", program="", entry="j", file="j.py", submitted_ms=0, python="3", penstock="0")
    )
    records.plan(JOB, 1, Planned(leader="a", at_ms=0))
    return records


def test_a_process_whose_attempt_was_declared_lost_runs_no_epoch(
    records: Records,
    make_env: Callable[..., StreamExecutionEnvironment],
    launched: Callable[[dict[str, str]], None],
    tmp_path: Path,
) -> None:
    """Its successor has finished the job and removed the checkpoints, so this process finds nothing to resume from."""
    attempt = RecordedAttempt(records, JOB, 1)
    assert attempt.claim()
    launched({})
    launch(LaunchContext(assignment=attempt))
    env = make_env(records=5, checkpoints=True)
    sink = FileSink.for_row_format(str(tmp_path / "out"), Encoder.simple_string_encoder()).build()
    env.from_sequence(1, 20).uid("numbers").map(str).uid("text").sink_to(sink).uid("out")
    records.end(JOB, 1, Ended(verdict=Verdict.LOST, by="a", at_ms=0, reason="It was silent."))
    with pytest.raises(Superseded, match="It was silent"):
        env.execute("late")
    assert [path for path in (tmp_path / "out").rglob("*") if path.is_file()] == []
