"""When a part file is full, or has been open for long enough."""

from __future__ import annotations

from abc import ABC, abstractmethod

from penstock.errors import PenstockError


class RollingPolicy(ABC):
    """Decides when an open part file is closed, so that its checkpoint shows it to readers."""

    part_size: int | None = None
    """Bytes at which a part is closed at once, also in the middle of an epoch; None for no limit."""

    @abstractmethod
    def rolls(self, created: int, written: int, now: int) -> bool:
        """Asked at the end of every epoch; times are the clocks of epochs, in milliseconds."""

    @staticmethod
    def default_rolling_policy(
        part_size: int = 128 * 1024 * 1024, rollover_interval: int = 60 * 1000, inactivity_interval: int = 60 * 1000
    ) -> DefaultRollingPolicy:
        return DefaultRollingPolicy(part_size, rollover_interval, inactivity_interval)

    @staticmethod
    def on_checkpoint_rolling_policy() -> OnCheckpointRollingPolicy:
        return OnCheckpointRollingPolicy()


class DefaultRollingPolicy(RollingPolicy):
    """Closes a part that has `part_size` bytes, is `rollover_interval` ms old or got nothing for the other interval."""

    def __init__(self, part_size: int, rollover_interval: int, inactivity_interval: int) -> None:
        given = (
            ("part_size", part_size),
            ("rollover_interval", rollover_interval),
            ("inactivity_interval", inactivity_interval),
        )
        for name, value in given:
            if type(value) is not int or value < 1:
                raise PenstockError(f"default_rolling_policy: {name} must be a whole number above 0, not {value!r}.")
        self.part_size = part_size
        self._rollover_interval = rollover_interval
        self._inactivity_interval = inactivity_interval

    def rolls(self, created: int, written: int, now: int) -> bool:
        return now - created >= self._rollover_interval or now - written >= self._inactivity_interval


class OnCheckpointRollingPolicy(RollingPolicy):
    """Closes every part at the end of its epoch."""

    def rolls(self, created: int, written: int, now: int) -> bool:
        return True
