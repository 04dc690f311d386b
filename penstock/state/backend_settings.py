"""Read the state backend from a job's settings and validate it before anything runs."""

from __future__ import annotations

import os
import re
import tempfile

from penstock.common.configuration import Configuration
from penstock.common.options import BadSetting
from penstock.common.options.checkpoints import CHECKPOINT_INTERVAL, CHECKPOINT_STORAGE, CHECKPOINTS_DIRECTORY
from penstock.common.options.state import (
    ALLOCATION,
    BACKEND_OPTIONS,
    LOCAL_DIRECTORIES,
    STATE_BACKEND,
    TRANSFER_THREADS,
)
from penstock.state.backends import Allocation, Backend, BadBackend, factory_of
from penstock.state.engines.boot import has_boot_id

_ENGINES = {"hashmap": "memory"}
"""Engine names of the backends whose engine has a different name."""


def backend_settings(config: Configuration) -> tuple[Backend, bool]:
    """Return the backend, and whether checkpoints are stored as files."""
    directory = config.get(CHECKPOINTS_DIRECTORY)
    # If the job sets neither a checkpoint directory nor a backend, checkpoints and state are in the driver's memory.
    # A job without checkpoints keeps its state on local disk.
    in_memory = not directory and (bool(config.get(CHECKPOINT_INTERVAL)) or not has_boot_id())
    given = config.get_string(STATE_BACKEND.key, "memory" if in_memory else "filesystem")
    if config.get(CHECKPOINT_STORAGE) == "jobmanager":
        given = "memory"
    name, in_driver = backend_name(given)
    if config.contains_key(STATE_BACKEND.key) and not directory and name != "memory":
        raise BadSetting(
            f"{STATE_BACKEND.key} is {given}, but {CHECKPOINTS_DIRECTORY.key} is not set.",
            fix=f"Set {CHECKPOINTS_DIRECTORY.key} to a directory, e.g. file:///var/checkpoints.",
        )
    backend = local_backend(name, config)
    try:
        factory_of(backend)
    except BadBackend as error:
        raise BadSetting(error.problem, fix=error.fix) from error
    return backend, bool(directory) and not in_driver


def local_backend(name: str, config: Configuration) -> Backend:
    """Return the description of a backend with the directories and options of these settings."""
    given_directories = _directories(config)
    return Backend(
        name=name,
        directories=given_directories or [default_directory()],
        allocation=Allocation[config.get(ALLOCATION)],
        options=_options(config),
        transfer_threads=config.get(TRANSFER_THREADS),
        private=not given_directories,
    )


def backend_name(given: str) -> tuple[str, bool]:
    """Return the engine name for a `state.backend` value, and whether the backend forces checkpoints into the driver's
    memory even if a checkpoint directory is set."""
    backend = str(STATE_BACKEND.type.parse(STATE_BACKEND.key, given))
    return _ENGINES.get(backend, backend), backend == "memory"


def default_directory() -> str:
    """Return the directory for replicas if none is configured."""
    return os.path.join(tempfile.gettempdir(), f"penstock-replicas-{os.getuid()}")


def _directories(config: Configuration) -> list[str]:
    given = config.get(LOCAL_DIRECTORIES)
    return [path.removeprefix("file://") for path in re.split(r"\s*,\s*", given.strip()) if path]


def _options(config: Configuration) -> dict[str, str]:
    settings = config.to_dict()
    return {
        key.removeprefix(BACKEND_OPTIONS): value
        for key, value in sorted(settings.items())
        if key.startswith(BACKEND_OPTIONS)
    }
