"""Where state lives while a job runs, and where its checkpoints go."""

from __future__ import annotations

from abc import ABC, abstractmethod

from penstock.absent import explain_absent
from penstock.common.options.checkpoints import CHECKPOINTS_DIRECTORY
from penstock.common.options.state import (
    ASYNCHRONOUS_SNAPSHOTS,
    LOCAL_DIRECTORIES,
    MAX_STATE_SIZE,
    STATE_BACKEND,
    TRANSFER_THREADS,
)
from penstock.errors import PenstockError

_FRAME_LIMIT = 10 * 1024 * 1024


class StateBackend(ABC):
    """Where workers keep state while a job runs."""

    @abstractmethod
    def settings(self) -> dict[str, str]:
        """The configuration keys this backend stands for; what the program sets wins over the configuration file."""


class MemoryStateBackend(StateBackend):
    """State in the workers' memory, checkpoints in the driver's. For small state and for trying things out."""

    DEFAULT_MAX_STATE_SIZE = MAX_STATE_SIZE.default

    def __init__(
        self, max_state_size: int | None = None, using_asynchronous_snapshots: bool = ASYNCHRONOUS_SNAPSHOTS.default
    ) -> None:
        self.max_state_size = self.DEFAULT_MAX_STATE_SIZE if max_state_size is None else max_state_size
        if not 0 < self.max_state_size <= _FRAME_LIMIT:
            raise PenstockError(
                f"max_state_size must be between 1 and {_FRAME_LIMIT:,} bytes, not {self.max_state_size:,}: the driver "
                f"holds it. For larger state use FsStateBackend."
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
    """State memory-mapped on local disk, checkpoints as files below `checkpoint_directory_uri`."""

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
    """State in the workers' memory, checkpoints in files where `state.checkpoints.dir` is set."""

    def settings(self) -> dict[str, str]:
        """Return the settings that select this backend."""
        return {STATE_BACKEND.key: "hashmap"}


class EmbeddedRocksDBStateBackend(StateBackend):
    """State in RocksDB on local disk: it may be far larger than memory. Checkpoints go to `state.checkpoints.dir`."""

    def __init__(self, enable_incremental_checkpointing: bool | None = None) -> None:
        if enable_incremental_checkpointing is False:
            raise PenstockError(
                "Checkpoints of Penstock are always incremental: what changed is written, and bases are made of it in "
                "the background.",
                fix="Leave enable_incremental_checkpointing out.",
            )
        self._paths: list[str] = []
        self._threads = TRANSFER_THREADS.default

    def set_db_storage_paths(self, *paths: str) -> None:
        """Local directories for replicas; several spread them over disks."""
        self._paths = list(paths)

    def get_db_storage_paths(self) -> list[str] | None:
        """Return the local directories of replicas, or None for the default."""
        return self._paths or None

    def is_incremental_checkpoints_enabled(self) -> bool:
        """Return True: every checkpoint holds only what has changed."""
        return True

    def get_number_of_transfer_threads(self) -> int:
        """Return how many files a task fetches at a time when it builds a replica."""
        return self._threads

    def set_number_of_transfer_threads(self, number_of_transfering_threads: int) -> None:
        """Set how many files a task fetches at a time when it builds a replica."""
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
    """The same, with the checkpoint directory in one call."""

    def __init__(self, checkpoint_data_uri: str, enable_incremental_checkpointing: bool | None = None) -> None:
        super().__init__(enable_incremental_checkpointing)
        self.checkpoint_data_uri = checkpoint_data_uri

    def settings(self) -> dict[str, str]:
        """Return the settings that select this backend."""
        return super().settings() | {CHECKPOINTS_DIRECTORY.key: self.checkpoint_data_uri}


class CustomStateBackend(StateBackend):
    """A backend of one's own: the import path of an `EngineFactory`, as `package.module:Class`."""

    def __init__(self, factory: str) -> None:
        self.factory = factory

    def settings(self) -> dict[str, str]:
        """Return the settings that select this backend."""
        return {STATE_BACKEND.key: self.factory}


def _snapshots(asynchronous: bool) -> dict[str, str]:
    return {} if asynchronous else {ASYNCHRONOUS_SNAPSHOTS.key: "false"}


explain_absent(__name__)
