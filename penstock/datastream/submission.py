"""Submission of a program: resolve its settings, find its checkpoints and start its job on Spark."""

from __future__ import annotations

import logging
import os
import sys
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from penstock.checkpoint.job_directories import claim
from penstock.checkpoint.lineages import Lineages
from penstock.common.configuration import Configuration
from penstock.common.console import SECRETS, console
from penstock.common.interrupts import watch
from penstock.common.masking import masked_setting
from penstock.common.options import BadSetting, store_options, without_effect
from penstock.common.options.checkpoints import CHECKPOINTS_DIRECTORY, RECOVERY_PATH, SAVEPOINTS_DIRECTORY
from penstock.common.options.metrics import prometheus_reporters
from penstock.common.options.program import JOB_NAME
from penstock.common.options.running import MAX_EPOCH_RECORDS, QUIET
from penstock.common.overridden import Overridden
from penstock.common.source_locations import calling_location, warn
from penstock.common.without_effect import note
from penstock.common.without_effect import report as log_without_effect
from penstock.connectors.flow_settings import flow_settings
from penstock.control.metrics_endpoint import serve_metrics
from penstock.datastream.checks import warn_of_derived_uids, warn_of_missing_sinks
from penstock.datastream.control_point import open_to_commands, warn_of_other_drivers
from penstock.datastream.dependencies import configured_dependencies, make_importable, ship
from penstock.datastream.guarantees import guarantee_of, is_single_epoch, log_guarantee
from penstock.datastream.job_client import LocalJobClient
from penstock.datastream.job_report import JobReport
from penstock.datastream.state_serving import serve_memory, serve_state
from penstock.driver.checkpoint_settings import restart_strategy, retains_checkpoints, state_settings
from penstock.driver.slots import slot_settings, slots_needed
from penstock.graph.physical import PhysicalGraph
from penstock.savepoint.settings import restore_settings, savepoint_directory

if TYPE_CHECKING:
    from penstock.datastream.environment import StreamExecutionEnvironment

_CORES, _CORES_PER_TASK = "spark.cores.max", "spark.task.cpus"

_logger = logging.getLogger("penstock")


