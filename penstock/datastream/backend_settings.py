"""The backend that a job's settings name, checked before anything runs."""

from __future__ import annotations

import os
import re
import tempfile

from penstock.common.configuration import Configuration
from penstock.common.options import OPTIONS, BadSetting, value
from penstock.datastream.checkpoint_settings import whole_number
from penstock.state.backends import Allocation, Backend, BadBackend, factory_of

_ENGINES = {"hashmap": "memory"}
"""Backends whose engine has another name than they have."""
_PREFIX = "state.backend."


def backend_settings(config: Configuration) -> tuple[Backend, bool]:
    """The backend, and whether checkpoints are files."""
    directory = config.get_string("state.checkpoints.dir", "")
    given = config.get_string("state.backend", "filesystem" if directory else "memory")
    given = OPTIONS["state.backend"].type.parse("state.backend", given)
    name = _ENGINES.get(given, given)
    if not directory and given not in ("memory", "hashmap"):
        raise BadSetting(
            f"state.backend is {given}, but state.checkpoints.dir is not set: where to put checkpoints?",
            fix="Set state.checkpoints.dir to a directory, e.g. file:///var/checkpoints.",
        )
    threads = whole_number(config, "state.backend.rocksdb.checkpoint.transfer.thread.num", 4)
    backend = Backend(name, _directories(config), _allocation(config), _options(config), threads)
    try:
        factory_of(backend)
    except BadBackend as error:
        raise BadSetting(error.problem, fix=error.fix) from error
    # The checkpoints of `memory` are in the driver's memory, whatever directory is set.
    return backend, bool(directory) and given != "memory"


def _directories(config: Configuration) -> list[str]:
    default = os.path.join(tempfile.gettempdir(), f"penstock-{os.getuid()}", "replicas")
    given = config.get_string("state.backend.local-dir", default)
    return [path.removeprefix("file://") for path in re.split(r"\s*,\s*", given.strip()) if path] or [default]


def _allocation(config: Configuration) -> Allocation:
    key = "state.backend.local-dir.allocation"
    return Allocation[value(config.to_dict(), key, Allocation.RANDOM_START.name)]


def _options(config: Configuration) -> dict[str, str]:
    settings = config.to_dict()
    return {key.removeprefix(_PREFIX): value for key, value in sorted(settings.items()) if key.startswith(_PREFIX)}
