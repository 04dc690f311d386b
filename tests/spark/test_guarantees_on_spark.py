"""Whether streaming DataFrames are replayable, and the guarantee that a job logs."""

import logging
from pathlib import Path
from typing import Any

import pytest

from penstock.datastream.connectors import DiscardingSink
from penstock.spark.formats import replayable

pytestmark = pytest.mark.spark


def test_replayable_formats_are_distinguished_from_others(session: Any, tmp_path: Path) -> None:
    socket = session.readStream.format("socket").option("host", "localhost").option("port", 1).load()
    assert replayable(socket) == (False, "Spark's socket format keeps received data in the driver's memory only")
    rate = session.readStream.format("rate").load()
    assert replayable(rate)[0]
    files = session.readStream.schema("value string").text(str(tmp_path))
    assert replayable(files) == (True, "Spark's log has the files that were read")
    both = rate.selectExpr("cast(value as string) value").unionAll(socket)
    assert replayable(both)[0] is False


def test_a_starting_job_logs_its_guarantee(make_env: Any, caplog: Any, tmp_path: Path) -> None:
    env = make_env(checkpoints=True)
    env.from_sequence(1, 3).uid("numbers").sink_to(DiscardingSink()).uid("out")
    with caplog.at_level(logging.INFO, "penstock"):
        env.execute("promises")
    said = [record.getMessage() for record in caplog.records if "exactly-once" in record.getMessage()]
    assert len(said) == 1
    assert said[0].startswith("Job 'promises' is exactly-once: ")
