"""The methods of ``ExecutionConfig`` that tune Flink and change nothing here."""

from __future__ import annotations

from typing import Any, Self

from penstock.common.setting_types import BadSetting
from penstock.common.tuning import (
    CANCELLATION_INTERVAL,
    CANCELLATION_TIMEOUT,
    CLOSURE_CLEANER,
    FORCE_AVRO,
    FORCE_KRYO,
    GENERIC_TYPES,
    LATENCY_TRACKING,
    OBJECT_REUSE,
    SNAPSHOT_COMPRESSION,
    Tunable,
    Tuning,
)

_KRYO_DEFAULTS, _KRYO_TYPES, _KRYO_SERIALIZERS, _POJO_TYPES = "kryo defaults", "kryo types", "kryo serializers", "pojos"


class ExecutionTuning:
    """Calls that are accepted without effect. Each getter returns what the program set."""

    _tuning: Tuning

    def _accept(self, method: str, tunable: Tunable[Any], value: Any) -> Self:
        self._tuning.set(f"ExecutionConfig.{method}", tunable, value)
        return self

    def _accept_millis(self, method: str, tunable: Tunable[int], value: int) -> Self:
        if value < 0:
            raise BadSetting(f"{method}: the number of milliseconds must not be negative, but is {value}.")
        return self._accept(method, tunable, value)

    # -- records -------------------------------------------------------------------------------------------------------

    def enable_object_reuse(self) -> Self:
        """Accept the call without effect: records are copied only where a change could affect another operator."""
        return self._accept("enable_object_reuse", OBJECT_REUSE, True)

    def disable_object_reuse(self) -> Self:
        """Accept the call without effect; see ``enable_object_reuse``."""
        return self._accept("disable_object_reuse", OBJECT_REUSE, False)

    def is_object_reuse_enabled(self) -> bool:
        """Return whether the program enabled object reuse."""
        return self._tuning.get(OBJECT_REUSE)

    def enable_closure_cleaner(self) -> Self:
        """Accept the call without effect: functions are pickled with what they refer to."""
        self._tuning.set("ExecutionConfig.enable_closure_cleaner", CLOSURE_CLEANER, "RECURSIVE")
        return self

    def disable_closure_cleaner(self) -> Self:
        """Accept the call without effect; see ``enable_closure_cleaner``."""
        self._tuning.set("ExecutionConfig.disable_closure_cleaner", CLOSURE_CLEANER, "NONE")
        return self

    def is_closure_cleaner_enabled(self) -> bool:
        """Return False if the program disabled the closure cleaner."""
        return self._tuning.get(CLOSURE_CLEANER) != "NONE"

    def set_latency_tracking_interval(self, interval: int) -> Self:
        """Accept the call without effect: the metrics report the duration of every epoch.

        Args:
            interval: The interval in milliseconds; 0 turns latency tracking off.
        """
        return self._accept("set_latency_tracking_interval", LATENCY_TRACKING, interval)

    def get_latency_tracking_interval(self) -> int:
        """Return the interval that the program set, in milliseconds."""
        return self._tuning.get(LATENCY_TRACKING)

    # -- tasks and checkpoints -----------------------------------------------------------------------------------------

    def set_task_cancellation_interval(self, interval: int) -> Self:
        """Accept the call without effect: Spark ends the tasks of a cancelled job.

        Args:
            interval: The interval in milliseconds.
        """
        return self._accept_millis("set_task_cancellation_interval", CANCELLATION_INTERVAL, interval)

    def get_task_cancellation_interval(self) -> int:
        """Return the interval that the program set, in milliseconds."""
        return self._tuning.get(CANCELLATION_INTERVAL)

    def set_task_cancellation_timeout(self, timeout: int) -> Self:
        """Accept the call without effect: Spark ends the tasks of a cancelled job.

        Args:
            timeout: The timeout in milliseconds.
        """
        return self._accept_millis("set_task_cancellation_timeout", CANCELLATION_TIMEOUT, timeout)

    def get_task_cancellation_timeout(self) -> int:
        """Return the timeout that the program set, in milliseconds."""
        return self._tuning.get(CANCELLATION_TIMEOUT)

    def set_use_snapshot_compression(self, use_snapshot_compression: bool) -> Self:
        """Accept the call without effect: checkpoints have their own format.

        Args:
            use_snapshot_compression: The value that the getter returns.
        """
        return self._accept("set_use_snapshot_compression", SNAPSHOT_COMPRESSION, use_snapshot_compression)

    def is_use_snapshot_compression(self) -> bool:
        """Return the value that the program set."""
        return self._tuning.get(SNAPSHOT_COMPRESSION)

    # -- serializers of Java -------------------------------------------------------------------------------------------

    def enable_generic_types(self) -> Self:
        """Accept the call without effect: records are Python objects, which Kryo does not serialize."""
        return self._accept("enable_generic_types", GENERIC_TYPES, True)

    def disable_generic_types(self) -> Self:
        """Accept the call without effect; see ``enable_generic_types``."""
        return self._accept("disable_generic_types", GENERIC_TYPES, False)

    def has_generic_types_disabled(self) -> bool:
        """Return whether the program disabled generic types."""
        return not self._tuning.get(GENERIC_TYPES)

    def enable_force_kryo(self) -> Self:
        """Accept the call without effect: Kryo serializes Java objects only."""
        return self._accept("enable_force_kryo", FORCE_KRYO, True)

    def disable_force_kryo(self) -> Self:
        """Accept the call without effect; see ``enable_force_kryo``."""
        return self._accept("disable_force_kryo", FORCE_KRYO, False)

    def is_force_kryo_enabled(self) -> bool:
        """Return whether the program enabled Kryo."""
        return self._tuning.get(FORCE_KRYO)

    def enable_force_avro(self) -> Self:
        """Accept the call without effect: Java's Avro serializer does not apply to Python objects."""
        return self._accept("enable_force_avro", FORCE_AVRO, True)

    def disable_force_avro(self) -> Self:
        """Accept the call without effect; see ``enable_force_avro``."""
        return self._accept("disable_force_avro", FORCE_AVRO, False)

    def is_force_avro_enabled(self) -> bool:
        """Return whether the program enabled Avro."""
        return self._tuning.get(FORCE_AVRO)

    def add_default_kryo_serializer(self, type_class_name: str, serializer_class_name: str) -> Self:
        """Accept a call of PyFlink 1 without effect.

        Args:
            type_class_name: The Java class.
            serializer_class_name: Its serializer.
        """
        return self._register("add_default_kryo_serializer", _KRYO_DEFAULTS, type_class_name, serializer_class_name)

    def get_default_kryo_serializer_classes(self) -> dict[str, str]:
        """Return the default Kryo serializers that the program added, by class."""
        return self._registered(_KRYO_DEFAULTS)

    def register_type_with_kryo_serializer(self, type_class_name: str, serializer_class_name: str) -> Self:
        """Accept a call of PyFlink 1 without effect.

        Args:
            type_class_name: The Java class.
            serializer_class_name: Its serializer.
        """
        method = "register_type_with_kryo_serializer"
        return self._register(method, _KRYO_SERIALIZERS, type_class_name, serializer_class_name)

    def get_registered_types_with_kryo_serializer_classes(self) -> dict[str, str]:
        """Return the Kryo serializers that the program registered, by class."""
        return self._registered(_KRYO_SERIALIZERS)

    def register_kryo_type(self, type_class_name: str) -> Self:
        """Accept a call of PyFlink 1 without effect.

        Args:
            type_class_name: The Java class.
        """
        return self._register("register_kryo_type", _KRYO_TYPES, type_class_name, "")

    def get_registered_kryo_types(self) -> list[str]:
        """Return the classes that the program registered with Kryo."""
        return list(self._registered(_KRYO_TYPES))

    def register_pojo_type(self, type_class_name: str) -> Self:
        """Accept a call of PyFlink 1 without effect.

        Args:
            type_class_name: The Java class.
        """
        return self._register("register_pojo_type", _POJO_TYPES, type_class_name, "")

    def get_registered_pojo_types(self) -> list[str]:
        """Return the POJO classes that the program registered."""
        return list(self._registered(_POJO_TYPES))

    def _register(self, method: str, key: str, type_name: str, serializer: str) -> Self:
        self._tuning.keep(f"ExecutionConfig.{method}", key, {**self._registered(key), type_name: serializer})
        return self

    def _registered(self, key: str) -> dict[str, str]:
        return dict(self._tuning.kept(key, dict))
