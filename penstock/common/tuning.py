"""Calls that tune Flink and change nothing here: they are noted, and their getters return the given values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

from penstock.common.configuration import Configuration
from penstock.common.options.checkpoints import MAX_CONCURRENT_CHECKPOINTS
from penstock.common.setting_types import Choice, Length, SettingType, Truth, Whole
from penstock.common.without_effect import note
from penstock.compatibility import ACCEPTED

V = TypeVar("V")

REASONS = {name: why for names, why in ACCEPTED for name in names.split()}
"""Why a call has no effect, by name."""


def accept(name: str) -> None:
    """Note that the program made this call, such as ``DataStream.set_buffer_timeout``, which has no effect."""
    note(name, REASONS[name])


class Tunable(NamedTuple, Generic[V]):
    """A value that a program can set without effect: Flink's key, the type of its setting, and Flink's default."""

    key: str
    type: SettingType[V]
    default: V
    older: str = ""
    """An older spelling of the key."""


BUFFER_TIMEOUT = Tunable("execution.buffer-timeout.interval", Length(), 100, "execution.buffer-timeout")
OBJECT_REUSE = Tunable("pipeline.object-reuse", Truth(), False)
LATENCY_TRACKING = Tunable("metrics.latency.interval", Length(), 0)
SNAPSHOT_COMPRESSION = Tunable("execution.checkpointing.snapshot-compression", Truth(), False)
CANCELLATION_INTERVAL = Tunable("task.cancellation.interval", Length(), 30_000, "task.cancellation-interval")
CANCELLATION_TIMEOUT = Tunable("task.cancellation.timeout", Length(), 180_000)
GENERIC_TYPES = Tunable("pipeline.generic-types", Truth(), True)
FORCE_KRYO = Tunable("pipeline.force-kryo", Truth(), False)
FORCE_AVRO = Tunable("pipeline.force-avro", Truth(), False)
UNALIGNED = Tunable("execution.checkpointing.unaligned.enabled", Truth(), False, "execution.checkpointing.unaligned")
FORCE_UNALIGNED = Tunable("execution.checkpointing.unaligned.forced", Truth(), False)
ALIGNMENT_TIMEOUT = Tunable(
    "execution.checkpointing.aligned-checkpoint-timeout", Length(), 0, "execution.checkpointing.alignment-timeout"
)
CLOSURE_CLEANER = Tunable("pipeline.closure-cleaner-level", Choice("NONE", "TOP-LEVEL", "RECURSIVE"), "RECURSIVE")
CHANGELOG: Tunable[bool | None] = Tunable("state.changelog.enabled", Truth(), None, "state.backend.changelog.enabled")
CONCURRENT_CHECKPOINTS = Tunable(MAX_CONCURRENT_CHECKPOINTS.key, Whole(1), 1)


class Tuning:
    """The tuning of one environment. A value that the program set takes precedence over the setting with its key."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._values: dict[str, Any] = {}

    def set(self, name: str, tunable: Tunable[V], value: V) -> None:
        """Remember a value.

        Args:
            name: The call of the program, for the paragraph about calls without effect.
            tunable: What the call sets.
            value: The value for the getter.
        """
        accept(name)
        self._values[tunable.key] = value

    def get(self, tunable: Tunable[V]) -> V:
        """Return the value that the program set, otherwise the setting, otherwise Flink's default."""
        if tunable.key in self._values:
            value: V = self._values[tunable.key]
            return value
        settings = self._configuration.to_dict()
        text = settings.get(tunable.key, settings.get(tunable.older))
        return tunable.default if text is None else tunable.type.parse(tunable.key, text)

    def keep(self, name: str, key: str, value: V) -> None:
        """Remember a value that has no setting; see ``kept``."""
        accept(name)
        self._values[key] = value

    def kept(self, key: str, default: Callable[[], V]) -> V:
        """Return a value that ``keep`` remembered, or the default."""
        value: V = self._values[key] if key in self._values else default()
        return value

    def values(self) -> dict[str, Any]:
        """Return what the program set, by Flink's keys."""
        return dict(self._values)