def submit(env: StreamExecutionEnvironment, name: str, physical: PhysicalGraph, job_name: str | None) -> LocalJobClient:
    """Start the environment's program as job ``name``. ``job_name`` is the name that the program passed, if any."""
    SECRETS.learn(env._configuration.to_dict(), sys.argv[1:])
    assignment = env._launch.assignment
    if assignment is not None:
        check_locations(env._configuration)
    settings, root = state_settings(env._configuration, name, "" if assignment is None else assignment.job_id)
    dependencies = configured_dependencies(env._configuration).and_those_of(env._dependencies)
    make_importable(dependencies)
    interval = env.get_checkpoint_interval()
    restore = restore_settings(Configuration.from_dict(env._configuration.to_dict() | dict(env._launch.final)))
    single_epoch = is_single_epoch(env._graph, physical, env._configuration)
    if single_epoch:
        # An attempt of a cluster's job continues where an earlier one died: it runs the batch, or commits its output.
        settings, root, interval = settings.of_batch(), root if assignment is not None else None, -1
    warn_of_derived_uids(env._graph, root)
    warn_of_missing_sinks(env._graph)
    if interval > 0 and root is None:
        warn(
            f"Job '{name}' starts from scratch: the memory backend keeps checkpoints in the driver's memory, where "
            f"they do not outlive it. Set state.checkpoints.dir to let a restarted driver resume."
        )

    from penstock.spark.job import Job
    from penstock.spark.job_spec import JobSpec, check_savepoint_of

    spec = JobSpec(
        name=name,
        logical=env._graph,
        physical=physical,
        settings=settings,
        checkpoint_root=root,
        checkpointing=interval > 0 or (single_epoch and assignment is not None and root is not None),
        interval_ms=max(interval, 0),
        retain=retains_checkpoints(env._configuration),
        restart_strategy=restart_strategy(env._configuration, interval > 0),
        parallelism=env.get_parallelism(),
        records_per_epoch=env._configuration.get(MAX_EPOCH_RECORDS),
        restore=restore,
        store_options=store_options(env._configuration.to_dict()),
        slots=slot_settings(env._configuration),
        on_epoch=list(env._on_epoch),
        flow=flow_settings(env._graph, env._configuration, single_epoch),
        configuration=env._configuration.to_dict(),
        single_epoch=single_epoch,
        assignment=assignment,
    )
    check_savepoint_of(spec)
    location = root.where if spec.traits.resumable and root is not None else ""
    if assignment is not None and assignment.resumes:
        assignment.bind(location)
        if location and root is not None:
            Lineages(root).check_begun()
    if assignment is None and spec.checkpointing and root is not None:
        claim(root, name)
    quiet = env._configuration.get(QUIET)
    console(quiet)
    if assignment is None and spec.checkpointing and root is not None:
        warn_of_other_drivers(name, root.where, env._configuration)
    log_guarantee(guarantee_of(name, env._graph, physical, env._configuration))
    if assignment is not None and env._spark is None:
        limit_cores(env._configuration, slots_needed(physical))
    log_overridden(env, job_name)
    reporters = prometheus_reporters(env._configuration.to_dict())
    for key, why in without_effect(env._configuration.key_set()).items():
        if not any(reporter.owns(key) for reporter in reporters):
            note(key, why)
    log_without_effect()
    ship(dependencies, env.spark)
    job = Job(env.spark, spec)
    if assignment is not None:
        # The job has its lineage now: a later attempt that finds none knows that it is lost.
        assignment.bind(location)
    report = JobReport(job, console(quiet), quiet)
    job.at_start.append(report.started)
    spec.on_epoch.insert(0, report.completed)
    job.at_end.append(report.ended)
    configuration = Configuration.from_dict(env._configuration.to_dict())
    client = LocalJobClient(job, partial(savepoint_directory, configuration))
    if env._launch.attach is not None:
        job.at_end.append(env._launch.attach(job, client))
    else:
        job.at_end.append(open_to_commands(job, client, configuration))
    memory = serve_memory(job.id, name, lambda: (job.driver.lineage, job.driver.storage), configuration)
    if memory is not None and spec.checkpointing and root is None:
        job.at_start.append(memory.start)
        job.at_end.append(memory.end)
    else:
        job.at_end.append(serve_state(job.id, name, root if spec.checkpointing else None, configuration))
    job.at_end.append(serve_metrics(configuration.to_dict(), lambda: [job.snapshot()], f"job '{name}'"))
    if env._launch.observe is not None:
        job.at_end.append(env._launch.observe(job, client))
    job.start()
    watch(job)
    return client


def check_locations(configuration: Configuration) -> None:
    """Refuse relative paths in the settings of a cluster's job: each attempt runs in another working directory."""
    for option in (CHECKPOINTS_DIRECTORY, SAVEPOINTS_DIRECTORY, RECOVERY_PATH):
        path = configuration.get(option)
        if path and not os.path.isabs(path) and not urlsplit(path).scheme:
            raise BadSetting(
                f"{option.key} is '{path}', a relative path, but each attempt of a cluster's job has another working "
                f"directory, which is removed with the job.",
                fix="Set an absolute path, or a URI such as s3://bucket/path.",
            )


def limit_cores(configuration: Configuration, slots: int) -> None:
    """Ask Spark for the cores of this many slots, unless the settings contain a number. Call before Spark starts.

    By default an application takes all cores of a standalone cluster, and the next job would wait for them.
    """
    if not configuration.contains_key(_CORES):
        configuration.set_string(_CORES, str(slots * configuration.get_integer(_CORES_PER_TASK, 1)))


def parallelism_of_spark(configuration: Configuration) -> int:
    """Return the default parallelism of an application on a Spark cluster, without starting it.

    Spark's own answer depends on how many executors have registered when it is asked, and is never less than two.
    """
    slots = configuration.get_integer(_CORES, 0) // configuration.get_integer(_CORES_PER_TASK, 1)
    return configuration.get_integer("spark.default.parallelism", 0) or slots or 2


def log_overridden(env: StreamExecutionEnvironment, job_name: str | None) -> None:
    """Log the settings of the command line that the program overrides."""
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
                    "The program started Spark itself, so %s=%s on the command line has no effect.",
                    key,
                    masked_setting(key, value),
                )
