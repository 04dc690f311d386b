"""Checkpoint settings and restart strategies: method calls and configuration keys are equivalent."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.common import Configuration, Duration, RestartStrategies, Time
from penstock.common.options import BadSetting
from penstock.datastream import (
    CheckpointingMode,
    ExternalizedCheckpointRetention,
    StreamExecutionEnvironment,
)
from penstock.driver.checkpoint_settings import restart_strategy, retains_checkpoints, state_settings
from penstock.driver.epoch_settings import Settings
from penstock.driver.restarts import (
    WITH_CHECKPOINTS,
    ExponentialDelay,
    FailureRate,
    FixedDelay,
    NoRestart,
    RestartStrategy,
)


@pytest.fixture
def env() -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment()


def configured(**settings: Any) -> StreamExecutionEnvironment:
    prefix = "execution.checkpointing."
    named = {prefix + key.replace("_", "-"): value for key, value in settings.items()}
    return StreamExecutionEnvironment(Configuration.from_dict(named))


def settings(env: StreamExecutionEnvironment) -> Settings:
    return state_settings(env.get_configuration(), "job")[0]


class TestCheckpointConfig:
    def test_the_checkpoint_config_has_flinks_defaults(self, env: StreamExecutionEnvironment) -> None:
        config = env.get_checkpoint_config()
        assert not config.is_checkpointing_enabled()
        assert config.get_checkpoint_interval() == -1
        assert config.get_checkpointing_mode() is CheckpointingMode.EXACTLY_ONCE
        assert config.get_checkpoint_timeout() == 600_000
        assert config.get_min_pause_between_checkpoints() == 0
        assert config.get_max_concurrent_checkpoints() == 1
        assert config.get_tolerable_checkpoint_failure_number() == 0
        assert config.is_fail_on_checkpointing_errors()
        assert (
            config.get_externalized_checkpoint_retention()
            is ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS
        )
        assert not config.is_externalized_checkpoints_enabled()
        assert not config.is_unaligned_checkpoints_enabled()
        assert not config.is_force_unaligned_checkpoints()

    def test_changes_to_the_checkpoint_config_reach_the_driver(self, env: StreamExecutionEnvironment) -> None:
        config = env.get_checkpoint_config().set_checkpoint_interval(timedelta(seconds=2))
        config.set_checkpoint_timeout(Time.seconds(7)).set_min_pause_between_checkpoints(Duration.of_millis(300))
        config.set_tolerable_checkpoint_failure_number(4).set_checkpointing_mode(CheckpointingMode.AT_LEAST_ONCE)
        config.set_max_concurrent_checkpoints(1)
        given = settings(env)
        assert env.get_checkpoint_interval() == 2000
        assert config.is_checkpointing_enabled()
        assert (given.timeout_ms, given.min_pause_ms, given.tolerable_failures) == (7000, 300, 4)
        assert given.at_least_once

    def test_configuration_keys_have_the_same_effect_as_calls(self) -> None:
        given = settings(
            configured(timeout="7 s", min_pause="300 ms", tolerable_failed_checkpoints=4, mode="at_least_once")
        )
        assert (given.timeout_ms, given.min_pause_ms, given.tolerable_failures) == (7000, 300, 4)
        assert given.at_least_once

    def test_the_driver_uses_flinks_defaults(self, env: StreamExecutionEnvironment) -> None:
        given = settings(env)
        assert (given.timeout_ms, given.min_pause_ms, given.tolerable_failures) == (600_000, 0, 0)
        assert (given.at_least_once, given.asynchronous) == (False, True)

    def test_disabling_fail_on_errors_tolerates_every_checkpoint_failure(self, env: StreamExecutionEnvironment) -> None:
        config = env.get_checkpoint_config().set_fail_on_checkpointing_errors(False)
        assert not config.is_fail_on_checkpointing_errors()
        assert settings(env).tolerable_failures == 2**31 - 1
        assert config.set_fail_on_checkpointing_errors(True).get_tolerable_checkpoint_failure_number() == 0

    @pytest.mark.parametrize("mode", list(ExternalizedCheckpointRetention))
    def test_the_retention_mode_reaches_the_driver(
        self, env: StreamExecutionEnvironment, mode: ExternalizedCheckpointRetention
    ) -> None:
        config = env.get_checkpoint_config().set_externalized_checkpoint_retention(mode)
        assert config.get_externalized_checkpoint_retention() is mode
        assert config.is_externalized_checkpoints_enabled() is (
            mode is not ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS
        )
        assert retains_checkpoints(env.get_configuration()) is (
            mode is ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION
        )

    def test_disabling_async_builds_bases_within_the_epoch(self, env: StreamExecutionEnvironment) -> None:
        env.get_configuration().set_boolean("state.backend.async", False)
        assert not settings(env).asynchronous

    @pytest.mark.parametrize(
        ("key", "value", "message"),
        [
            ("mode", "TWICE", "execution.checkpointing.mode is 'TWICE'. Set it to EXACTLY_ONCE or AT_LEAST_ONCE"),
            ("tolerable_failed_checkpoints", "some", "is 'some'. Set it to an integer"),
            ("min_pause", "soon", "is 'soon'. Set it to a duration"),
            ("externalized_checkpoint_retention", "KEEP", "is 'KEEP'. Set it to RETAIN_ON_CANCELLATION, DELETE_ON"),
        ],
    )
    def test_an_invalid_checkpoint_setting_is_refused(self, key: str, value: Any, message: str) -> None:
        with pytest.raises(BadSetting) as raised:
            settings(configured(**{key: value}))
        assert message in str(raised.value)

    def test_a_call_with_an_invalid_value_is_refused(self, env: StreamExecutionEnvironment) -> None:
        config = env.get_checkpoint_config()
        with pytest.raises(BadSetting, match="at least 1, but is 0"):
            config.set_max_concurrent_checkpoints(0)
        with pytest.raises(BadSetting, match="must not be negative"):
            config.set_tolerable_checkpoint_failure_number(-1)
        with pytest.raises(BadSetting, match="interval must be at least 1 ms, but is 0 ms"):
            config.set_checkpoint_interval(0)


class TestStandbyReplicas:
    def test_jobs_have_none_by_default(self) -> None:
        assert Settings().standby_replicas == 0

    @pytest.mark.parametrize("backend", ["filesystem", "rocksdb"])
    def test_a_backend_with_replicas_on_disk_can_have_them(self, tmp_path: Path, backend: str) -> None:
        named = {"penstock.state.standby-replicas": "2", "state.checkpoints.dir": tmp_path, "state.backend": backend}
        env = StreamExecutionEnvironment(Configuration.from_dict(named))
        assert settings(env).standby_replicas == 2

    def test_the_memory_backend_cannot(self) -> None:
        named = {"penstock.state.standby-replicas": "1", "state.backend": "memory"}
        with pytest.raises(BadSetting) as raised:
            settings(StreamExecutionEnvironment(Configuration.from_dict(named)))
        assert str(raised.value) == (
            "penstock.state.standby-replicas is 1, but replicas are in the memory of single processes. Set "
            "state.checkpoints.dir, and state.backend to filesystem or rocksdb, or leave "
            "penstock.state.standby-replicas out."
        )


class TestRestartStrategies:
    @pytest.mark.parametrize(
        ("chosen", "expected"),
        [
            (RestartStrategies.no_restart(), NoRestart()),
            (RestartStrategies.fixed_delay_restart(10, 1000), FixedDelay(10, 1000)),
            (RestartStrategies.fixed_delay_restart(3, timedelta(seconds=2)), FixedDelay(3, 2000)),
            (RestartStrategies.failure_rate_restart(3, Time.seconds(10), 500), FailureRate(3, 10_000, 500)),
            (
                RestartStrategies.exponential_delay_restart(4, 1000, 2.3, Duration.of_seconds(60), 0, 7),
                ExponentialDelay(4, 1000, 2.3, 60_000, 0, 7),
            ),
        ],
    )
    def test_a_restart_strategy_reaches_the_driver_and_can_be_read_back(
        self, env: StreamExecutionEnvironment, chosen: Any, expected: RestartStrategy
    ) -> None:
        env.set_restart_strategy(chosen)
        assert env.get_restart_strategy() == chosen
        for checkpointing in (True, False):
            assert restart_strategy(env.get_configuration(), checkpointing) == expected

    def test_a_job_without_checkpoints_does_not_restart_by_default(self, env: StreamExecutionEnvironment) -> None:
        assert isinstance(env.get_restart_strategy(), RestartStrategies.FallbackRestartStrategyConfiguration)
        assert restart_strategy(env.get_configuration(), checkpointing=True) == WITH_CHECKPOINTS
        assert restart_strategy(env.get_configuration(), checkpointing=False) == NoRestart()

    def test_the_fall_back_strategy_keeps_the_configured_one(self) -> None:
        env = StreamExecutionEnvironment(Configuration.from_dict({"restart-strategy": "fixed-delay"}))
        env.set_restart_strategy(RestartStrategies.fall_back_restart())
        assert restart_strategy(env.get_configuration(), checkpointing=True) == FixedDelay(1, 1000)

    @pytest.mark.parametrize(
        ("given", "expected"),
        [
            ({"type": "none"}, NoRestart()),
            ({"type": "fixed-delay", "fixed-delay.attempts": 3, "fixed-delay.delay": "2 s"}, FixedDelay(3, 2000)),
            ({"type": "failure-rate"}, FailureRate(1, 60_000, 1000)),
            (
                {
                    "type": "failure-rate",
                    "failure-rate.max-failures-per-interval": 3,
                    "failure-rate.failure-rate-interval": "10 s",
                    "failure-rate.delay": "0 s",
                },
                FailureRate(3, 10_000, 0),
            ),
            ({"type": "exponential-delay"}, ExponentialDelay(1000, 60_000, 1.5, 3_600_000, 0.1, None)),
            (
                {
                    "type": "exponential-delay",
                    "exponential-delay.initial-backoff": "4 ms",
                    "exponential-delay.max-backoff": "1 s",
                    "exponential-delay.backoff-multiplier": 2.3,
                    "exponential-delay.reset-backoff-threshold": "1 min",
                    "exponential-delay.jitter-factor": 0,
                    "exponential-delay.attempts-before-reset-backoff": 5,
                },
                ExponentialDelay(4, 1000, 2.3, 60_000, 0, 5),
            ),
        ],
    )
    def test_a_restart_strategy_can_be_configured_with_keys(
        self, given: dict[str, Any], expected: RestartStrategy
    ) -> None:
        named = {f"restart-strategy.{key}": value for key, value in given.items()}
        env = StreamExecutionEnvironment(Configuration.from_dict(named))
        assert restart_strategy(env.get_configuration(), checkpointing=True) == expected

    @pytest.mark.parametrize("checkpointing", [True, False])
    @pytest.mark.parametrize(
        ("given", "expected"),
        [
            (
                {"exponential-delay.initial-backoff": "7 s", "exponential-delay.attempts-before-reset-backoff": 2},
                ExponentialDelay(7000, 60_000, 1.5, 3_600_000, 0.1, 2),
            ),
            ({"exponential-delay.jitter-factor": 0}, ExponentialDelay(1000, 60_000, 1.5, 3_600_000, 0, None)),
            ({"fixed-delay.attempts": 3}, FixedDelay(3, 1000)),
            ({"failure-rate.delay": "0 s"}, FailureRate(1, 60_000, 0)),
        ],
    )
    def test_the_settings_select_the_restart_strategy_without_a_type(
        self, given: dict[str, Any], expected: RestartStrategy, checkpointing: bool
    ) -> None:
        named = {f"restart-strategy.{key}": value for key, value in given.items()}
        env = StreamExecutionEnvironment(Configuration.from_dict(named))
        assert restart_strategy(env.get_configuration(), checkpointing) == expected

    def test_settings_of_two_restart_strategies_require_a_type(self) -> None:
        named = {"restart-strategy.fixed-delay.delay": "1 s", "restart-strategy.exponential-delay.max-backoff": "2 s"}
        env = StreamExecutionEnvironment(Configuration.from_dict(named))
        with pytest.raises(BadSetting) as raised:
            restart_strategy(env.get_configuration(), checkpointing=True)
        assert str(raised.value) == (
            "restart-strategy.fixed-delay.delay, restart-strategy.exponential-delay.max-backoff belong to "
            "different restart strategies, and restart-strategy.type is not set. Set restart-strategy.type to "
            "fixed-delay or exponential-delay."
        )
        env.get_configuration().set_string("restart-strategy.type", "fixed-delay")
        assert restart_strategy(env.get_configuration(), checkpointing=True) == FixedDelay(1, 1000)

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"type": "always"}, "restart-strategy.type is 'always'. Set it to none, fixed-delay"),
            (
                {"type": "fixed-delay", "fixed-delay.attempts": "many"},
                "fixed-delay.attempts is 'many'. Set it to an integer from 0",
            ),
            (
                {"type": "exponential-delay", "exponential-delay.jitter-factor": "some"},
                "jitter-factor is 'some'. Set it to a number from 0 to 1.",
            ),
            (
                {"type": "exponential-delay", "exponential-delay.max-backoff": "1 ms"},
                "max-backoff is 1 ms, and restart-strategy.exponential-delay.initial-backoff is 1000 ms",
            ),
        ],
    )
    def test_an_invalid_restart_setting_is_refused(self, given: dict[str, Any], message: str) -> None:
        named = {f"restart-strategy.{key}": value for key, value in given.items()}
        with pytest.raises(BadSetting) as raised:
            StreamExecutionEnvironment(Configuration.from_dict(named)).get_restart_strategy()
        assert message in str(raised.value)

    def test_invalid_numbers_of_a_restart_strategy_are_refused(self) -> None:
        with pytest.raises(BadSetting, match="restart_attempts must be an integer of at least 0, not -1"):
            RestartStrategies.fixed_delay_restart(-1, 0)
        with pytest.raises(BadSetting, match="delay_between_attempts must be at least 0 ms"):
            RestartStrategies.fixed_delay_restart(1, -5)
        with pytest.raises(BadSetting, match="backoff_multiplier must be at least 1"):
            RestartStrategies.exponential_delay_restart(1, 2, 0.5, 1, 0)
        for bad in (float("nan"), float("inf"), "2"):
            with pytest.raises(BadSetting, match="backoff_multiplier must be a number"):
                RestartStrategies.exponential_delay_restart(1, 2, bad, 1, 0)  # type: ignore[arg-type]
            with pytest.raises(BadSetting, match="jitter_factor must be a number"):
                RestartStrategies.exponential_delay_restart(1, 2, 2, 1, bad)  # type: ignore[arg-type]
        with pytest.raises(BadSetting, match="failure_interval must be at least 1 ms"):
            RestartStrategies.failure_rate_restart(1, 0, 0)
        with pytest.raises(BadSetting, match=r"delay_between_attempts is '1 s'\."):
            RestartStrategies.fixed_delay_restart(1, "1 s")  # type: ignore[arg-type]

    def test_a_restart_strategy_returns_its_arguments(self) -> None:
        fixed = RestartStrategies.fixed_delay_restart(10, 1000)
        assert fixed.get_restart_attempts() == 10
        assert fixed.get_delay_between_attempts_interval() == timedelta(seconds=1)
        rate = RestartStrategies.failure_rate_restart(3, 10_000, 500)
        assert (rate.get_max_failure_rate(), rate.get_failure_interval()) == (3, timedelta(seconds=10))
        assert fixed == RestartStrategies.fixed_delay_restart(10, timedelta(seconds=1))
        assert fixed != RestartStrategies.fixed_delay_restart(10, 1001)
        assert len({fixed, RestartStrategies.fixed_delay_restart(10, 1000), rate}) == 2
        assert fixed.get_description() == "Fixed delay: 10 restarts, 1000 ms after a failure"
