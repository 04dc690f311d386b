"""State backends: where state lives while a job runs, and where its checkpoints go."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum

from penstock.absent import explain_absent
from penstock.common.options.checkpoints import CHECKPOINTS_DIRECTORY
from penstock.common.options.state import (
    ASYNCHRONOUS_SNAPSHOTS,
    LOCAL_DIRECTORIES,
    MAX_STATE_SIZE,
    STATE_BACKEND,
    TRANSFER_THREADS,
)
from penstock.common.tuning import accept
from penstock.errors import PenstockError

_FRAME_LIMIT = 10 * 1024 * 1024


class StateBackend(ABC):
    """Where workers keep state while a job runs. Pass one to ``env.set_state_backend``."""

    @abstractmethod
    def settings(self) -> dict[str, str]:
        """Return the settings that select this backend. They override those of the configuration file."""


class MemoryStateBackend(StateBackend):
    """Keeps state in the workers' memory and checkpoints in the driver's memory.

    Use it for small state and experiments. Checkpoints do not outlive the driver.

    Args:
        max_state_size: The largest state of one operator, in bytes.
        using_asynchronous_snapshots: Whether to build bases and remove files in the background, outside the epoch.

    Raises:
        PenstockError: If ``max_state_size`` is out of range.
    """

    DEFAULT_MAX_STATE_SIZE = MAX_STATE_SIZE.default

    def __init__(
        self, max_state_size: int | None = None, using_asynchronous_snapshots: bool = ASYNCHRONOUS_SNAPSHOTS.default
    ) -> None:
        self.max_state_size = self.DEFAULT_MAX_STATE_SIZE if max_state_size is None else max_state_size
        if not 0 < self.max_state_size <= _FRAME_LIMIT:
            raise PenstockError(
                f"max_state_size must be between 1 and {_FRAME_LIMIT:,} bytes, not {self.max_state_size:,}, because "
                f"the driver holds it in memory. For larger state use FsStateBackend."
            )
        self.using_asynchronous_snapshots = using_asynchronous_snapshots

    def settings(self) -> dict[str, str]:
        """Return the settings that select this backend."""
        return {
            STATE_BACKEND.key: "memory",
            MAX_STATE_SIZE.key: str(self.max_state_size),
            **_snapshots(self.using_asynchronous_snapshots),
        }


class FsStateBackend(StateBackend):
    """Keeps state memory-mapped on local disk and checkpoints as files.

    Args:
        checkpoint_directory_uri: The directory for checkpoints: a path, or a URI such as ``s3://bucket/path``.
        using_asynchronous_snapshots: Whether to build bases and remove files in the background, outside the epoch.
    """

    def __init__(
        self, checkpoint_directory_uri: str, using_asynchronous_snapshots: bool = ASYNCHRONOUS_SNAPSHOTS.default
    ) -> None:
        self.checkpoint_directory_uri = checkpoint_directory_uri
        self.using_asynchronous_snapshots = using_asynchronous_snapshots

    def settings(self) -> dict[str, str]:
        """Return the settings that select this backend."""
        return {
            STATE_BACKEND.key: "filesystem",
            CHECKPOINTS_DIRECTORY.key: self.checkpoint_directory_uri,
            **_snapshots(self.using_asynchronous_snapshots),
        }


class HashMapStateBackend(StateBackend):
    """Keeps state in the workers' memory, and checkpoints as files if ``state.checkpoints.dir`` is set."""

    def settings(self) -> dict[str, str]:
        """Return the settings that select this backend."""
        return {STATE_BACKEND.key: "hashmap"}


class PredefinedOptions(Enum):
    """Flink's sets of RocksDB options, which have no effect here."""

    DEFAULT = 0
    SPINNING_DISK_OPTIMIZED = 1
    SPINNING_DISK_OPTIMIZED_HIGH_MEM = 2
    FLASH_SSD_OPTIMIZED = 3


