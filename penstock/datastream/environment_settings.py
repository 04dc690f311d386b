"""Environment methods that read and change settings."""

from __future__ import annotations

from typing import Self

from penstock.common.configuration import Configuration
from penstock.common.options import canonical, check_keys, check_values
from penstock.common.options.checkpoints import CHECKPOINT_INTERVAL, CHECKPOINTING_MODE, SAVEPOINTS_DIRECTORY
from penstock.common.options.program import MAX_PARALLELISM, MOST_KEY_GROUPS, OPERATOR_CHAINING, RUNTIME_MODE
from penstock.common.overridden import ProgramConfiguration
from penstock.common.restart_strategy import RestartStrategyConfiguration, configured_strategy
from penstock.datastream.checkpoint_config import checkpointing_mode
from penstock.datastream.checkpointing_mode import CheckpointingMode
from penstock.datastream.execution_mode import RuntimeExecutionMode
from penstock.datastream.state_backend import StateBackend
from penstock.driver.checkpoint_settings import checkpoint_interval
from penstock.graph.logical import GraphError, check_positive


class EnvironmentSettings:
    """The methods of ``StreamExecutionEnvironment`` that only read or change its configuration."""

    _configuration: ProgramConfiguration

    def configure(self, configuration: Configuration) -> None:
        """Add settings to the environment.

        Args:
            configuration: The settings to add.

        Raises:
            BadSetting: If a key is unknown or a value is invalid for its key.
        """
        check_keys(configuration.key_set())
        check_values(configuration.to_dict())
        self._configuration.add_all(Configuration.from_dict(canonical(configuration.to_dict())))

    def get_configuration(self) -> Configuration:
        """Return the live settings of the environment. Changes to them take effect."""
        return self._configuration

    def set_max_parallelism(self, max_parallelism: int) -> Self:
        """Set the number of key groups, which is the largest parallelism keyed state can ever have.

        Args:
            max_parallelism: The number of key groups.

        Raises:
            GraphError: If the number is out of range.
        """
        if not 1 <= max_parallelism <= MOST_KEY_GROUPS:
            raise GraphError(f"The max parallelism must be between 1 and {MOST_KEY_GROUPS}, not {max_parallelism!r}.")
        self._configuration.set_integer(MAX_PARALLELISM.key, max_parallelism)
        return self

    def get_max_parallelism(self) -> int:
        """Return the number of key groups, or -1 if it is derived from the parallelism."""
        return self._configuration.get(MAX_PARALLELISM) or -1

    def set_runtime_mode(self, execution_mode: RuntimeExecutionMode) -> Self:
        """Set the runtime mode.

        Args:
            execution_mode: ``STREAMING``, ``BATCH`` or ``AUTOMATIC``; see ``RuntimeExecutionMode``.
        """
        self._configuration.set_string(RUNTIME_MODE.key, execution_mode.name)
        return self

    def disable_operator_chaining(self) -> Self:
        """Put an exchange between all operators instead of fusing them into chains."""
        self._configuration.set_boolean(OPERATOR_CHAINING.key, False)
        return self

    def is_chaining_enabled(self) -> bool:
        """Return whether operators are fused into chains."""
        return self._configuration.get(OPERATOR_CHAINING)

    def enable_checkpointing(self, interval: int, mode: CheckpointingMode | None = None) -> Self:
        """Take a checkpoint at regular intervals. After a failure, the job restores the last one.

        Args:
            interval: The time between checkpoints, in milliseconds.
            mode: Whether sinks commit exactly once or at least once. By default the configured mode applies.
        """
        check_positive(interval, "checkpoint interval (milliseconds)")
        self._configuration.set_string(CHECKPOINT_INTERVAL.key, f"{interval} ms")
        if mode is not None:
            self._configuration.set_string(CHECKPOINTING_MODE.key, mode.name)
        return self

    def get_checkpoint_interval(self) -> int:
        """Return the checkpoint interval in milliseconds, or -1 if checkpointing is off."""
        return checkpoint_interval(self._configuration)

    def get_checkpointing_mode(self) -> CheckpointingMode:
        """Return whether sinks commit exactly once or at least once."""
        return checkpointing_mode(self._configuration)

    def get_checkpointing_consistency_mode(self) -> CheckpointingMode:
        """Return the same as ``get_checkpointing_mode``."""
        return self.get_checkpointing_mode()

    def set_restart_strategy(self, restart_strategy_configuration: RestartStrategyConfiguration) -> None:
        """Set what the job does after a failure; docs/operate/recovery.md describes the default.

        Args:
            restart_strategy_configuration: A strategy created with ``RestartStrategies``.
        """
        self._configuration.add_all(Configuration.from_dict(restart_strategy_configuration.settings()))

    def get_restart_strategy(self) -> RestartStrategyConfiguration:
        """Return what the job does after a failure."""
        return configured_strategy(self._configuration)

    def set_state_backend(self, state_backend: StateBackend) -> Self:
        """Set where workers keep state while the job runs.

        Args:
            state_backend: The backend, for example ``EmbeddedRocksDBStateBackend()``.
        """
        self._configuration.add_all(Configuration.from_dict(state_backend.settings()))
        return self

    def set_default_savepoint_directory(self, directory: str) -> Self:
        """Set where savepoints are written if a command does not specify a directory.

        Args:
            directory: A path, or a URI such as ``s3://bucket/path``.
        """
        self._configuration.set_string(SAVEPOINTS_DIRECTORY.key, directory)
        return self

    def get_default_savepoint_directory(self) -> str | None:
        """Return the default savepoint directory, or None if it is not set."""
        return self._configuration.get(SAVEPOINTS_DIRECTORY) or None

    def is_chaining_of_operators_with_different_max_parallelism_enabled(self) -> bool:
        """Return True. Only an operator after an exchange has key groups, so a max parallelism never splits a chain."""
        return True
