"""Reads of a job on Spark from another process, while records flow and after its driver is killed."""

import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from query_jobs import free_ports

from penstock.query import QueryableStateClient
from penstock.query.errors import NotServed, UnknownJob, UnknownKey, Unreachable
from penstock.query.flight_server import query_token

pytestmark = [pytest.mark.spark, pytest.mark.slow]

KEYS, PER_EPOCH = 10, 7
PROGRAM = f"""
from penstock.common import Types
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors import Source
from penstock.datastream.state import ReducingStateDescriptor


class Numbers(Source):
    bounded = False

    def start(self, parallelism):
        return {{"only": 0}}

    def advance(self, positions, limit):
        return {{"only": positions["only"] + {PER_EPOCH}}}

    def read(self, split, start, end):
        return range(start, end)


env = StreamExecutionEnvironment.get_execution_environment()
numbers = env.from_source(Numbers(), type_info=Types.LONG()).uid("numbers")
keyed = numbers.key_by(lambda n: n % {KEYS}, Types.LONG())
total = ReducingStateDescriptor("total", lambda a, b: a + b, Types.LONG())
keyed.as_queryable_state("totals", total).uid("totals")
keyed.as_queryable_state("last").uid("last")
env.execute("sums")
"""


def numbers_of(checkpoint: int, key: int) -> range:
    """Return the numbers of a key that a checkpoint includes."""
    return range(key, checkpoint * PER_EPOCH, KEYS)


def test_every_value_is_that_of_its_checkpoint_also_after_the_driver_is_killed(tmp_path: Path) -> None:
    port, server_port = free_ports(2)
    settings = {
        "spark.master": "local[2]",
        "state.checkpoints.dir": str(tmp_path / "checkpoints"),
        "execution.checkpointing.interval": "100 ms",
        "penstock.control.dir": str(tmp_path / "control"),
        "queryable-state.enable": "true",
        "queryable-state.proxy.ports": str(port),
        "queryable-state.server.ports": str(server_port),
        "queryable-state.auth.token-file": str(tmp_path / "token"),
        "queryable-state.linger": "5 s",
    }
    query_token(settings)
    (tmp_path / "job.py").write_text(PROGRAM)
    given = [word for key, value in settings.items() for word in ("-D", f"{key}={value}")]
    command = [sys.executable, "-m", "penstock.cli.main", "run", *given, str(tmp_path / "job.py")]
    errors = (tmp_path / "errors.txt").open("w+")
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)
    try:
        with QueryableStateClient("127.0.0.1", port, token_file=str(tmp_path / "token"), timeout=10) as client:
            while True:
                assert process.poll() is None, (tmp_path / "errors.txt").read_text()
                try:
                    if client.describe("sums").newest >= 3:
                        break
                except (Unreachable, UnknownJob, NotServed):
                    pass
            rng = random.Random(3)
            seen: Counter[int] = Counter()
            last = 0
            while len(seen) < 10:
                key = rng.randrange(KEYS)
                value, checkpoint = client.read("sums", "totals", key)
                assert value == sum(numbers_of(checkpoint, key))
                assert checkpoint >= last
                last = checkpoint
                seen[checkpoint] += 1
            with client.pinned("sums") as pinned:
                for key in range(KEYS):
                    numbers = numbers_of(pinned.checkpoint, key)
                    assert pinned.get("totals", key) == sum(numbers)
                    assert pinned.get("last", key) == numbers[-1]
            with pytest.raises(UnknownKey):
                client.get("sums", "totals", KEYS)
            process.send_signal(signal.SIGKILL)
            process.wait()
            value, checkpoint = client.read("sums", "totals", 0)
            assert value == sum(numbers_of(checkpoint, 0))
            assert checkpoint >= last
    finally:
        process.kill()
        process.wait()
        errors.close()


def test_a_job_whose_checkpoints_are_in_memory_is_served_by_its_driver(tmp_path: Path) -> None:
    port, server_port = free_ports(2)
    settings = {
        "spark.master": "local[2]",
        "state.backend.type": "memory",
        "execution.checkpointing.interval": "100 ms",
        "penstock.control.dir": str(tmp_path / "control"),
        "queryable-state.enable": "true",
        "queryable-state.proxy.ports": str(port),
        "queryable-state.server.ports": str(server_port),
        "queryable-state.auth.token-file": str(tmp_path / "token"),
    }
    query_token(settings)
    (tmp_path / "job.py").write_text(PROGRAM)
    given = [word for key, value in settings.items() for word in ("-D", f"{key}={value}")]
    command = [sys.executable, "-m", "penstock.cli.main", "run", *given, str(tmp_path / "job.py")]
    with (tmp_path / "errors.txt").open("w") as errors:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)
    try:
        with QueryableStateClient("127.0.0.1", port, token_file=str(tmp_path / "token"), timeout=10) as client:
            seen: Counter[int] = Counter()
            while len(seen) < 5:
                assert process.poll() is None, (tmp_path / "errors.txt").read_text()
                try:
                    value, checkpoint = client.read("sums", "totals", 3)
                except (Unreachable, UnknownJob, NotServed):
                    continue
                assert value == sum(numbers_of(checkpoint, 3))
                seen[checkpoint] += 1
        process.send_signal(signal.SIGINT)
        process.wait(60)
    finally:
        process.kill()
        process.wait()
