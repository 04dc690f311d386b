"""Queries about the executors: whether they can run tasks and access the checkpoint directory, and how many tasks they
can run concurrently."""

from __future__ import annotations

import platform
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from penstock import __version__
from penstock.driver.slots import Slots
from penstock.errors import PenstockError
from penstock.graph.referenced_modules import referenced_modules
from penstock.spark.engine import SparkEngine
from penstock.spark.job_spec import JobSpec
from penstock.spark.session import runs_tasks_in_driver
from penstock.state.storage import Storage

_MOST_TASKS = 100
_PAUSE_S = 0.1
_OTHER_PYTHON = re.compile(r"PYTHON_VERSION_MISMATCH\].*?: ([\d.]+) than that in driver")
_NO_PYTHON = re.compile(r'Cannot run program "([^"]+)"')


class ExecutorsNotReady(PenstockError):
    """Executors lack Python, packages or modules that the job needs, or access to the checkpoint directory.

    Operator action: ship or install each item that the message lists. Nothing was started.
    """


class _Found(msgspec.Struct, kw_only=True):
    """What a task found on its executor. Versions are empty, and errors are set, for packages it cannot import."""

    host: str
    penstock: str
    pyarrow: str
    missing: dict[str, str]
    """By module that cannot be imported, the error."""
    marker: str
    storage: str
    """Why it cannot write to the checkpoint directory."""


def check_first_executors(
    session: SparkSession, spec: JobSpec, engine: SparkEngine, slots: Slots, goes_on_after: Callable[[float], bool]
) -> None:
    """Wait for executors in other processes and check them, before the first task of a job.

    A job that is stopping runs no task, so it does neither. `goes_on_after` waits some seconds and returns whether the
    job goes on. Raises ExecutorsNotReady and TooFewSlots.
    """
    context = session.sparkContext
    if runs_tasks_in_driver(str(context.master)):
        return
    # With dynamic allocation, Spark requests executors only for tasks that wait.
    waits = context.getConf().get("spark.dynamicAllocation.enabled", "false") != "true"
    if not goes_on_after(0) or (waits and not slots.await_first(lambda: goes_on_after(_PAUSE_S))):
        return
    try:
        with engine.stoppable():
            check_executors(session, spec.checkpoint_root, referenced_modules(spec.physical))
    except Exception:
        if goes_on_after(0):
            raise


def check_executors(session: SparkSession, checkpoint_root: Storage | None, modules: Sequence[str] = ()) -> None:
    """Run a small task in each slot.

    Args:
        session: The session.
        checkpoint_root: The checkpoint directory, if the job has one.
        modules: The modules that the job's functions refer to.

    Raises:
        ExecutorsNotReady: The message lists everything that executors lack, and how to provide it.
    """
    root = checkpoint_root
    found = _look(session, root, modules)
    problems: dict[str, set[str]] = {}
    for each in found:
        for problem in (*_package_problems(each), *_storage_problems(each, root)):
            problems.setdefault(problem, set()).add(each.host)
    if root is not None:
        for each in found:
            root.delete(each.marker)
    if problems:
        lines = [f"- {', '.join(sorted(hosts))}: {problem}" for problem, hosts in problems.items()]
        raise ExecutorsNotReady("The executors are not ready for this job.\n" + "\n".join(lines))


