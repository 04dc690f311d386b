"""Whole programs that were written for PyFlink."""

import json
import logging
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyflink_kafka_job
import pyflink_tuning
import pytest

from penstock.common import without_effect
from penstock.common.without_effect import Noted, report
from penstock.testing import JobHarness

HERE = Path(__file__).parent


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> Noted:
    fresh = Noted()
    monkeypatch.setattr(without_effect, "_program", fresh)
    return fresh


def test_a_kafka_job_from_a_tutorial_runs(
    kafka: Any, noted: Noted, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = kafka.topic(2)
    seconds = ((1, "ann", 1.5), (2, "bob", 2.0), (9, "ann", 3.0), (12, "ann", 7.0), (8, "ann", 0.5), (30, "bob", 1.0))
    for second, user, amount in seconds:
        kafka.send(topic, json.dumps({"user": user, "amount": amount, "ts": second * 1000, "more": None}))
    env = pyflink_kafka_job.program(kafka.servers, topic, f"file://{tmp_path}/ck")
    assert env.get_configuration().to_dict()["state.checkpoints.dir"] == f"file://{tmp_path}/ck"
    with JobHarness(env, parallelism=1) as job:
        job.epoch()
        # The other partition has no records, so no watermark: push the end of time.
        job.run()
    lines = sorted(capsys.readouterr().out.splitlines())
    # The record of second 8 came after that of second 12, in the same epoch.
    assert "+I[ann,5.0,8000]" in lines
    assert "+I[bob,2.0,2000]" in lines
    text = noted.paragraph()
    for name in ("add_jars(flink-sql-connector-kafka", "set_buffer_timeout", "max.poll.records", "unaligned"):
        assert name in text


def test_thirty_tuning_options_are_reported_in_one_paragraph(noted: Noted, caplog: pytest.LogCaptureFixture) -> None:
    env = pyflink_tuning.program()
    with JobHarness(env) as job:
        job.run()
    with caplog.at_level(logging.INFO, "penstock"):
        report()
    (record,) = [record for record in caplog.records if "without effect" in record.getMessage()]
    assert record.levelno == logging.INFO
    assert len(set(re.findall(r"(?:\w+\.)?\w+\.\w+|\w+\(False\)", record.getMessage()))) >= 30


@pytest.mark.spark
def test_a_program_with_thirty_tuning_options_starts_and_logs_one_paragraph(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(HERE / "pyflink_tuning.py")],
        cwd=tmp_path,
        env={"PENSTOCK_PROPERTIES": "spark.master: local[1]", **_environment()},
        capture_output=True,
        text=True,
        check=True,
        timeout=250,
    )
    assert done.stdout.splitlines() == ["2", "4", "6"]
    assert done.stderr.count("Accepted without effect:") == 1


def _environment() -> dict[str, str]:
    import os

    return {name: value for name, value in os.environ.items() if name != "PENSTOCK_PROPERTIES"}
