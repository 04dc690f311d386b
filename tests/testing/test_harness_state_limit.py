"""The state size limit of a program without a backend and a checkpoint directory."""

from __future__ import annotations

from collections import Counter

import pytest

from penstock.common import Configuration
from penstock.datastream import StreamExecutionEnvironment
from penstock.driver.memory_limit import StateTooLarge
from penstock.state.backend_settings import backend_settings
from penstock.testing import JobHarness

KEYS = [f"user-{n:0300d}" for n in range(20_000)]
"""More than the limit of five MiB for checkpoints in the driver's memory."""


def counted(env: StreamExecutionEnvironment) -> JobHarness:
    stream = env.from_collection([]).uid("users").key_by(lambda user: user)
    return JobHarness(stream.map_with_state(lambda user, n: (n or 0, (n or 0) + 1), int).uid("count"))


def test_a_job_without_checkpoints_has_unlimited_state() -> None:
    with counted(StreamExecutionEnvironment.get_execution_environment()) as job:
        for _ in range(2):
            job.push(*KEYS)
        job.epochs(15_000)
        job.crash()
        job.push(*KEYS[:10]).end()
        assert Counter(job.output) == {0: 20_000, 1: 20_000, 2: 10}


def test_the_error_for_large_state_in_memory_suggests_a_directory_first() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.enable_checkpointing(1000)
    with counted(env) as job:
        job.push(*KEYS)
        with pytest.raises(StateTooLarge, match="max-state-size is 5,242,880") as caught:
            job.epoch()
    fix = str(caught.value.fix)
    assert fix.index("state.checkpoints.dir") < fix.index("FsStateBackend")


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({}, "filesystem"),
        ({"execution.checkpointing.interval": "1 s"}, "memory"),
        ({"execution.checkpointing.interval": "1 s", "state.checkpoints.dir": "/x"}, "filesystem"),
        ({"state.backend": "memory"}, "memory"),
        ({"state.backend": "hashmap"}, "memory"),
    ],
)
def test_the_default_backend_depends_on_checkpointing(settings: dict[str, str], name: str) -> None:
    assert backend_settings(Configuration.from_dict(settings))[0].name == name
