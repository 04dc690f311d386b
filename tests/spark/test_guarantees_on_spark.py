"""What streaming DataFrames can do is asked of Spark, and a job says in its log what it promises."""

import logging
from pathlib import Path
from typing import Any

import pytest

from penstock.datastream.connectors import DiscardingSink
from penstock.spark.formats import replayable

pytestmark = pytest.mark.spark


def test_formats_that_forget_are_told_from_those_that_do_not(session: Any, tmp_path: Path) -> None:
    socket = session.readStream.format("socket").option("host", "localhost").option("port", 1).load()
    assert replayable(socket) == (False, "Spark's socket format keeps what it received in the driver's memory only")
    rate = session.readStream.format("rate").load()
    assert replayable(rate)[0]
    files = session.readStream.schema("value string").text(str(tmp_path))
    assert replayable(files) == (True, "Spark's log has the files that were read")
    both = rate.selectExpr("cast(value as string) value").unionAll(socket)
    assert replayable(both)[0] is False


def test_a_job_says_when_it_starts_what_it_promises(make_env: Any, caplog: Any, tmp_path: Path) -> None:
    env = make_env(checkpoints=True)
    env.from_sequence(1, 3).uid("numbers").sink_to(DiscardingSink()).uid("out")
    with caplog.at_level(logging.INFO, "penstock"):
        env.execute("told")
    said = [record.getMessage() for record in caplog.records if "exactly-once" in record.getMessage()]
    assert len(said) == 1
    assert said[0].startswith("Job 'told' is exactly-once: ")
