"""The methods of ``CheckpointConfig`` that tune Flink and change nothing here."""

from __future__ import annotations

from datetime import timedelta
from typing import Self

from penstock.common.options import BadSetting
from penstock.common.time import Duration, Time, to_millis
from penstock.common.tuning import ALIGNMENT_TIMEOUT, CONCURRENT_CHECKPOINTS, FORCE_UNALIGNED, UNALIGNED, Tuning


class CheckpointTuning:
    """Calls that are accepted without effect. Each getter returns what the program set."""

    _tuning: Tuning

    def enable_unaligned_checkpoints(self, enabled: bool = True) -> Self:
        """Accept the call without effect: a barrier closes an epoch's input, so no barrier overtakes records.

        Args:
            enabled: The value that the getter returns.
        """
        self._tuning.set("CheckpointConfig.enable_unaligned_checkpoints", UNALIGNED, enabled)
        return self

    def disable_unaligned_checkpoints(self) -> Self:
        """Accept the call without effect; see ``enable_unaligned_checkpoints``."""
        self._tuning.set("CheckpointConfig.disable_unaligned_checkpoints", UNALIGNED, False)
        return self

    def is_unaligned_checkpoints_enabled(self) -> bool:
        """Return whether the program enabled unaligned checkpoints. All checkpoints are aligned."""
        return self._tuning.get(UNALIGNED)

    def set_force_unaligned_checkpoints(self, force_unaligned_checkpoints: bool = True) -> Self:
        """Accept the call without effect; see ``enable_unaligned_checkpoints``.

        Args:
            force_unaligned_checkpoints: The value that the getter returns.
        """
        name = "CheckpointConfig.set_force_unaligned_checkpoints"
        self._tuning.set(name, FORCE_UNALIGNED, force_unaligned_checkpoints)
        return self

    def is_force_unaligned_checkpoints(self) -> bool:
        """Return whether the program forced unaligned checkpoints. All checkpoints are aligned."""
        return self._tuning.get(FORCE_UNALIGNED)

    def set_aligned_checkpoint_timeout(self, alignment_timeout: Duration | Time | timedelta) -> Self:
        """Accept the call without effect: alignment does not wait for anything.

        Args:
            alignment_timeout: The value that the getter returns.
        """
        return self._align("set_aligned_checkpoint_timeout", alignment_timeout)

    def get_aligned_checkpoint_timeout(self) -> Duration:
        """Return the timeout that the program set."""
        return Duration.of_millis(self._tuning.get(ALIGNMENT_TIMEOUT))

    def set_alignment_timeout(self, alignment_timeout: Duration | Time | timedelta) -> Self:
        """Accept the call without effect, like ``set_aligned_checkpoint_timeout``.

        Args:
            alignment_timeout: The value that the getter returns.
        """
        return self._align("set_alignment_timeout", alignment_timeout)

    def get_alignment_timeout(self) -> Duration:
        """Return the timeout that the program set."""
        return self.get_aligned_checkpoint_timeout()

    def set_max_concurrent_checkpoints(self, max_concurrent_checkpoints: int) -> Self:
        """Accept the call without effect: one checkpoint is in progress at a time.

        Args:
            max_concurrent_checkpoints: The value that the getter returns, at least 1.

        Raises:
            BadSetting: If the number is below 1.
        """
        if max_concurrent_checkpoints < 1:
            raise BadSetting(
                f"The number of concurrent checkpoints must be at least 1, but is {max_concurrent_checkpoints}."
            )
        if max_concurrent_checkpoints > 1 or self.get_max_concurrent_checkpoints() > 1:
            name = "CheckpointConfig.set_max_concurrent_checkpoints"
            self._tuning.set(name, CONCURRENT_CHECKPOINTS, max_concurrent_checkpoints)
        return self

    def get_max_concurrent_checkpoints(self) -> int:
        """Return the number that the program set. One checkpoint is in progress at a time."""
        return self._tuning.get(CONCURRENT_CHECKPOINTS)

    def _align(self, method: str, timeout: Duration | Time | timedelta) -> Self:
        self._tuning.set(f"CheckpointConfig.{method}", ALIGNMENT_TIMEOUT, to_millis(timeout))
        return self
