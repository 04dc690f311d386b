"""The settings of checkpoints and restarts, from the keys of a configuration to what a driver is given."""

from __future__ import annotations

from typing import Any

from penstock.checkpoint.job_directories import UNNAMED, Unnamed
from penstock.checkpoint.lineages import SharedStorage
from penstock.common.configuration import Configuration
from penstock.common.options import BadSetting, milliseconds, store_options, value
from penstock.common.restart_strategy import RestartStrategies, configured_strategy
from penstock.common.time import to_millis
from penstock.datastream.checkpointing_mode import CheckpointingMode
from penstock.datastream.externalized_checkpoint_retention import ExternalizedCheckpointRetention
from penstock.driver.restarts import (
    WITH_CHECKPOINTS,
    ExponentialDelay,
    FailureRate,
    FixedDelay,
    NoRestart,
    RestartStrategy,
)
from penstock.driver.slots import TIMEOUT as SLOT_TIMEOUT
from penstock.driver.slots import WAIT, SlotSettings
from penstock.savepoint.format import check_savepoint_directory, savepoint_storage
from penstock.savepoint.restoring import RecoveryClaimMode, RestoreSettings

MODE = "execution.checkpointing.mode"
INTERVAL = "execution.checkpointing.interval"
TIMEOUT = "execution.checkpointing.timeout"
MIN_PAUSE = "execution.checkpointing.min-pause"
MAX_CONCURRENT = "execution.checkpointing.max-concurrent-checkpoints"
TOLERABLE = "execution.checkpointing.tolerable-failed-checkpoints"
RETAINED = "execution.checkpointing.num-retained"
SAVEPOINTS = "state.savepoints.dir"
SAVEPOINT = "execution.state-recovery.path"
CLAIM_MODE = "execution.state-recovery.claim-mode"
IGNORE_UNCLAIMED = "execution.state-recovery.ignore-unclaimed-state"
RETENTION = "execution.checkpointing.externalized-checkpoint-retention"

MOST = 2**31 - 1
"""Tolerated failures, if none is to end anything."""


def checkpoint_settings(configuration: Configuration) -> dict[str, Any]:
    """Fields of `penstock.driver.epoch_settings.Settings`."""
    check_max_concurrent(whole_number(configuration, MAX_CONCURRENT, 1))
    retention(configuration)
    return {
        "retained": whole_number(configuration, RETAINED, 1),
        "timeout_ms": length_of(configuration, TIMEOUT, "10 min"),
        "min_pause_ms": length_of(configuration, MIN_PAUSE, "0 ms"),
        "tolerable_failures": whole_number(configuration, TOLERABLE, 0),
        "at_least_once": checkpointing_mode(configuration) is CheckpointingMode.AT_LEAST_ONCE,
        "asynchronous": configuration.get_boolean("state.backend.async", True),
    }


def checkpoint_interval(configuration: Configuration) -> int:
    """Milliseconds; -1 when checkpointing is off."""
    return int(value(configuration.to_dict(), INTERVAL, -1))


def checkpointing_mode(configuration: Configuration) -> CheckpointingMode:
    """Return the checkpointing mode of a configuration."""
    return CheckpointingMode[value(configuration.to_dict(), MODE, "EXACTLY_ONCE")]


def retention(configuration: Configuration) -> ExternalizedCheckpointRetention:
    """Return what a configuration says about the checkpoints of a job that has ended."""
    name = value(configuration.to_dict(), RETENTION, "NO_EXTERNALIZED_CHECKPOINTS")
    return ExternalizedCheckpointRetention[name]


def check_max_concurrent(number: int) -> None:
    """Refuse any number of concurrent checkpoints but 1."""
    if number != 1:
        raise BadSetting(
            f"{MAX_CONCURRENT} is {number}. Every epoch ends in a checkpoint and the next one builds on it, so there "
            f"is one at a time.",
            fix="Leave it out, or set it to 1.",
        )


def restore_settings(configuration: Configuration) -> RestoreSettings | None:
    """The savepoint that the job is to begin with; None where none is set."""
    path = configuration.get_string(SAVEPOINT, "")
    mode = RecoveryClaimMode[value(configuration.to_dict(), CLAIM_MODE, RecoveryClaimMode.NO_CLAIM.name)]
    if not path:
        return None
    ignore = configuration.get_boolean(IGNORE_UNCLAIMED, False)
    return RestoreSettings(path, ignore, mode, store_options(configuration.to_dict()))


def savepoint_directory(configuration: Configuration, given: str | None = None) -> SharedStorage:
    """Where a savepoint goes: the directory that was given for it, or the one that is set for all."""
    directory = given or configuration.get_string(SAVEPOINTS, "")
    if not directory:
        raise BadSetting(
            f"Where is the savepoint to go? No directory was given, and {SAVEPOINTS} is not set.",
            fix=f"Give a directory, or set {SAVEPOINTS}, e.g. to file:///var/savepoints.",
        )
    storage = savepoint_storage(directory, store_options(configuration.to_dict()))
    check_savepoint_directory(storage)
    return storage


def unnamed_directory(configuration: Configuration) -> Unnamed:
    """What to do with checkpoints of an earlier version that do not name their job."""
    return Unnamed(value(configuration.to_dict(), UNNAMED, Unnamed.REFUSE.value))


def slot_settings(configuration: Configuration) -> SlotSettings:
    """Return whether and how long a job waits for free slots."""
    return SlotSettings(configuration.get_boolean(WAIT, False), length_of(configuration, SLOT_TIMEOUT, "5 min"))


def length_of(configuration: Configuration, key: str, default: str) -> int:
    """Return a duration of a configuration in milliseconds."""
    return int(value(configuration.to_dict(), key, milliseconds(key, default) if default else 0))


def whole_number(configuration: Configuration, key: str, default: int) -> int:
    """Also a number of bytes."""
    return int(value(configuration.to_dict(), key, default))


def restart_strategy(configuration: Configuration, checkpointing: bool) -> RestartStrategy:
    """The strategy that is configured; where none is, that of jobs with checkpoints, or none at all."""
    chosen = configured_strategy(configuration)
    if isinstance(chosen, RestartStrategies.FixedDelayRestartStrategyConfiguration):
        delay = to_millis(chosen.get_delay_between_attempts_interval())
        return FixedDelay(chosen.get_restart_attempts(), delay)
    if isinstance(chosen, RestartStrategies.FailureRateRestartStrategyConfiguration):
        interval = to_millis(chosen.get_failure_interval())
        delay = to_millis(chosen.get_delay_between_attempts_interval())
        return FailureRate(chosen.get_max_failure_rate(), interval, delay)
    if isinstance(chosen, RestartStrategies.ExponentialDelayRestartStrategyConfiguration):
        return ExponentialDelay(
            to_millis(chosen.get_initial_backoff()),
            to_millis(chosen.get_max_backoff()),
            chosen.get_backoff_multiplier(),
            to_millis(chosen.get_reset_backoff_threshold()),
            chosen.get_jitter_factor(),
            chosen.get_attempts_before_reset_backoff(),
        )
    by_default = isinstance(chosen, RestartStrategies.FallbackRestartStrategyConfiguration)
    return WITH_CHECKPOINTS if by_default and checkpointing else NoRestart()
