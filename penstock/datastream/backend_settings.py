"""The backend that a job's settings name, checked before anything runs."""

from __future__ import annotations

import os
import re
import tempfile

from penstock.common.configuration import Configuration
from penstock.common.options import OPTIONS, BadSetting, value
from penstock.datastream.checkpoint_settings import checkpoint_interval, whole_number
from penstock.state.backends import Allocation, Backend, BadBackend, factory_of
from penstock.state.engines.boot import has_boot_id

_ENGINES = {"hashmap": "memory"}
"""Backends whose engine has another name than they have."""
_PREFIX = "state.backend."


def backend_settings(config: Configuration) -> tuple[Backend, bool]:
    """The backend, and whether checkpoints are files."""
    directory = config.get_string("state.checkpoints.dir", "")
    # Checkpoints of a job that names neither a directory nor a backend are in the driver's memory, and so is its state.
    # A job without checkpoints has its state on local disk.
    in_memory = not directory and (checkpoint_interval(config) > 0 or not has_boot_id())
    given = config.get_string("state.backend", "memory" if in_memory else "filesystem")
    name, in_driver = backend_name(given)
    if config.contains_key("state.backend") and not directory and name != "memory":
        raise BadSetting(
            f"state.backend is {given}, but state.checkpoints.dir is not set: where to put checkpoints?",
            fix="Set state.checkpoints.dir to a directory, e.g. file:///var/checkpoints.",
        )
    threads = whole_number(config, "state.backend.rocksdb.checkpoint.transfer.thread.num", 4)
    given_directories = _directories(config)
    backend = Backend(
        name=name,
        directories=given_directories or [default_directory()],
        allocation=_allocation(config),
        options=_options(config),
        transfer_threads=threads,
        private=not given_directories,
    )
    try:
        factory_of(backend)
    except BadBackend as error:
        raise BadSetting(error.problem, fix=error.fix) from error
    return backend, bool(directory) and not in_driver


def backend_name(given: str) -> tuple[str, bool]:
    """Return the engine that `state.backend` names, and whether checkpoints are in the driver's memory.

    The second is True only for `memory`: then checkpoints are there even if a directory is set.
    """
    backend = OPTIONS["state.backend"].type.parse("state.backend", given)
    return _ENGINES.get(backend, backend), backend == "memory"


def default_directory() -> str:
    """Where replicas live if no directory is set."""
    return os.path.join(tempfile.gettempdir(), f"penstock-replicas-{os.getuid()}")


def _directories(config: Configuration) -> list[str]:
    given = config.get_string("state.backend.local-dir", "")
    return [path.removeprefix("file://") for path in re.split(r"\s*,\s*", given.strip()) if path]


def _allocation(config: Configuration) -> Allocation:
    key = "state.backend.local-dir.allocation"
    return Allocation[value(config.to_dict(), key, Allocation.RANDOM_START.name)]


def _options(config: Configuration) -> dict[str, str]:
    settings = config.to_dict()
    return {key.removeprefix(_PREFIX): value for key, value in sorted(settings.items()) if key.startswith(_PREFIX)}
