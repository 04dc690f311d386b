"""Rolling policies: when to close a part file."""

from __future__ import annotations

from abc import ABC, abstractmethod

from penstock.errors import PenstockError


class RollingPolicy(ABC):
    """Decides when to close an open part file, so that the next checkpoint makes it visible."""

    part_size: int | None = None
    """Size in bytes at which a part is closed immediately, even within an epoch; None for no limit."""

    @abstractmethod
    def rolls(self, created: int, written: int, now: int) -> bool:
        """Return whether to close a part. Called at the end of every epoch.

        Args:
            created: Processing time of the epoch that opened the part, in milliseconds.
            written: Processing time of the last epoch that wrote to it.
            now: Processing time of the current epoch.
        """

    @staticmethod
    def default_rolling_policy(
        part_size: int = 128 * 1024 * 1024, rollover_interval: int = 60 * 1000, inactivity_interval: int = 60 * 1000
    ) -> DefaultRollingPolicy:
        """Return a policy that closes parts by size, age and inactivity; intervals in milliseconds."""
        return DefaultRollingPolicy(part_size, rollover_interval, inactivity_interval)

    @staticmethod
    def on_checkpoint_rolling_policy() -> OnCheckpointRollingPolicy:
        """Return a policy that closes all parts at every checkpoint."""
        return OnCheckpointRollingPolicy()


class DefaultRollingPolicy(RollingPolicy):
    """Closes a part by size, age or inactivity.

    Args:
        part_size: Maximum size in bytes.
        rollover_interval: Maximum age in milliseconds.
        inactivity_interval: Maximum time without a record, in milliseconds.
    """

    def __init__(self, part_size: int, rollover_interval: int, inactivity_interval: int) -> None:
        given = (
            ("part_size", part_size),
            ("rollover_interval", rollover_interval),
            ("inactivity_interval", inactivity_interval),
        )
        for name, value in given:
            if type(value) is not int or value < 1:
                raise PenstockError(f"default_rolling_policy: {name} must be a positive int, not {value!r}.")
        self.part_size = part_size
        self._rollover_interval = rollover_interval
        self._inactivity_interval = inactivity_interval

    def rolls(self, created: int, written: int, now: int) -> bool:
        return now - created >= self._rollover_interval or now - written >= self._inactivity_interval


class OnCheckpointRollingPolicy(RollingPolicy):
    """Closes every part at the end of its epoch."""

    def rolls(self, created: int, written: int, now: int) -> bool:
        return True
