"""When flow control throttles sources, and the target epoch time."""

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


def test_an_unbounded_job_has_flow_control_with_the_checkpoint_interval() -> None:
    assert settings(INTERVAL, endless=True).target_ms == 5000
    assert settings({}, endless=True).target_ms == 1000
    assert settings({"execution.checkpointing.interval": "50 ms"}, endless=True).target_ms == 1000


def test_a_bounded_source_is_throttled_only_with_a_checkpoint_interval() -> None:
    assert settings({}) is None
    assert settings(INTERVAL).target_ms == 5000
    assert settings(INTERVAL, single_epoch=True) is None


def test_a_record_limit_replaces_flow_control_unless_it_is_enabled() -> None:
    most = {"penstock.epoch.max-records": "100"}
    assert settings(INTERVAL | most, endless=True) is None
    both = settings(INTERVAL | most | {"penstock.flow.enabled": "true"}, endless=True)
    assert (both.target_ms, both.most) == (5000, 100)


def test_flow_control_can_be_enabled_and_disabled() -> None:
    assert settings({"penstock.flow.target-epoch-time": "300 ms"}).target_ms == 300
    assert settings(INTERVAL | {"penstock.flow.enabled": "false"}, endless=True) is None


def test_a_job_without_throttled_sources_has_no_flow_control() -> None:
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(INTERVAL))
    env.from_collection([1]).print()
    assert flow_settings(env._graph, env.get_configuration(), single_epoch=False) is None


def test_a_target_time_of_zero_is_rejected() -> None:
    with pytest.raises(BadSetting, match=r"penstock\.flow\.target-epoch-time"):
        settings({"penstock.flow.target-epoch-time": "0 ms"})