class EmbeddedRocksDBStateBackend(StateBackend):
    """Keeps state in RocksDB on local disk, so it can exceed memory. Checkpoints go to ``state.checkpoints.dir``.

    Args:
        enable_incremental_checkpointing: The value that ``is_incremental_checkpoints_enabled`` returns. It has no
            effect: checkpoints are always incremental.
    """

    def __init__(self, enable_incremental_checkpointing: bool | None = None) -> None:
        if enable_incremental_checkpointing is False:
            accept("EmbeddedRocksDBStateBackend(False)")
        self._incremental = enable_incremental_checkpointing is not False
        self._predefined = PredefinedOptions.DEFAULT
        self._options: str | None = None
        self._paths: list[str] = []
        self._threads = TRANSFER_THREADS.default

    def set_db_storage_paths(self, *paths: str) -> None:
        """Set the local directories for replicas.

        Args:
            paths: The directories. Several spread replicas over disks.
        """
        self._paths = list(paths)

    def get_db_storage_paths(self) -> list[str] | None:
        """Return the local directories for replicas, or None for the default."""
        return self._paths or None

    def is_incremental_checkpoints_enabled(self) -> bool:
        """Return False if the program disabled incremental checkpoints. Each checkpoint holds only the changes."""
        return self._incremental

    def set_predefined_options(self, options: PredefinedOptions) -> None:
        """Accept the call without effect: RocksDB is tuned for replicas, and settings determine its memory.

        Args:
            options: The value that the getter returns.
        """
        accept("EmbeddedRocksDBStateBackend.set_predefined_options")
        self._predefined = PredefinedOptions(options)

    def get_predefined_options(self) -> PredefinedOptions:
        """Return the options that the program set."""
        return self._predefined

    def set_options(self, options_factory_class_name: str) -> None:
        """Accept the call without effect: Java classes do not configure RocksDB here.

        Args:
            options_factory_class_name: The value that the getter returns.
        """
        accept("EmbeddedRocksDBStateBackend.set_options")
        self._options = options_factory_class_name

    def get_options(self) -> str | None:
        """Return the class name that the program set, or None."""
        return self._options

    def get_number_of_transfer_threads(self) -> int:
        """Return how many files a task fetches concurrently when it builds a replica."""
        return self._threads

    def set_number_of_transfer_threads(self, number_of_transfering_threads: int) -> None:
        """Set how many files a task fetches concurrently when it builds a replica.

        Args:
            number_of_transfering_threads: The number of threads.

        Raises:
            PenstockError: If the number is below 1.
        """
        if number_of_transfering_threads < 1:
            raise PenstockError(
                f"The number of transfer threads must be at least 1, not {number_of_transfering_threads}."
            )
        self._threads = number_of_transfering_threads

    def settings(self) -> dict[str, str]:
        """Return the settings that select this backend."""
        settings = {STATE_BACKEND.key: "rocksdb", TRANSFER_THREADS.key: str(self._threads)}
        if self._paths:
            settings[LOCAL_DIRECTORIES.key] = ",".join(self._paths)
        return settings


class RocksDBStateBackend(EmbeddedRocksDBStateBackend):
    """An ``EmbeddedRocksDBStateBackend`` that also sets the checkpoint directory.

    Args:
        checkpoint_data_uri: The directory for checkpoints: a path, or a URI such as ``s3://bucket/path``.
        enable_incremental_checkpointing: See ``EmbeddedRocksDBStateBackend``.
    """

    def __init__(self, checkpoint_data_uri: str, enable_incremental_checkpointing: bool | None = None) -> None:
        super().__init__(enable_incremental_checkpointing)
        self.checkpoint_data_uri = checkpoint_data_uri

    def settings(self) -> dict[str, str]:
        """Return the settings that select this backend."""
        return super().settings() | {CHECKPOINTS_DIRECTORY.key: self.checkpoint_data_uri}


class CustomStateBackend(StateBackend):
    """A user-defined state backend.

    Args:
        factory: The import path of an ``EngineFactory``, as ``package.module:Class``.
    """

    def __init__(self, factory: str) -> None:
        self.factory = factory

    def settings(self) -> dict[str, str]:
        """Return the settings that select this backend."""
        return {STATE_BACKEND.key: self.factory}


def _snapshots(asynchronous: bool) -> dict[str, str]:
    return {} if asynchronous else {ASYNCHRONOUS_SNAPSHOTS.key: "false"}


explain_absent(__name__)
