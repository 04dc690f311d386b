"""Where state lives while a job runs, and where its checkpoints go."""

from __future__ import annotations

from abc import ABC, abstractmethod

from penstock.absent import explain_absent
from penstock.errors import PenstockError

_FRAME_LIMIT = 10 * 1024 * 1024


class StateBackend(ABC):
    @abstractmethod
    def settings(self) -> dict[str, str]:
        """The configuration keys this backend stands for; what the program sets wins over the configuration file."""


class MemoryStateBackend(StateBackend):
    """State in the workers' memory, checkpoints in the driver's. For small state and for trying things out."""

    DEFAULT_MAX_STATE_SIZE = 5 * 1024 * 1024

    def __init__(self, max_state_size: int | None = None, using_asynchronous_snapshots: bool = True) -> None:
        self.max_state_size = self.DEFAULT_MAX_STATE_SIZE if max_state_size is None else max_state_size
        if not 0 < self.max_state_size <= _FRAME_LIMIT:
            raise PenstockError(
                f"max_state_size must be between 1 and {_FRAME_LIMIT:,} bytes, not {self.max_state_size:,}: the driver "
                f"holds it. For larger state use FsStateBackend."
            )
        self.using_asynchronous_snapshots = using_asynchronous_snapshots

    def settings(self) -> dict[str, str]:
        return {"state.backend": "memory", "state.backend.memory.max-state-size": str(self.max_state_size)}


class FsStateBackend(StateBackend):
    """State memory-mapped on local disk, checkpoints as files below `checkpoint_directory_uri`."""

    def __init__(self, checkpoint_directory_uri: str, using_asynchronous_snapshots: bool = True) -> None:
        self.checkpoint_directory_uri = checkpoint_directory_uri
        self.using_asynchronous_snapshots = using_asynchronous_snapshots

    def settings(self) -> dict[str, str]:
        return {"state.backend": "filesystem", "state.checkpoints.dir": self.checkpoint_directory_uri}


explain_absent(__name__)
