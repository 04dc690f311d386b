"""The exchanges of a job and its standbys while executors come and go, without a JVM."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from programs import Count, words

from penstock.datastream import StreamExecutionEnvironment
from penstock.driver.job_snapshot import ExecutorSnapshot
from penstock.graph.builder import build
from penstock.spark import placement
from penstock.spark.placement import Exchanges
from penstock.state.backends import Backend
from penstock.state.blocks import blocks_for


def test_the_last_executor_follows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    spark = MagicMock()
    spark.sparkContext.master = "local-cluster[2,1,1024]"
    monkeypatch.setattr(placement, "PlacedExchange", lambda empty, executors: executors)
    monkeypatch.setattr(placement, "SparkExchange", lambda targets: targets)
    exchanges = Exchanges(spark, Backend(name="lmdb", directories=["replicas"]), standbys=1)
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_collection(words(1, 1)).uid("words").key_by(lambda word: word).process(Count()).uid("count").print()
    graph = build(env._graph, parallelism=2, max_parallelism=128)
    parameters: Any = SimpleNamespace(blocks={"count": blocks_for(2, 128)}, single_epoch=False, wanted=None)

    def epoch(*executors: str) -> None:
        known = {each: ExecutorSnapshot(id=each, address=f"host:{each}", cores=1, slots=1) for each in executors}
        monkeypatch.setattr(exchanges._executors, "look", lambda: known)
        exchanges._executors.generation += 1
        exchanges.of(graph)
        exchanges.epoch_ran(graph, parameters, 0.1)

    epoch("0", "1")
    assert {executor: len(blocks) for executor, blocks in exchanges.followed().items()} == {"0": 8, "1": 8}
    epoch("1")
    assert exchanges.followed() == {}
    epoch("1", "2")
    assert {executor: len(blocks) for executor, blocks in exchanges.followed().items()} == {"2": 16}
    exchanges.close()
