"""A Dispatcher is killed with SIGKILL while jobs run, and another one takes its place."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from service import PER_EPOCH, SUMS, Service, wait_for

from penstock.cluster.directory import ClusterDirectory
from penstock.cluster.launcher import child_environment
from penstock.cluster.processes import remains
from penstock.cluster.records import Claim, Records

pytestmark = [pytest.mark.spark, pytest.mark.slow]

DISPATCHER = """
import json, signal, sys
from pathlib import Path
from service import Service

service = Service(Path(sys.argv[1]), **json.loads(sys.argv[2]))
for program, arguments in json.loads(sys.argv[3]):
    print(service.submit(program, *arguments), flush=True)
signal.pause()
"""
SLEEPS = "import time\ntime.sleep(600)"


def test_jobs_are_adopted_and_a_hung_one_is_replaced_after_the_dispatcher_is_killed(tmp_path: Path) -> None:
    settings = {
        "heartbeat__timeout": "12 s",
        "cluster__max_concurrent_starts": "3",
        # The sleeping jobs count as starting until then.
        "cluster__start_timeout": "30 min",
    }
    programs = [(SUMS, [str(tmp_path / "out"), str(10_000 * PER_EPOCH), ""]), (SLEEPS, []), (SLEEPS, [])]
    dispatcher = subprocess.Popen(
        [sys.executable, "-c", DISPATCHER, str(tmp_path), json.dumps(settings), json.dumps(programs)],
        stdout=subprocess.PIPE,
        text=True,
        # It imports modules of the tests.
        env=child_environment(),
    )
    assert dispatcher.stdout is not None
    jobs = [dispatcher.stdout.readline().strip() for _ in programs]
    checkpoints = tmp_path / "service" / "checkpoints" / jobs[0]
    wait_for(lambda: list(checkpoints.rglob("manifests/*")), "the first checkpoint is complete")
    records = Records(ClusterDirectory(tmp_path / "service").storage({}))
    claims = [wait_for(lambda job=job: claim_of(records, job), "the job is claimed") for job in jobs]
    hung = claims[1]
    os.kill(hung.pid, signal.SIGSTOP)
    dispatcher.send_signal(signal.SIGKILL)
    dispatcher.wait()

    with Service(tmp_path, **settings) as service:
        service.wait_until(jobs[0], "RUNNING")
        assert service.shown(jobs[0]).attempt == 1
        successor = service.claim(jobs[1], attempt=2)
        assert successor.pid != hung.pid
        # The others have the same processes as before, and make progress.
        before = len(list(checkpoints.rglob("manifests/*")))
        newest = max(checkpoints.rglob("manifests/*"))
        wait_for(lambda: max(checkpoints.rglob("manifests/*")) > newest, f"checkpoints follow {before} others")
        for job, claim in ((jobs[0], claims[0]), (jobs[2], claims[2])):
            assert [each.claim for each in service.view(job).attempts] == [claim]
            assert remains(claim)
        check_concurrent_starts(service)


def claim_of(records: Records, job: str) -> Claim | None:
    last = records.view(job).last
    return None if last is None else last.claim


def check_concurrent_starts(service: Service) -> None:
    """Two programs initialize already: one more of three new jobs starts, and another when one of those has ended."""
    new = [service.submit(SLEEPS) for _ in range(3)]
    first = wait_for(lambda: [job for job in new if service.view(job).attempts], "a job starts")
    ticks = service.dispatcher._supervisor
    assert ticks.most_starts == 3
    assert len(first) == 1
    service.claim(first[0])
    assert [job for job in new if service.view(job).attempts] == first
    service.cancel(first[0])
    second = wait_for(lambda: [job for job in new if service.view(job).attempts if job not in first], "another starts")
    assert len(second) == 1
