"""Checkpoint storage: where checkpoints go, apart from the state backend."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any
from urllib.parse import urlsplit

from penstock.absent import explain_absent
from penstock.common.options.checkpoints import CHECKPOINT_STORAGE, CHECKPOINTS_DIRECTORY
from penstock.common.options.state import MAX_STATE_SIZE
from penstock.common.without_effect import note
from penstock.errors import PenstockError

__all__ = ["CheckpointStorage", "CustomCheckpointStorage", "FileSystemCheckpointStorage", "JobManagerCheckpointStorage"]

_THRESHOLD, _BUFFER = 20 * 1024, 4096
_FORMAT = "blocks of state have their own format and sizes"


class CheckpointStorage(ABC):
    """Where checkpoints go. Pass one to ``env.get_checkpoint_config().set_checkpoint_storage(...)``."""

    @abstractmethod
    def settings(self) -> dict[str, str | None]:
        """Return the settings that select this storage; None removes one."""


class JobManagerCheckpointStorage(CheckpointStorage):
    """Keeps checkpoints and state in memory: checkpoints in that of the driver, which they do not outlive.

    Use it for small state and experiments.

    Args:
        checkpoint_path: Where Flink would write metadata. It has no effect.
        max_state_size: The largest state of one operator, in bytes.
    """

    DEFAULT_MAX_STATE_SIZE = MAX_STATE_SIZE.default

    def __init__(self, checkpoint_path: str | None = None, max_state_size: int | None = None) -> None:
        self._path = checkpoint_path
        self._max_state_size = self.DEFAULT_MAX_STATE_SIZE if max_state_size is None else max_state_size
        if checkpoint_path is not None:
            note("JobManagerCheckpointStorage(checkpoint_path)", "the driver's memory also holds the metadata")

    def get_checkpoint_path(self) -> str | None:
        """Return the path that the program passed, or None."""
        return None if self._path is None else _flink_path(self._path)

    def get_max_state_size(self) -> int:
        """Return the largest state of one operator, in bytes."""
        return self._max_state_size

    def get_savepoint_path(self) -> str | None:
        """Return None: ``env.set_default_savepoint_directory`` sets where savepoints go."""
        return None

    def settings(self) -> dict[str, str | None]:
        """Return the settings that select this storage."""
        return {
            CHECKPOINT_STORAGE.key: "jobmanager",
            CHECKPOINTS_DIRECTORY.key: None,
            MAX_STATE_SIZE.key: str(self._max_state_size),
        }

    def __str__(self) -> str:
        return f"JobManagerCheckpointStorage (checkpoints to JobManager) ( maxStateSize: {self._max_state_size})"


class FileSystemCheckpointStorage(CheckpointStorage):
    """Writes checkpoints as files.

    Args:
        checkpoint_path: The directory: a path, or a URI such as ``s3://bucket/path``.
        file_state_size_threshold: Has no effect. Flink stores smaller state with the metadata.
        write_buffer_size: Has no effect.

    Raises:
        ValueError: If the path is None, or the threshold is not between -1 and 1 MiB.
    """

    MAX_FILE_STATE_THRESHOLD = 1024 * 1024

    def __init__(
        self, checkpoint_path: str, file_state_size_threshold: int | None = None, write_buffer_size: int = -1
    ) -> None:
        if checkpoint_path is None:
            raise ValueError("A FileSystemCheckpointStorage needs a checkpoint_path.")
        threshold = -1 if file_state_size_threshold is None else file_state_size_threshold
        if not -1 <= threshold <= self.MAX_FILE_STATE_THRESHOLD:
            raise ValueError(
                f"file_state_size_threshold must be between -1 and {self.MAX_FILE_STATE_THRESHOLD:,}, not "
                f"{threshold:,}."
            )
        if (threshold, write_buffer_size) != (-1, -1):
            note("FileSystemCheckpointStorage(file_state_size_threshold, write_buffer_size)", _FORMAT)
        self._path = checkpoint_path
        self._threshold = _THRESHOLD if threshold == -1 else threshold
        self._buffer = _BUFFER if write_buffer_size == -1 else write_buffer_size

    def get_checkpoint_path(self) -> str:
        """Return the directory. As in Flink, ``file:///path`` is returned as ``file:/path``."""
        return _flink_path(self._path)

    def get_savepoint_path(self) -> str | None:
        """Return None: ``env.set_default_savepoint_directory`` sets where savepoints go."""
        return None

    def get_min_file_size_threshold(self) -> int:
        """Return the threshold that the program passed."""
        return self._threshold

    def get_write_buffer_size(self) -> int:
        """Return the buffer size that the program passed."""
        return self._buffer

    def settings(self) -> dict[str, str | None]:
        """Return the settings that select this storage."""
        return {CHECKPOINT_STORAGE.key: "filesystem", CHECKPOINTS_DIRECTORY.key: self._path}


class CustomCheckpointStorage(CheckpointStorage):
    """Flink's wrapper of a Java storage, which Penstock refuses.

    Raises:
        PenstockError: Always.
    """

    def __init__(self, j_custom_checkpoint_storage: Any = None) -> None:
        raise PenstockError(
            "CustomCheckpointStorage wraps a Java object, which Penstock cannot use.",
            fix="Use FileSystemCheckpointStorage(path) with a path, or a URI that fsspec knows.",
        )

    def settings(self) -> dict[str, str | None]:
        """Return nothing."""
        return {}


def _flink_path(uri: str) -> str:
    parts = urlsplit(uri)
    path = parts.path.rstrip("/") or parts.path
    if parts.scheme and not parts.netloc:
        return f"{parts.scheme}:{path}"
    return f"{parts.scheme}://{parts.netloc}{path}" if parts.scheme else uri


explain_absent(__name__)
