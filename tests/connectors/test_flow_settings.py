"""When flow control holds sources back, and how long epochs should take."""

from typing import Any

import pytest

from penstock.common import Configuration
from penstock.common.options import BadSetting
from penstock.connectors.flow_settings import flow_settings
from penstock.connectors.generated import DataGeneratorSource
from penstock.datastream import StreamExecutionEnvironment

INTERVAL = {"execution.checkpointing.interval": "5 s"}


def settings(given: dict[str, str], *, endless: bool = False, single_epoch: bool = False) -> Any:
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(given))
    env.from_source(DataGeneratorSource(str, None if endless else 10)).print()
    return flow_settings(env._graph, env.get_configuration(), single_epoch)


def test_an_endless_job_has_it_and_its_epochs_take_the_interval() -> None:
    assert settings(INTERVAL, endless=True).target_ms == 5000
    assert settings({}, endless=True).target_ms == 1000
    assert settings({"execution.checkpointing.interval": "50 ms"}, endless=True).target_ms == 1000


def test_input_that_ends_is_held_back_only_for_the_sake_of_checkpoints() -> None:
    assert settings({}) is None
    assert settings(INTERVAL).target_ms == 5000
    assert settings(INTERVAL, single_epoch=True) is None


def test_who_says_how_much_an_epoch_takes_is_obeyed() -> None:
    most = {"penstock.epoch.max-records": "100"}
    assert settings(INTERVAL | most, endless=True) is None
    both = settings(INTERVAL | most | {"penstock.flow.enabled": "true"}, endless=True)
    assert (both.target_ms, both.most) == (5000, 100)


def test_it_can_be_asked_for_and_refused() -> None:
    assert settings({"penstock.flow.target-epoch-time": "300 ms"}).target_ms == 300
    assert settings(INTERVAL | {"penstock.flow.enabled": "false"}, endless=True) is None


def test_a_job_without_a_source_that_can_be_held_back_has_none() -> None:
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(INTERVAL))
    env.from_collection([1]).print()
    assert flow_settings(env._graph, env.get_configuration(), single_epoch=False) is None


def test_no_time_at_all_is_no_target() -> None:
    with pytest.raises(BadSetting, match=r"penstock\.flow\.target-epoch-time"):
        settings({"penstock.flow.target-epoch-time": "0 ms"})
