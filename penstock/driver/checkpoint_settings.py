"""Settings of checkpoints and restarts: from configuration keys to the objects that the driver uses."""

from __future__ import annotations

from urllib.parse import urlparse

from penstock.checkpoint.job_directories import find_directory, passing_storage, unnamed_directory
from penstock.checkpoint.lineages import SharedStorage
from penstock.checkpoint.pins import PinLimits
from penstock.common.configuration import Configuration
from penstock.common.local_paths import local_path
from penstock.common.options import BadSetting, store_options
from penstock.common.options.checkpoints import (
    BASE_MIN_BYTES,
    CHECKPOINT_INTERVAL,
    CHECKPOINT_RETENTION,
    CHECKPOINT_TIMEOUT,
    CHECKPOINTING_MODE,
    CHECKPOINTS_DIRECTORY,
    MAX_CONCURRENT_CHECKPOINTS,
    MIN_PAUSE,
    RETAINED_CHECKPOINTS,
    TOLERABLE_FAILED_CHECKPOINTS,
)
from penstock.common.options.query import PIN_AGE, PIN_CHECKPOINTS, QUERYABLE_STATE
from penstock.common.options.state import (
    ASYNCHRONOUS_SNAPSHOTS,
    MAX_STATE_SIZE,
    OVERLAY_MEMORY,
    STANDBY_REPLICAS,
    STATE_BACKEND,
)
from penstock.common.restart_strategy import RestartStrategies, configured_strategy
from penstock.common.time import to_millis
from penstock.common.without_effect import note
from penstock.driver.epoch_settings import Settings
from penstock.driver.job_snapshot import CheckpointFacts
from penstock.driver.restarts import (
    WITH_CHECKPOINTS,
    ExponentialDelay,
    FailureRate,
    FixedDelay,
    NoRestart,
    RestartStrategy,
)
from penstock.savepoint.settings import restore_settings
from penstock.state.backend_settings import backend_settings
from penstock.state.backends import Backend, check_directory
from penstock.state.local_storage import LocalStorage
from penstock.state.object_storage import ObjectStorage


def state_settings(configuration: Configuration, name: str, job_id: str = "") -> tuple[Settings, SharedStorage | None]:
    """Return the driver's settings and the checkpoint storage, which is None for the driver's memory.

    A job of a cluster has a `job_id` and keeps its checkpoints under it. Others resume by name.
    """
    backend, in_files = backend_settings(configuration)
    check_directory(backend)
    settings = _driver_settings(configuration, backend)
    root = None
    if in_files:
        checkpoints = _checkpoint_storage(configuration)
        if job_id:
            root = checkpoints.below(job_id)
            root.check()
        elif checkpoint_interval(configuration) > 0:
            restore = restore_settings(configuration)
            origin = "" if restore is None else restore.origin
            root = find_directory(checkpoints, name, unnamed_directory(configuration), origin)
        else:
            root = passing_storage(checkpoints, name)
    return settings, root


def _checkpoint_storage(configuration: Configuration) -> SharedStorage:
    directory = configuration.get(CHECKPOINTS_DIRECTORY)
    scheme = urlparse(directory).scheme
    if scheme in ("", "file"):
        return LocalStorage(local_path(CHECKPOINTS_DIRECTORY.key, directory))
    if scheme == "memory":
        raise BadSetting(
            "state.checkpoints.dir is a memory: URI. Such memory belongs to one process, so tasks could not read it.",
            fix="To keep checkpoints in the driver's memory, set state.backend to memory and leave the directory out.",
        )
    return ObjectStorage(directory, store_options(configuration.to_dict()))


def _standby_replicas(configuration: Configuration, backend: Backend) -> int:
    number: int = configuration.get(STANDBY_REPLICAS)
    if number and backend.name == "memory":
        raise BadSetting(
            f"{STANDBY_REPLICAS.key} is {number}, but replicas are in the memory of single processes.",
            fix=f"Set {CHECKPOINTS_DIRECTORY.key}, and {STATE_BACKEND.key} to filesystem or rocksdb, or leave "
            f"{STANDBY_REPLICAS.key} out.",
        )
    return number


def _driver_settings(configuration: Configuration, backend: Backend) -> Settings:
    """Return the checkpoint settings of a job that uses this backend."""
    _accept_concurrent(configuration.get(MAX_CONCURRENT_CHECKPOINTS))
    return Settings(
        backend=backend,
        memory_limit=configuration.get(MAX_STATE_SIZE),
        base_bytes=configuration.get(BASE_MIN_BYTES),
        overlay_bytes=configuration.get(OVERLAY_MEMORY),
        retained=configuration.get(RETAINED_CHECKPOINTS),
        timeout_ms=configuration.get(CHECKPOINT_TIMEOUT),
        min_pause_ms=configuration.get(MIN_PAUSE),
        tolerable_failures=configuration.get(TOLERABLE_FAILED_CHECKPOINTS),
        standby_replicas=_standby_replicas(configuration, backend),
        at_least_once=configuration.get(CHECKPOINTING_MODE) == "AT_LEAST_ONCE",
        asynchronous=configuration.get(ASYNCHRONOUS_SNAPSHOTS),
        queryable=configuration.get(QUERYABLE_STATE),
        pins=PinLimits(configuration.get(PIN_AGE), configuration.get(PIN_CHECKPOINTS)),
    )


def checkpoint_interval(configuration: Configuration) -> int:
    """Return the interval in milliseconds, or -1 if checkpointing is off."""
    interval = configuration.get(CHECKPOINT_INTERVAL)
    return -1 if interval is None else interval


def checkpoint_facts(settings: Settings, interval_ms: int, retained: bool, storage: str | None) -> CheckpointFacts:
    """Return the settings as the job's snapshot shows them. `storage`: None for the driver's memory."""
    return CheckpointFacts(
        enabled=interval_ms > 0,
        exactly_once=not settings.at_least_once,
        interval_ms=max(interval_ms, 0),
        timeout_ms=settings.timeout_ms,
        min_pause_ms=settings.min_pause_ms,
        tolerable_failures=settings.tolerable_failures,
        retained=retained,
        backend=settings.backend.name,
        storage=storage or "",
    )


def retains_checkpoints(configuration: Configuration) -> bool:
    """Return whether a job's checkpoints are kept after it ends."""
    return configuration.get(CHECKPOINT_RETENTION) == "RETAIN_ON_CANCELLATION"


def _accept_concurrent(number: int) -> None:
    if number > 1:
        note(MAX_CONCURRENT_CHECKPOINTS.key, "every epoch ends in a checkpoint, and the next epoch builds on it")


def restart_strategy(configuration: Configuration, checkpointing: bool) -> RestartStrategy:
    """Return the configured strategy. The default depends on whether checkpointing is on."""
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
