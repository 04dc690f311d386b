"""Environment methods that tune Flink and change nothing here."""

from __future__ import annotations

from typing import Self

from penstock.common.machine import cores
from penstock.common.options import BadSetting
from penstock.common.tuning import BUFFER_TIMEOUT, CHANGELOG, FORCE_UNALIGNED, UNALIGNED, Tuning, accept
from penstock.datastream.slot_sharing_group import SlotSharingGroup
from penstock.graph.logical import GraphError, check_positive

_LOCAL_PARALLELISM = "default local parallelism"


class EnvironmentTuning:
    """The methods of ``StreamExecutionEnvironment`` that are accepted without effect."""

    _tuning: Tuning

    def set_buffer_timeout(self, timeout_millis: int) -> Self:
        """Accept the call without effect: a buffer is sent when it is full and when its epoch ends.

        Args:
            timeout_millis: The value that the getter returns, at least -1.

        Raises:
            BadSetting: If the timeout is below -1.
        """
        name = "StreamExecutionEnvironment.set_buffer_timeout"
        self._tuning.set(name, BUFFER_TIMEOUT, buffer_timeout(timeout_millis))
        return self

    def get_buffer_timeout(self) -> int:
        """Return the timeout that the program set, in milliseconds."""
        return self._tuning.get(BUFFER_TIMEOUT)

    def enable_changelog_state_backend(self, enabled: bool) -> Self:
        """Accept the call without effect: every checkpoint stores only the changes since the last one.

        Args:
            enabled: The value that the getter returns.
        """
        self._tuning.set("StreamExecutionEnvironment.enable_changelog_state_backend", CHANGELOG, enabled)
        return self

    def is_changelog_state_backend_enabled(self) -> bool | None:
        """Return the value that the program set, or None."""
        return self._tuning.get(CHANGELOG)

    def set_default_local_parallelism(self, parallelism: int) -> None:
        """Accept the call without effect: ``set_parallelism`` sets the default of this environment.

        Args:
            parallelism: The value that the getter returns.
        """
        check_positive(parallelism, "default local parallelism")
        self._tuning.keep("StreamExecutionEnvironment.set_default_local_parallelism", _LOCAL_PARALLELISM, parallelism)

    def get_default_local_parallelism(self) -> int:
        """Return the value that the program set, otherwise the number of cores of this machine."""
        return self._tuning.kept(_LOCAL_PARALLELISM, cores)

    def register_slot_sharing_group(self, slot_sharing_group: SlotSharingGroup) -> Self:
        """Accept the call without effect: Spark assigns cores and memory to tasks.

        Args:
            slot_sharing_group: A group with its resources.
        """
        if not isinstance(slot_sharing_group, SlotSharingGroup):
            raise GraphError(
                f"register_slot_sharing_group needs a SlotSharingGroup, not {type(slot_sharing_group).__name__}.",
                fix="Create one with SlotSharingGroup.builder(name)...build().",
            )
        accept("StreamExecutionEnvironment.register_slot_sharing_group")
        return self

    def is_unaligned_checkpoints_enabled(self) -> bool:
        """Return whether the program enabled unaligned checkpoints. All checkpoints are aligned."""
        return self._tuning.get(UNALIGNED)

    def is_force_unaligned_checkpoints(self) -> bool:
        """Return whether the program forced unaligned checkpoints. All checkpoints are aligned."""
        return self._tuning.get(FORCE_UNALIGNED)


def buffer_timeout(timeout_millis: int) -> int:
    """Return a valid buffer timeout."""
    if timeout_millis < -1:
        raise BadSetting(f"The buffer timeout must be at least 0 ms, or -1, but is {timeout_millis}.")
    return timeout_millis
