"""A program that tunes Flink starts on Spark, and the log has one paragraph about it."""

import logging
from typing import Any

import pytest

from penstock.common import without_effect
from penstock.common.without_effect import Noted

pytestmark = pytest.mark.spark

SETTINGS = {
    "taskmanager.numberOfTaskSlots": "4",
    "taskmanager.memory.process.size": "4g",
    "taskmanager.memory.managed.fraction": "0.4",
    "taskmanager.network.memory.buffer-debloat.enabled": "true",
    "jobmanager.memory.process.size": "2g",
    "jobmanager.rpc.address": "localhost",
    "pekko.ask.timeout": "30 s",
    "akka.framesize": "10485760b",
    "python.fn-execution.bundle.size": "1000",
    "python.fn-execution.bundle.time": "1000",
    "python.execution-mode": "thread",
    "python.map-state.read-cache-size": "1000",
    "state.backend.incremental": "true",
    "state.backend.rocksdb.writebuffer.size": "64mb",
    "state.backend.rocksdb.predefined-options": "SPINNING_DISK_OPTIMIZED",
    "execution.checkpointing.unaligned": "true",
    "execution.checkpointing.write-buffer-size": "4096",
    "execution.buffer-timeout": "100ms",
    "pipeline.object-reuse": "true",
    "pipeline.force-kryo": "true",
    "metrics.reporter.jmx.port": "9249",
    "metrics.latency.interval": "1000",
    "table.exec.mini-batch.enabled": "true",
    "rest.flamegraph.enabled": "true",
    "kubernetes.cluster-id": "mine",
}


def test_thirty_tuning_options_start_the_job_and_log_one_paragraph(
    make_env: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(without_effect, "_program", Noted())
    env = make_env(**{key.replace(".", "__"): value for key, value in SETTINGS.items()})
    env.set_buffer_timeout(100)
    env.enable_changelog_state_backend(True)
    env.get_config().enable_object_reuse()
    env.get_config().set_latency_tracking_interval(1000)
    env.get_config().set_use_snapshot_compression(True)
    with (
        caplog.at_level(logging.INFO, "penstock"),
        env.from_collection([1, 2, 3]).set_buffer_timeout(10).execute_and_collect() as results,
    ):
        assert sorted(results) == [1, 2, 3]
    (paragraph,) = [each.getMessage() for each in caplog.records if "without effect" in each.getMessage()]
    calls = (
        "set_buffer_timeout",
        "enable_changelog",
        "enable_object_reuse",
        "latency_tracking",
        "snapshot_compression",
    )
    assert len(SETTINGS) + len(calls) == 30
    assert [name for name in (*SETTINGS, *calls) if name not in paragraph] == []
    assert "\n" not in paragraph
    assert env.get_configuration().get_string("pekko.ask.timeout", "") == "30 s"
