"""The checkpoint settings of a program as an object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.absent import explain_absent
from penstock.common.configuration import Configuration
from penstock.common.options import BadSetting, Option
from penstock.common.options.checkpoints import (
    CHECKPOINT_INTERVAL,
    CHECKPOINT_RETENTION,
    CHECKPOINT_STORAGE,
    CHECKPOINT_TIMEOUT,
    CHECKPOINTING_MODE,
    CHECKPOINTS_DIRECTORY,
    MIN_PAUSE,
    TOLERABLE_FAILED_CHECKPOINTS,
)
from penstock.common.options.state import MAX_STATE_SIZE
from penstock.common.restart_strategy import Length
from penstock.common.setting_types import MOST_WHOLE
from penstock.common.time import to_millis
from penstock.common.tuning import CONCURRENT_CHECKPOINTS
from penstock.datastream.checkpoint_storage import (
    CheckpointStorage,
    FileSystemCheckpointStorage,
    JobManagerCheckpointStorage,
)
from penstock.datastream.checkpoint_tuning import CheckpointTuning
from penstock.datastream.checkpointing_mode import CheckpointingMode
from penstock.datastream.externalized_checkpoint_retention import (
    ExternalizedCheckpointCleanup,
    ExternalizedCheckpointRetention,
)

if TYPE_CHECKING:
    from penstock.datastream.environment import StreamExecutionEnvironment


def checkpointing_mode(configuration: Configuration) -> CheckpointingMode:
    """Return the checkpointing mode of a configuration."""
    return CheckpointingMode[configuration.get(CHECKPOINTING_MODE)]


class CheckpointConfig(CheckpointTuning):
    """A view of the environment's checkpoint settings; see docs/operate/checkpoints.md.

    ``env.get_checkpoint_config()`` returns it. Each setter changes the environment.
    """

    DEFAULT_MODE = CheckpointingMode[CHECKPOINTING_MODE.default]
    DEFAULT_TIMEOUT = CHECKPOINT_TIMEOUT.default
    DEFAULT_MIN_PAUSE_BETWEEN_CHECKPOINTS = MIN_PAUSE.default
    DEFAULT_MAX_CONCURRENT_CHECKPOINTS = CONCURRENT_CHECKPOINTS.default

    def __init__(self, env: StreamExecutionEnvironment) -> None:
        self._env = env
        self._configuration = env.get_configuration()
        self._tuning = env._tuning

    def is_checkpointing_enabled(self) -> bool:
        """Return whether a checkpoint interval is set."""
        return self.get_checkpoint_interval() > 0

    def get_checkpointing_mode(self) -> CheckpointingMode:
        """Return whether sinks commit exactly once or at least once."""
        return checkpointing_mode(self._configuration)

    def set_checkpointing_mode(self, checkpointing_mode: CheckpointingMode) -> CheckpointConfig:
        """Set whether sinks commit exactly once or at least once.

        Args:
            checkpointing_mode: The mode.
        """
        self._configuration.set_string(CHECKPOINTING_MODE.key, checkpointing_mode.name)
        return self

    def get_checkpoint_interval(self) -> int:
        """Return the checkpoint interval in milliseconds, or -1 if checkpointing is off."""
        return self._env.get_checkpoint_interval()

    def set_checkpoint_interval(self, checkpoint_interval: Length) -> CheckpointConfig:
        """Set the time between checkpoints, which enables checkpointing.

        Args:
            checkpoint_interval: The interval. An int is milliseconds.

        Raises:
            BadSetting: If the interval is shorter than 1 ms.
        """
        return self._set_length(CHECKPOINT_INTERVAL, checkpoint_interval, 1)

    def get_checkpoint_timeout(self) -> int:
        """Return the time after which a checkpoint expires, in milliseconds."""
        return self._configuration.get(CHECKPOINT_TIMEOUT)

    def set_checkpoint_timeout(self, checkpoint_timeout: Length) -> CheckpointConfig:
        """Set the longest time from the trigger of a checkpoint to its completion. Slower checkpoints expire.

        Args:
            checkpoint_timeout: The timeout. An int is milliseconds.

        Raises:
            BadSetting: If the timeout is shorter than 1 ms.
        """
        return self._set_length(CHECKPOINT_TIMEOUT, checkpoint_timeout, 1)

    def get_min_pause_between_checkpoints(self) -> int:
        """Return the shortest time from the end of a checkpoint to the next barrier, in milliseconds."""
        return self._configuration.get(MIN_PAUSE)

    def set_min_pause_between_checkpoints(self, min_pause_between_checkpoints: Length) -> CheckpointConfig:
        """Set the shortest time from the end of a checkpoint to the trigger of the next one.

        Args:
            min_pause_between_checkpoints: The pause. An int is milliseconds.

        Raises:
            BadSetting: If the pause is negative.
        """
        return self._set_length(MIN_PAUSE, min_pause_between_checkpoints, 0)

    def is_fail_on_checkpointing_errors(self) -> bool:
        """Return whether the first failed checkpoint fails the job."""
        return self.get_tolerable_checkpoint_failure_number() == 0

    def set_fail_on_checkpointing_errors(self, fail_on_checkpointing_errors: bool) -> CheckpointConfig:
        """Set whether the first failed checkpoint fails the job.

        Args:
            fail_on_checkpointing_errors: If False, an epoch whose checkpoint fails is retried without limit.
        """
        return self.set_tolerable_checkpoint_failure_number(0 if fail_on_checkpointing_errors else MOST_WHOLE)

    def get_tolerable_checkpoint_failure_number(self) -> int:
        """Return how many times an epoch is retried after its checkpoint fails."""
        return self._configuration.get(TOLERABLE_FAILED_CHECKPOINTS)

    def set_tolerable_checkpoint_failure_number(self, tolerable_checkpoint_failure_number: int) -> CheckpointConfig:
        """Set how many times the checkpoint of one epoch can expire or be declined before the job fails over.

        Args:
            tolerable_checkpoint_failure_number: The number of failures. The next one triggers the restart strategy.

        Raises:
            BadSetting: If the number is negative.
        """
        if tolerable_checkpoint_failure_number < 0:
            raise BadSetting(
                f"The number of tolerable failures must not be negative, but is {tolerable_checkpoint_failure_number}."
            )
        self._configuration.set_integer(TOLERABLE_FAILED_CHECKPOINTS.key, tolerable_checkpoint_failure_number)
        return self

    def set_externalized_checkpoint_retention(
        self, retention_mode: ExternalizedCheckpointRetention
    ) -> CheckpointConfig:
        """Set whether to keep the checkpoints of a job that has ended.

        Args:
            retention_mode: The retention policy.
        """
        self._configuration.set_string(CHECKPOINT_RETENTION.key, retention_mode.name)
        return self

    def enable_externalized_checkpoints(
        self, cleanup_mode: ExternalizedCheckpointCleanup | ExternalizedCheckpointRetention
    ) -> CheckpointConfig:
        """Set the retention policy, under the name that the method has in PyFlink 1.

        Args:
            cleanup_mode: The retention policy.
        """
        return self.set_externalized_checkpoint_cleanup(cleanup_mode)

    def set_externalized_checkpoint_cleanup(
        self, cleanup_mode: ExternalizedCheckpointCleanup | ExternalizedCheckpointRetention
    ) -> CheckpointConfig:
        """Set the retention policy, under the name that the method has in PyFlink 1.

        Args:
            cleanup_mode: The retention policy.
        """
        mode = cleanup_mode
        name = (mode if isinstance(mode, ExternalizedCheckpointRetention) else ExternalizedCheckpointCleanup(mode)).name
        return self.set_externalized_checkpoint_retention(ExternalizedCheckpointRetention[name])

    def get_externalized_checkpoint_cleanup(self) -> ExternalizedCheckpointCleanup:
        """Return the retention policy, under the name that the method has in PyFlink 1."""
        return ExternalizedCheckpointCleanup[self._retention().name]

    def set_checkpoint_storage(self, storage: CheckpointStorage) -> CheckpointConfig:
        """Set where checkpoints go.

        Args:
            storage: ``FileSystemCheckpointStorage(path)`` or ``JobManagerCheckpointStorage()``.

        Raises:
            BadSetting: If it is neither.
        """
        if not isinstance(storage, CheckpointStorage):
            raise BadSetting(
                f"set_checkpoint_storage needs a CheckpointStorage, not {type(storage).__name__}.",
                fix="Pass FileSystemCheckpointStorage(path), or call set_checkpoint_storage_dir(path).",
            )
        for key, value in storage.settings().items():
            if value is None:
                self._configuration.remove_config(key)
            else:
                self._configuration.set_string(key, value)
        return self

    def set_checkpoint_storage_dir(self, checkpoint_path: str) -> CheckpointConfig:
        """Set the directory for checkpoints.

        Args:
            checkpoint_path: A path, or a URI such as ``s3://bucket/path``.
        """
        return self.set_checkpoint_storage(FileSystemCheckpointStorage(checkpoint_path))

    def get_checkpoint_storage(self) -> CheckpointStorage | None:
        """Return where checkpoints go, or None if neither the program nor a setting says so."""
        if self._configuration.get(CHECKPOINT_STORAGE) == "jobmanager":
            return JobManagerCheckpointStorage(max_state_size=self._configuration.get(MAX_STATE_SIZE))
        directory = self._configuration.get(CHECKPOINTS_DIRECTORY)
        return FileSystemCheckpointStorage(directory) if directory else None

    def is_externalized_checkpoints_enabled(self) -> bool:
        """Return whether a retention policy for externalized checkpoints is set."""
        return self._retention() is not ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS

    def get_externalized_checkpoint_retention(self) -> ExternalizedCheckpointRetention:
        """Return the retention policy."""
        return self._retention()

    def _retention(self) -> ExternalizedCheckpointRetention:
        return ExternalizedCheckpointRetention[self._configuration.get(CHECKPOINT_RETENTION)]

    def _set_length(self, option: Option[Any], length: Length, least: int) -> CheckpointConfig:
        milliseconds = to_millis(length)
        if milliseconds < least:
            raise BadSetting(f"{option.key} must be at least {least} ms, but is {milliseconds} ms.")
        self._configuration.set_string(option.key, f"{milliseconds} ms")
        return self


explain_absent(__name__)