def _look(session: SparkSession, root: Storage | None, modules: Sequence[str]) -> list[_Found]:
    uri = None if root is None else root.uri
    prefix, wanted = f"seen-{uuid.uuid4().hex}", list(modules)

    # Refers to nothing outside itself: an executor without Penstock must be able to read it.
    def look(number: int, _: Iterable[Any]) -> Iterator[dict[str, Any]]:
        import importlib
        import platform

        versions, missing, storage = {}, {}, ""
        for name in ("penstock", "pyarrow", *wanted):
            try:
                if name == "penstock":
                    # Imports what tasks need.
                    importlib.import_module("penstock.spark.worker")
                versions[name] = getattr(importlib.import_module(name), "__version__", "")
            except Exception as error:
                missing[name] = str(error) or type(error).__name__
        if uri is not None and "penstock" in versions:
            try:
                from penstock.state.storage_uri import open_storage

                open_storage(uri).write(f"{prefix}-{number}", b"")
            except Exception as error:
                storage = getattr(error, "problem", "") or f"{type(error).__name__}: {error}"
        yield {
            "host": platform.node(),
            "penstock": versions.get("penstock", ""),
            "pyarrow": versions.get("pyarrow", ""),
            "missing": missing,
            "marker": f"{prefix}-{number}",
            "storage": storage,
        }

    tasks = min(max(slot_counter(session)(), 1), _MOST_TASKS)
    try:
        found = session.sparkContext.parallelize(range(tasks), tasks).mapPartitionsWithIndex(look).collect()
    except (PySparkException, Py4JError) as error:
        raise _without_python(str(error)) or error from None
    return [msgspec.convert(each, _Found) for each in found]


def _without_python(error: str) -> ExecutorsNotReady | None:
    ours = platform.python_version()
    if other := _OTHER_PYTHON.search(error):
        return ExecutorsNotReady(
            f"The executors have Python {other[1]}, but the driver has {ours}.",
            fix="Install the same version on all hosts and set spark.pyspark.python to its path there, or ship an "
            "environment with --archives env.tar.gz#env and -D spark.pyspark.python=./env/bin/python.",
        )
    if program := _NO_PYTHON.search(error):
        return ExecutorsNotReady(
            f"An executor cannot run '{program[1]}', the Python interpreter of the workers.",
            fix="Set spark.pyspark.python, or call env.set_python_executable(), with its path on the executors' hosts.",
        )
    return None


def _package_problems(found: _Found) -> Iterator[str]:
    if "penstock" in found.missing:
        yield (
            f"penstock {__version__} cannot be imported ({found.missing['penstock']}). Install it in their Python "
            f"(spark.pyspark.python), or ship an environment with --archives."
        )
    elif found.penstock != __version__:
        yield f"penstock is {found.penstock}, but the driver has {__version__}. Install the same version."
    if "pyarrow" in found.missing:
        yield f"pyarrow {pa.__version__} cannot be imported ({found.missing['pyarrow']}). Install it."
    elif _major(found.pyarrow) != _major(pa.__version__):
        yield f"pyarrow is {found.pyarrow}, but the driver has {pa.__version__}. Install the same version."
    modules = [f"{name} ({why})" for name, why in found.missing.items() if name not in ("penstock", "pyarrow")]
    if modules:
        yield (
            f"modules cannot be imported: {', '.join(modules)}. Ship your own modules with --py-files and packages "
            f"with --requirements, or install them."
        )


def _storage_problems(found: _Found, root: Storage | None) -> Iterator[str]:
    if root is None or "penstock" in found.missing:
        return
    if found.storage:
        why = found.storage.replace(f"'{found.marker}'", "a file")
        yield (
            f"cannot write to {root.where}, but the driver can: {why} Make sure that all hosts can reach "
            f"state.checkpoints.dir, with the same packages installed and with credentials in state.checkpoints.fs.* "
            f"or in the executors' environment."
        )
    elif not root.exists(found.marker):
        yield (
            f"the driver cannot see a file that was written to {root.where} there. state.checkpoints.dir must be on "
            f"storage that all hosts share."
        )


def _major(version: str) -> str:
    return version.partition(".")[0]


def slot_counter(session: SparkSession) -> Callable[[], int]:
    """Return a function that counts the tasks that live executors can run concurrently; on `local[n]`, n.

    It queries Spark's scheduler, which takes 0.06 ms on `local[2]` and 0.1 ms with two executors. A killed executor
    stops counting after 20 ms.
    """
    context = session.sparkContext._jsc.sc()
    profile = context.resourceProfileManager().defaultResourceProfile()
    return lambda: int(context.maxNumConcurrentTasks(profile))
