"""Batches and restart budgets of a service, when JobManagers die."""

from collections import Counter
from pathlib import Path

import pytest
from service import Service, crash, kill, output_of, wait_for

from penstock.driver.assignment import Verdict

pytestmark = [pytest.mark.spark, pytest.mark.slow]

BATCH = """
import os, sys
from penstock.common import Encoder
from penstock.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
from penstock.datastream.connectors.file_system import FileSink

out, os.environ["PENSTOCK_CRASH"] = sys.argv[1:]
env = StreamExecutionEnvironment.get_execution_environment()
env.set_runtime_mode(RuntimeExecutionMode.BATCH)
env.set_parallelism(1)
sink = FileSink.for_row_format(out, Encoder.simple_string_encoder()).build()
sums = env.from_sequence(1, 100).key_by(lambda n: n % 7).reduce(lambda a, b: a + b)
sums.map(str).sink_to(sink)
env.execute("batch")
"""

FAILS = """
from penstock.datastream import StreamExecutionEnvironment

def fail(n):
    raise ValueError("this record is bad")

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
env.from_sequence(1, 100).uid("numbers").map(fail).uid("fail").print().uid("out")
env.execute("fails")
"""


def test_a_batch_runs_again_or_commits_its_output_in_the_next_attempt(service: Service, tmp_path: Path) -> None:
    plans, markers = crash(tmp_path, "collected:1", "published:1")
    job = service.submit(BATCH, str(tmp_path / "out"), plans)
    service.wait_until(job, "FINISHED")
    assert all(marker.exists() for marker in markers)
    expected = Counter(str(sum(n for n in range(1, 101) if n % 7 == key)) for key in range(7))
    assert output_of(tmp_path / "out") == expected
    verdicts = [each.ended.verdict for each in service.view(job).attempts if each.ended]
    assert verdicts == [Verdict.LOST, Verdict.LOST, Verdict.FINISHED]


def test_restarts_count_over_the_attempts_of_a_job(service: Service) -> None:
    job = service.submit(
        FAILS,
        restart_strategy__type="fixed-delay",
        restart_strategy__fixed_delay__attempts="3",
        restart_strategy__fixed_delay__delay="4 s",
    )
    records = service.dispatcher._records
    wait_for(lambda: len(records.failures(job)) == 2, "the job fails twice")
    kill(service.claim(job).pid)
    shown = service.wait_until(job, "FAILED")
    assert "this record is bad" in shown.reason
    failures = records.failures(job)
    assert [(each.number, each.attempt) for each in failures] == [(1, 1), (2, 1), (3, 2), (4, 2)]
    assert all("this record is bad" in each.exception.message for each in failures)
    # Those of the first attempt are shown as well, and its end.
    exceptions = service.shown(job).exceptions
    assert [each.name for each in exceptions] == ["ValueError"] * 2 + ["AttemptLost"] + ["ValueError"] * 2
    assert [(each.attempt, each.restart) for each in exceptions] == [(1, 0), (1, 1), (1, 1), (2, 2), (2, 3)]
    assert service.shown(job).restarts == 4
