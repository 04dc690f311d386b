"""User configuration of the time to live (TTL) of state. Names and defaults are PyFlink's."""

from __future__ import annotations

from abc import ABC
from datetime import timedelta
from enum import Enum

from penstock.common.time import BadLength, Duration, Time, to_millis
from penstock.errors import PenstockError

_LARGEST = 2**63 - 1
_COMPACTION_PERIOD = Duration.of_days(30)


class BadTtl(PenstockError):
    """An invalid TTL configuration. Operator action: follow the message."""


class StateTtlConfig:
    """How long the values of a state live after their last access.

    Example:
        Let values expire a day after they were written::

            ttl = StateTtlConfig.new_builder(Duration.of_days(1)).update_ttl_on_create_and_write().build()
            descriptor = ValueStateDescriptor("total", Types.LONG())
            descriptor.enable_time_to_live(ttl)
    """

    class UpdateType(Enum):
        """Which accesses extend a value's life."""

        Disabled = 0
        """Values do not expire."""
        OnCreateAndWrite = 1
        """Creating and writing a value."""
        OnReadAndWrite = 2
        """Reading it as well."""

    class StateVisibility(Enum):
        """Whether an expired value can be returned if it has not been removed yet."""

        ReturnExpiredIfNotCleanedUp = 0
        """Return an expired value until it is removed."""
        NeverReturnExpired = 1
        """Never return an expired value."""

    class TtlTimeCharacteristic(Enum):
        """The clock by which values age."""

        ProcessingTime = 0
        """The wall clock."""
        EventTime = 1
        """The operator's watermark. Not in PyFlink."""

    def __init__(
        self,
        update_type: UpdateType,
        state_visibility: StateVisibility,
        ttl_time_characteristic: TtlTimeCharacteristic,
        ttl: Time | Duration | timedelta,
        cleanup_strategies: StateTtlConfig.CleanupStrategies,
    ) -> None:
        self._update_type = update_type
        self._state_visibility = state_visibility
        self._ttl_time_characteristic = ttl_time_characteristic
        self._ttl = _positive(ttl)
        self._cleanup_strategies = cleanup_strategies

    @staticmethod
    def new_builder(ttl: Time | Duration | timedelta) -> StateTtlConfig.Builder:
        """Return a builder with PyFlink's defaults.

        Args:
            ttl: How long a value lives after its last access; at least one millisecond.
        """
        return StateTtlConfig.Builder(ttl)

    def get_update_type(self) -> UpdateType:
        """Return which accesses extend a value's life."""
        return self._update_type

    def get_state_visibility(self) -> StateVisibility:
        """Return whether expired values can be returned."""
        return self._state_visibility

    def get_ttl(self) -> Time:
        """Return the time to live."""
        return self._ttl

    def get_ttl_time_characteristic(self) -> TtlTimeCharacteristic:
        """Return the clock by which values age."""
        return self._ttl_time_characteristic

    def is_enabled(self) -> bool:
        """Return whether values expire."""
        return self._update_type is not StateTtlConfig.UpdateType.Disabled

    def get_cleanup_strategies(self) -> StateTtlConfig.CleanupStrategies:
        """Return how expired values are removed."""
        return self._cleanup_strategies

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StateTtlConfig) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash((self._ttl, self._update_type, self._state_visibility, self._ttl_time_characteristic))

    def __repr__(self) -> str:
        return (
            f"StateTtlConfig({self._ttl}, {self._update_type.name}, {self._state_visibility.name}, "
            f"{self._ttl_time_characteristic.name})"
        )

    class Builder:
        """Builder of a ``StateTtlConfig``. Every method except ``build`` returns the builder."""

        def __init__(self, ttl: Time | Duration | timedelta) -> None:
            self._ttl = _positive(ttl)
            self._update_type = StateTtlConfig.UpdateType.OnCreateAndWrite
            self._state_visibility = StateTtlConfig.StateVisibility.NeverReturnExpired
            self._ttl_time_characteristic = StateTtlConfig.TtlTimeCharacteristic.ProcessingTime
            self._is_cleanup_in_background = True
            self._strategies: dict[
                StateTtlConfig.CleanupStrategies.Strategies, StateTtlConfig.CleanupStrategies.CleanupStrategy
            ] = {}

        def set_update_type(self, update_type: StateTtlConfig.UpdateType) -> StateTtlConfig.Builder:
            """Set which accesses extend a value's life."""
            self._update_type = update_type
            return self

        def update_ttl_on_create_and_write(self) -> StateTtlConfig.Builder:
            """Restart a value's life when it is created or written. This is the default."""
            return self.set_update_type(StateTtlConfig.UpdateType.OnCreateAndWrite)

        def update_ttl_on_read_and_write(self) -> StateTtlConfig.Builder:
            """Restart a value's life when it is written or read."""
            return self.set_update_type(StateTtlConfig.UpdateType.OnReadAndWrite)

        def set_state_visibility(self, state_visibility: StateTtlConfig.StateVisibility) -> StateTtlConfig.Builder:
            """Set whether expired values can be returned."""
            self._state_visibility = state_visibility
            return self

        def return_expired_if_not_cleaned_up(self) -> StateTtlConfig.Builder:
            """Return an expired value until it is removed."""
            return self.set_state_visibility(StateTtlConfig.StateVisibility.ReturnExpiredIfNotCleanedUp)

        def never_return_expired(self) -> StateTtlConfig.Builder:
            """Never return an expired value. This is the default."""
            return self.set_state_visibility(StateTtlConfig.StateVisibility.NeverReturnExpired)

        def set_ttl_time_characteristic(
            self, ttl_time_characteristic: StateTtlConfig.TtlTimeCharacteristic
        ) -> StateTtlConfig.Builder:
            """Set the clock by which values age."""
            self._ttl_time_characteristic = ttl_time_characteristic
            return self

        def use_processing_time(self) -> StateTtlConfig.Builder:
            """Let values age by the wall clock. This is the default."""
            return self.set_ttl_time_characteristic(StateTtlConfig.TtlTimeCharacteristic.ProcessingTime)

        def use_event_time(self) -> StateTtlConfig.Builder:
            """Let values age by the operator's watermark. Not in PyFlink."""
            return self.set_ttl_time_characteristic(StateTtlConfig.TtlTimeCharacteristic.EventTime)

        def cleanup_full_snapshot(self) -> StateTtlConfig.Builder:
            """Omit expired values when a full base is written, even if background cleanup is disabled."""
            strategies = StateTtlConfig.CleanupStrategies
            self._strategies[strategies.Strategies.FULL_STATE_SCAN_SNAPSHOT] = strategies.EMPTY_STRATEGY
            return self

        def cleanup_incrementally(
            self, cleanup_size: int, run_cleanup_for_every_record: bool
        ) -> StateTtlConfig.Builder:
            """Check ``cleanup_size`` more stored entries for expiry on every access to the state.

            The checks of an epoch run together at its end.

            Args:
                cleanup_size: Number of entries to check per access; at least 1.
                run_cleanup_for_every_record: Whether every record counts as an access as well.
            """
            if type(cleanup_size) is not int or cleanup_size < 1:
                raise BadTtl(f"cleanup_incrementally: cleanup_size must be at least 1, not {cleanup_size!r}.")
            strategies = StateTtlConfig.CleanupStrategies
            self._strategies[strategies.Strategies.INCREMENTAL_CLEANUP] = strategies.IncrementalCleanupStrategy(
                cleanup_size, run_cleanup_for_every_record
            )
            return self

        def cleanup_in_rocksdb_compact_filter(
            self,
            query_time_after_num_entries: int,
            periodic_compaction_time: Duration | Time | timedelta | None = None,
        ) -> StateTtlConfig.Builder:
            """Let replicas of the RocksDB backend drop expired values when they compact their files.

            Args:
                query_time_after_num_entries: Accepted for compatibility with PyFlink.
                periodic_compaction_time: Accepted for compatibility with PyFlink; 30 days by default.
            """
            strategies = StateTtlConfig.CleanupStrategies
            self._strategies[strategies.Strategies.ROCKSDB_COMPACTION_FILTER] = (
                strategies.RocksdbCompactFilterCleanupStrategy(query_time_after_num_entries, periodic_compaction_time)
            )
            return self

        def cleanup_by_timers(self) -> StateTtlConfig.Builder:
            """Set a timer for every value and remove the value when it expires. Not in PyFlink."""
            strategies = StateTtlConfig.CleanupStrategies
            self._strategies[strategies.Strategies.TIMERS] = strategies.EMPTY_STRATEGY
            return self

        def disable_cleanup_in_background(self) -> StateTtlConfig.Builder:
            """Run only the cleanup strategies you enabled, and remove values that a read finds expired."""
            self._is_cleanup_in_background = False
            return self

        def set_ttl(self, ttl: Time | Duration | timedelta) -> StateTtlConfig.Builder:
            """Set how long a value lives after its last access; at least one millisecond."""
            self._ttl = _positive(ttl)
            return self

        def build(self) -> StateTtlConfig:
            """Return the configuration."""
            return StateTtlConfig(
                self._update_type,
                self._state_visibility,
                self._ttl_time_characteristic,
                self._ttl,
                StateTtlConfig.CleanupStrategies(dict(self._strategies), self._is_cleanup_in_background),
            )

    class CleanupStrategies:
        """How expired values are removed, in addition to removal by reads that find them expired."""

        class Strategies(Enum):
            """Names of the cleanup strategies."""

            FULL_STATE_SCAN_SNAPSHOT = 0
            INCREMENTAL_CLEANUP = 1
            ROCKSDB_COMPACTION_FILTER = 2
            TIMERS = 3
            """Not in PyFlink."""

        class CleanupStrategy(ABC):  # noqa: B024  only subclasses are instantiated
            """Base class of the cleanup strategies."""

            def __eq__(self, other: object) -> bool:
                return type(self) is type(other) and self.__dict__ == other.__dict__

            __hash__ = None  # type: ignore[assignment]

        class EmptyCleanupStrategy(CleanupStrategy):
            """A cleanup strategy without settings."""

        class IncrementalCleanupStrategy(CleanupStrategy):
            """Settings of ``cleanup_incrementally``."""

            def __init__(self, cleanup_size: int, run_cleanup_for_every_record: bool) -> None:
                self._cleanup_size = cleanup_size
                self._run_cleanup_for_every_record = run_cleanup_for_every_record

            def get_cleanup_size(self) -> int:
                """Return how many entries to check per access."""
                return self._cleanup_size

            def run_cleanup_for_every_record(self) -> bool:
                """Return whether every record counts as an access."""
                return self._run_cleanup_for_every_record

        class RocksdbCompactFilterCleanupStrategy(CleanupStrategy):
            """Settings of ``cleanup_in_rocksdb_compact_filter``."""

            def __init__(
                self,
                query_time_after_num_entries: int,
                periodic_compaction_time: Duration | Time | timedelta | None = None,
            ) -> None:
                self._query_time_after_num_entries = query_time_after_num_entries
                given = periodic_compaction_time
                self._periodic_compaction_time = (
                    _COMPACTION_PERIOD if given is None else Duration.of_millis(to_millis(given))
                )

            def get_query_time_after_num_entries(self) -> int:
                """Return after how many entries the compaction filter asks for the current time."""
                return self._query_time_after_num_entries

            def get_periodic_compaction_time(self) -> Duration:
                """Return the period after which files are compacted."""
                return self._periodic_compaction_time

        EMPTY_STRATEGY = EmptyCleanupStrategy()

        def __init__(self, strategies: dict[Strategies, CleanupStrategy], is_cleanup_in_background: bool) -> None:
            self._strategies = strategies
            self._is_cleanup_in_background = is_cleanup_in_background

        def __eq__(self, other: object) -> bool:
            return type(self) is type(other) and self.__dict__ == other.__dict__

        __hash__ = None  # type: ignore[assignment]

        def is_cleanup_in_background(self) -> bool:
            """Return whether cleanup runs in the background."""
            return self._is_cleanup_in_background

        def in_full_snapshot(self) -> bool:
            """Return whether full bases omit expired values even if background cleanup is disabled."""
            return self.Strategies.FULL_STATE_SCAN_SNAPSHOT in self._strategies

        def by_timers(self) -> bool:
            """Return whether timers remove expired values. Not in PyFlink."""
            return self.Strategies.TIMERS in self._strategies

        def get_incremental_cleanup_strategy(self) -> IncrementalCleanupStrategy | None:
            """Return the configured strategy; by default, five entries per access if cleanup runs in the background."""
            strategies = StateTtlConfig.CleanupStrategies
            default = strategies.IncrementalCleanupStrategy(5, False) if self._is_cleanup_in_background else None
            return self._strategies.get(self.Strategies.INCREMENTAL_CLEANUP, default)  # type: ignore[return-value]

        def get_rocksdb_compact_filter_cleanup_strategy(self) -> RocksdbCompactFilterCleanupStrategy | None:
            """Return the configured strategy, or the default one if cleanup runs in the background."""
            strategies = StateTtlConfig.CleanupStrategies
            default = strategies.RocksdbCompactFilterCleanupStrategy(1000) if self._is_cleanup_in_background else None
            return self._strategies.get(self.Strategies.ROCKSDB_COMPACTION_FILTER, default)  # type: ignore[return-value]


def _positive(ttl: Time | Duration | timedelta) -> Time:
    try:
        millis = to_millis(ttl)
    except BadLength:
        millis = 0
    if not 0 < millis <= _LARGEST:
        raise BadTtl(
            f"The time to live must be between 1 and 2**63 - 1 milliseconds, not {ttl}.",
            fix="To keep values forever, do not call enable_time_to_live.",
        )
    return Time(millis)
