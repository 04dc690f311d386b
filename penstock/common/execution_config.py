"""A program's execution settings as an object, backed by the environment's configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from penstock.common.configuration import Configuration
from penstock.common.execution_tuning import ExecutionTuning
from penstock.common.options.program import (
    AUTO_GENERATE_UIDS,
    AUTO_WATERMARK_INTERVAL,
    GLOBAL_JOB_PARAMETERS,
    PARALLELISM,
)
from penstock.common.restart_strategy import RestartStrategyConfiguration
from penstock.common.setting_types import BadSetting
from penstock.common.tuning import Tuning


class ConfiguredEnvironment(Protocol):
    """The parts of the environment that an ExecutionConfig uses."""

    def get_configuration(self) -> Configuration: ...
    def get_parallelism(self) -> int: ...
    def set_parallelism(self, parallelism: int) -> object: ...
    def get_max_parallelism(self) -> int: ...
    def set_max_parallelism(self, max_parallelism: int) -> object: ...
    def get_restart_strategy(self) -> RestartStrategyConfiguration: ...
    def set_restart_strategy(self, restart_strategy_configuration: RestartStrategyConfiguration) -> object: ...


class ExecutionConfig(ExecutionTuning):
    """Execution settings, returned by ``env.get_config()``. Changes apply to the environment."""

    PARALLELISM_DEFAULT = -1
    """Pass to ``set_parallelism`` to use as many subtasks as Spark has cores."""
    PARALLELISM_UNKNOWN = -2
    """Pass to ``set_parallelism`` to leave the parallelism unchanged."""

    def __init__(self, env: ConfiguredEnvironment, job_parameters: dict[str, str], tuning: Tuning) -> None:
        """Wrap an environment. ``job_parameters`` is the environment's own dict, modified in place."""
        self._env = env
        self._tuning = tuning
        self._job_parameters = job_parameters

    def get_parallelism(self) -> int:
        """Return the number of subtasks of operators that do not set their own parallelism."""
        return self._env.get_parallelism()

    def set_parallelism(self, parallelism: int) -> ExecutionConfig:
        """Set the number of subtasks of operators that do not set their own parallelism."""
        if parallelism == self.PARALLELISM_DEFAULT:
            self._env.get_configuration().remove_config(PARALLELISM.key)
        elif parallelism != self.PARALLELISM_UNKNOWN:
            self._env.set_parallelism(parallelism)
        return self

    def get_max_parallelism(self) -> int:
        """Return the number of key groups, or -1 if it is derived from the parallelism."""
        return self._env.get_max_parallelism()

    def set_max_parallelism(self, max_parallelism: int) -> ExecutionConfig:
        """Set the number of key groups, which is the upper limit for the parallelism of keyed state."""
        self._env.set_max_parallelism(max_parallelism)
        return self

    def enable_auto_generated_uids(self) -> ExecutionConfig:
        """Allow operators without a uid. Their uids are derived from their position in the program."""
        self._env.get_configuration().set_boolean(AUTO_GENERATE_UIDS.key, True)
        return self

    def disable_auto_generated_uids(self) -> ExecutionConfig:
        """Refuse to run a program with an operator that has no uid."""
        self._env.get_configuration().set_boolean(AUTO_GENERATE_UIDS.key, False)
        return self

    def has_auto_generated_uids_enabled(self) -> bool:
        """Return whether operators without a uid are allowed."""
        return self._env.get_configuration().get(AUTO_GENERATE_UIDS)

    def set_auto_watermark_interval(self, interval: int) -> ExecutionConfig:
        """Set when watermarks follow the records.

        Args:
            interval: 0, the default: right behind each record that advances event time. Above 0, as in PyFlink:
                at the end of each epoch; a record is then never late because of one in its own epoch. The number
                of milliseconds has no other effect.

        Raises:
            BadSetting: If the interval is negative.
        """
        if interval < 0:
            raise BadSetting(f"The auto watermark interval must not be negative, but is {interval} ms.")
        self._env.get_configuration().set_string(AUTO_WATERMARK_INTERVAL.key, f"{interval} ms")
        return self

    def get_auto_watermark_interval(self) -> int:
        """Return the interval in milliseconds; see ``set_auto_watermark_interval``."""
        return self._env.get_configuration().get(AUTO_WATERMARK_INTERVAL)

    def set_restart_strategy(self, restart_strategy_configuration: RestartStrategyConfiguration) -> ExecutionConfig:
        """Set what the job does after a failure, like ``env.set_restart_strategy``.

        Args:
            restart_strategy_configuration: A strategy created with ``RestartStrategies``.
        """
        self._env.set_restart_strategy(restart_strategy_configuration)
        return self

    def get_restart_strategy(self) -> RestartStrategyConfiguration:
        """Return what the job does after a failure."""
        return self._env.get_restart_strategy()

    def get_global_job_parameters(self) -> dict[str, str]:
        """Return the parameters that every function can read from its runtime context."""
        return self._env.get_configuration().get(GLOBAL_JOB_PARAMETERS) or dict(self._job_parameters)

    def set_global_job_parameters(self, global_job_parameters_dict: Mapping[str, Any]) -> ExecutionConfig:
        """Set the parameters that functions read with ``RuntimeContext.get_job_parameter``, replacing earlier ones."""
        parameters = {key: str(value) for key, value in global_job_parameters_dict.items()}
        self._env.get_configuration().remove_config(GLOBAL_JOB_PARAMETERS.key)
        self._job_parameters.clear()
        self._job_parameters.update(parameters)
        return self

    def _compared(self) -> tuple[Any, ...]:
        return self._env.get_configuration(), self.get_global_job_parameters(), self._tuning.values()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExecutionConfig) and self._compared() == other._compared()

    def __hash__(self) -> int:
        return hash(self._env.get_configuration())


__all__ = ["ExecutionConfig"]
