"""Time to live of state, as users declare it. Names and defaults are PyFlink's."""

from __future__ import annotations

from abc import ABC
from datetime import timedelta
from enum import Enum

from penstock.common.time import BadLength, Duration, Time, to_millis
from penstock.errors import PenstockError

_LARGEST = 2**63 - 1
_COMPACTION_PERIOD = Duration.of_days(30)


class BadTtl(PenstockError):
    """A time to live that cannot be. Operator action: what the message says."""


class StateTtlConfig:
    """How long a state's values live after they were last accessed. Made by `StateTtlConfig.new_builder(ttl)`."""

    class UpdateType(Enum):
        """What counts as an access."""

        Disabled = 0
        """Values do not expire."""
        OnCreateAndWrite = 1
        OnReadAndWrite = 2

    class StateVisibility(Enum):
        """Whether a value that has expired may be seen once more, if it is still there."""

        ReturnExpiredIfNotCleanedUp = 0
        NeverReturnExpired = 1

    class TtlTimeCharacteristic(Enum):
        """Which clock values age by."""

        ProcessingTime = 0
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
        return StateTtlConfig.Builder(ttl)

    def get_update_type(self) -> UpdateType:
        return self._update_type

    def get_state_visibility(self) -> StateVisibility:
        return self._state_visibility

    def get_ttl(self) -> Time:
        return self._ttl

    def get_ttl_time_characteristic(self) -> TtlTimeCharacteristic:
        return self._ttl_time_characteristic

    def is_enabled(self) -> bool:
        return self._update_type is not StateTtlConfig.UpdateType.Disabled

    def get_cleanup_strategies(self) -> StateTtlConfig.CleanupStrategies:
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
        """Every method but `build` returns the builder itself."""

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
            self._update_type = update_type
            return self

        def update_ttl_on_create_and_write(self) -> StateTtlConfig.Builder:
            return self.set_update_type(StateTtlConfig.UpdateType.OnCreateAndWrite)

        def update_ttl_on_read_and_write(self) -> StateTtlConfig.Builder:
            return self.set_update_type(StateTtlConfig.UpdateType.OnReadAndWrite)

        def set_state_visibility(self, state_visibility: StateTtlConfig.StateVisibility) -> StateTtlConfig.Builder:
            self._state_visibility = state_visibility
            return self

        def return_expired_if_not_cleaned_up(self) -> StateTtlConfig.Builder:
            return self.set_state_visibility(StateTtlConfig.StateVisibility.ReturnExpiredIfNotCleanedUp)

        def never_return_expired(self) -> StateTtlConfig.Builder:
            return self.set_state_visibility(StateTtlConfig.StateVisibility.NeverReturnExpired)

        def set_ttl_time_characteristic(
            self, ttl_time_characteristic: StateTtlConfig.TtlTimeCharacteristic
        ) -> StateTtlConfig.Builder:
            self._ttl_time_characteristic = ttl_time_characteristic
            return self

        def use_processing_time(self) -> StateTtlConfig.Builder:
            return self.set_ttl_time_characteristic(StateTtlConfig.TtlTimeCharacteristic.ProcessingTime)

        def use_event_time(self) -> StateTtlConfig.Builder:
            """Let values age by the operator's watermark. Not in PyFlink."""
            return self.set_ttl_time_characteristic(StateTtlConfig.TtlTimeCharacteristic.EventTime)

        def cleanup_full_snapshot(self) -> StateTtlConfig.Builder:
            """Leave out what has expired when a base of all state is written, even if not in the background."""
            strategies = StateTtlConfig.CleanupStrategies
            self._strategies[strategies.Strategies.FULL_STATE_SCAN_SNAPSHOT] = strategies.EMPTY_STRATEGY
            return self

        def cleanup_incrementally(
            self, cleanup_size: int, run_cleanup_for_every_record: bool
        ) -> StateTtlConfig.Builder:
            """Look through `cleanup_size` more stored entries for every access to the state, and if asked for every
            record, in one go at the end of the epoch."""
            if type(cleanup_size) is not int or cleanup_size < 1:
                raise BadTtl(f"cleanup_incrementally looks through at least one entry at a time, not {cleanup_size!r}.")
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
            """Let replicas of the RocksDB backend drop what has expired when they compact their files."""
            strategies = StateTtlConfig.CleanupStrategies
            self._strategies[strategies.Strategies.ROCKSDB_COMPACTION_FILTER] = (
                strategies.RocksdbCompactFilterCleanupStrategy(query_time_after_num_entries, periodic_compaction_time)
            )
            return self

        def cleanup_by_timers(self) -> StateTtlConfig.Builder:
            """Remove every value when its time comes, by a timer of its own. Not in PyFlink."""
            strategies = StateTtlConfig.CleanupStrategies
            self._strategies[strategies.Strategies.TIMERS] = strategies.EMPTY_STRATEGY
            return self

        def disable_cleanup_in_background(self) -> StateTtlConfig.Builder:
            """Of the clean-ups only those asked for, and what a read finds expired."""
            self._is_cleanup_in_background = False
            return self

        def set_ttl(self, ttl: Time | Duration | timedelta) -> StateTtlConfig.Builder:
            self._ttl = _positive(ttl)
            return self

        def build(self) -> StateTtlConfig:
            return StateTtlConfig(
                self._update_type,
                self._state_visibility,
                self._ttl_time_characteristic,
                self._ttl,
                StateTtlConfig.CleanupStrategies(dict(self._strategies), self._is_cleanup_in_background),
            )

    class CleanupStrategies:
        """How values that have expired are removed, beside those that a read finds."""

        class Strategies(Enum):
            FULL_STATE_SCAN_SNAPSHOT = 0
            INCREMENTAL_CLEANUP = 1
            ROCKSDB_COMPACTION_FILTER = 2
            TIMERS = 3
            """Not in PyFlink."""

        class CleanupStrategy(ABC):  # noqa: B024  only its kinds are made
            def __eq__(self, other: object) -> bool:
                return type(self) is type(other) and self.__dict__ == other.__dict__

            __hash__ = None  # type: ignore[assignment]

        class EmptyCleanupStrategy(CleanupStrategy):
            """One that has no settings."""

        class IncrementalCleanupStrategy(CleanupStrategy):
            def __init__(self, cleanup_size: int, run_cleanup_for_every_record: bool) -> None:
                self._cleanup_size = cleanup_size
                self._run_cleanup_for_every_record = run_cleanup_for_every_record

            def get_cleanup_size(self) -> int:
                return self._cleanup_size

            def run_cleanup_for_every_record(self) -> bool:
                return self._run_cleanup_for_every_record

        class RocksdbCompactFilterCleanupStrategy(CleanupStrategy):
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
                return self._query_time_after_num_entries

            def get_periodic_compaction_time(self) -> Duration:
                return self._periodic_compaction_time

        EMPTY_STRATEGY = EmptyCleanupStrategy()

        def __init__(self, strategies: dict[Strategies, CleanupStrategy], is_cleanup_in_background: bool) -> None:
            self._strategies = strategies
            self._is_cleanup_in_background = is_cleanup_in_background

        def __eq__(self, other: object) -> bool:
            return type(self) is type(other) and self.__dict__ == other.__dict__

        __hash__ = None  # type: ignore[assignment]

        def is_cleanup_in_background(self) -> bool:
            return self._is_cleanup_in_background

        def in_full_snapshot(self) -> bool:
            return self.Strategies.FULL_STATE_SCAN_SNAPSHOT in self._strategies

        def by_timers(self) -> bool:
            """Not in PyFlink."""
            return self.Strategies.TIMERS in self._strategies

        def get_incremental_cleanup_strategy(self) -> IncrementalCleanupStrategy | None:
            """As asked for, or where clean-up goes on in the background five entries for every access."""
            strategies = StateTtlConfig.CleanupStrategies
            default = strategies.IncrementalCleanupStrategy(5, False) if self._is_cleanup_in_background else None
            return self._strategies.get(self.Strategies.INCREMENTAL_CLEANUP, default)  # type: ignore[return-value]

        def get_rocksdb_compact_filter_cleanup_strategy(self) -> RocksdbCompactFilterCleanupStrategy | None:
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
            f"A time to live is between one millisecond and 2**63 - 1 of them, not {ttl}.",
            fix="To let values live for ever, leave out enable_time_to_live.",
        )
    return Time(millis)
