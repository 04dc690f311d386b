"""Submitting a program: its settings are resolved, its checkpoints found, and its job started on Spark."""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlparse

from penstock.checkpoint.job_directories import claim, find_directory, passing_storage, unnamed_directory
from penstock.checkpoint.lineages import SharedStorage
from penstock.common.configuration import Configuration, shown
from penstock.common.console import console
from penstock.common.interrupts import watch
from penstock.common.options import BadSetting, store_options
from penstock.common.options.checkpoints import CHECKPOINTS_DIRECTORY
from penstock.common.options.program import JOB_NAME
from penstock.common.options.running import MAX_EPOCH_RECORDS, QUIET
from penstock.common.overridden import Overridden
from penstock.common.source_locations import calling_location, warn
from penstock.connectors.flow_settings import flow_settings
from penstock.datastream.checkpoint_config import retention
from penstock.datastream.checks import warn_of_derived_uids, warn_of_missing_sinks
from penstock.datastream.control_point import open_to_commands, warn_of_other_drivers
from penstock.datastream.externalized_checkpoint_retention import ExternalizedCheckpointRetention
from penstock.datastream.guarantees import guarantee_of, is_single_epoch, log_guarantee
from penstock.datastream.job_client import LocalJobClient
from penstock.datastream.job_report import JobReport
from penstock.driver.checkpoint_settings import checkpoint_interval, driver_settings, restart_strategy
from penstock.driver.epoch_settings import Settings
from penstock.driver.slots import slot_settings
from penstock.graph.physical import PhysicalGraph
from penstock.savepoint.settings import restore_settings, savepoint_directory
from penstock.state.backend_settings import backend_settings
from penstock.state.backends import check_directory
from penstock.state.local_storage import LocalStorage
from penstock.state.object_storage import ObjectStorage

if TYPE_CHECKING:
    from penstock.datastream.environment import StreamExecutionEnvironment

_logger = logging.getLogger("penstock")
_NEVER_MS = 10 * 365 * 24 * 3600 * 1000
"""A batch is one epoch, which may take as long as it takes."""


def submit(env: StreamExecutionEnvironment, name: str, physical: PhysicalGraph, job_name: str | None) -> LocalJobClient:
    """Start the environment's program as job `name`. `job_name` is the name that the program gave, if any."""
    settings, root = state_settings(env._configuration, name)
    interval = env.get_checkpoint_interval()
    restore = restore_settings(env._configuration)
    single_epoch = is_single_epoch(env._graph, physical, env._configuration)
    if single_epoch:
        settings, root, interval = replace(settings, timeout_ms=_NEVER_MS), None, -1
    warn_of_derived_uids(env._graph, root)
    warn_of_missing_sinks(env._graph)
    if interval > 0 and root is None:
        warn(
            f"Job '{name}' starts from scratch: the Memory backend keeps checkpoints in the driver's memory, and "
            f"they end with it. With state.checkpoints.dir set, a driver that is started again goes on."
        )

    from penstock.spark.job import Job
    from penstock.spark.job_spec import JobSpec, check_savepoint_of

    spec = JobSpec(
        name=name,
        logical=env._graph,
        physical=physical,
        settings=settings,
        checkpoint_root=root,
        checkpointing=interval > 0,
        interval_ms=max(interval, 0),
        retain=retention(env._configuration) is ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION,
        restart_strategy=restart_strategy(env._configuration, interval > 0),
        parallelism=env.get_parallelism(),
        records_per_epoch=env._configuration.get(MAX_EPOCH_RECORDS),
        restore=restore,
        store_options=store_options(env._configuration.to_dict()),
        slots=slot_settings(env._configuration),
        on_epoch=list(env._on_epoch),
        flow=flow_settings(env._graph, env._configuration, single_epoch),
        single_epoch=single_epoch,
    )
    check_savepoint_of(spec)
    if spec.checkpointing and root is not None:
        claim(root, name)
    quiet = env._configuration.get(QUIET)
    console(quiet)
    if spec.checkpointing and root is not None:
        warn_of_other_drivers(name, root.where, env._configuration)
    log_guarantee(guarantee_of(name, env._graph, physical, env._configuration))
    log_overridden(env, job_name)
    for path in env._python_files:
        env.spark.sparkContext.addPyFile(path)
    job = Job(env.spark, spec)
    report = JobReport(job, console(quiet), quiet)
    job.at_start.append(report.started)
    spec.on_epoch.insert(0, report.completed)
    job.at_end.append(report.ended)
    configuration = Configuration.from_dict(env._configuration.to_dict())
    client = LocalJobClient(job, partial(savepoint_directory, configuration))
    job.at_end.append(open_to_commands(job, client, configuration))
    job.start()
    watch(job)
    return client


def state_settings(config: Configuration, name: str) -> tuple[Settings, SharedStorage | None]:
    """The settings of state and checkpoints, and the storage of checkpoints; None: the driver's memory."""
    directory = config.get(CHECKPOINTS_DIRECTORY)
    backend, in_files = backend_settings(config)
    check_directory(backend)
    settings = driver_settings(config, backend)
    root = None
    if in_files:
        checkpoints = _checkpoint_storage(config, directory)
        if checkpoint_interval(config) > 0:
            restore = restore_settings(config)
            origin = "" if restore is None else restore.origin
            root = find_directory(checkpoints, name, unnamed_directory(config), origin)
        else:
            root = passing_storage(checkpoints, name)
    return settings, root


def _checkpoint_storage(config: Configuration, directory: str) -> SharedStorage:
    options = store_options(config.to_dict())
    scheme = urlparse(directory).scheme
    if scheme in ("", "file"):
        return LocalStorage(local_path(CHECKPOINTS_DIRECTORY.key, directory))
    if scheme == "memory":
        raise BadSetting(
            "state.checkpoints.dir is a memory: URI, and that memory is one process's: no task would see it.",
            fix="For checkpoints in the driver's memory set state.backend to memory and leave the directory out.",
        )
    return ObjectStorage(directory, options)


def local_path(key: str, uri: str) -> str:
    """The local path of a directory given as a path or a file: URI."""
    parsed = urlparse(uri)
    if parsed.scheme not in ("", "file"):
        raise BadSetting(
            f"{key} is '{uri}': only local paths and file: URIs can be used.",
            fix="Mount the storage on every host and give the path, e.g. file:///mnt/checkpoints.",
        )
    return os.path.abspath(unquote(parsed.path) if parsed.scheme else uri)


def log_overridden(env: StreamExecutionEnvironment, job_name: str | None) -> None:
    """Say which settings of the command line have no effect, because the program decides otherwise."""
    for setting in env._configuration.overridden():
        _logger.warning("%s", setting)
    named = env._given.get(JOB_NAME.key)
    if named is not None and job_name and job_name != named:
        _logger.warning("%s", Overridden(JOB_NAME.key, named, job_name, calling_location()))
    for_spark = {key: value for key, value in env._given.items() if key.startswith("spark.")}
    if for_spark:
        conf = env.spark.sparkContext.getConf()
        for key, value in for_spark.items() if env._session_is_the_programs else ():
            if conf.get(key) != value:
                _logger.warning(
                    "The program started Spark itself. The %s=%s of the command line has no effect.",
                    key,
                    shown(key, value),
                )
