"""The Spark session of a job: settings for short epochs and a quiet console."""

from __future__ import annotations

import atexit
import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.resources import files
from typing import Any

import pyspark
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from penstock.common.console import above_status
from penstock.common.masking import masked_setting
from penstock.common.options.program import DEFAULT_MASTER
from penstock.common.scratch import scratch_directory
from penstock.common.spark_submit import started_by_spark_submit
from penstock.errors import PenstockError
from penstock.spark.jvm import end_quietly
from penstock.spark.lost import brief
from penstock.spark.start_checks import check_before_start

_NOISE = (
    "WARNING: Using incubator modules",
    "Using Spark's default log4j profile",
    "Setting default log level to",
    "To adjust logging level use",
    "WARNING: package sun.security.action not in java.base",
)

_PYSPARK = os.path.dirname(pyspark.__file__)

_LONGEST_SOCKET_FOLDER = 60
"""A socket path is limited to 107 characters, and Spark's file name takes 42."""

_REQUIRED = {
    # A partition index must be a subtask index.
    "spark.sql.adaptive.enabled": "false",
    # Protects an epoch from nondeterministic user code: Spark notices that a retried task produced different output
    # and fails the epoch instead of mixing both.
    "spark.sql.shuffle.orderIndependentChecksum.enabled": "true",
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch": "true",
    "spark.speculation": "false",
}


class SparkNotStarted(PenstockError):
    """Spark did not start. Operator action: read the output of its JVM above the message."""


class UnsafeSetting(PenstockError):
    """A Spark setting would break the guarantees of an epoch. Operator action: set the value that the message gives."""


def default_conf(master: str = DEFAULT_MASTER) -> dict[str, str]:
    """Return the default Spark settings of Penstock jobs, which were measured to shorten epochs."""
    log4j = files("penstock.spark") / "log4j2.properties"
    java_options = f"-Dlog4j2.configurationFile=file:{log4j}"
    local = {}
    if master.startswith("local"):
        # The optimizing compiler would take two fifths of the CPU time of a start and of the minutes after it. It
        # compiles planning, not data processing. After 400 epochs, epochs are as fast as with it.
        java_options += " -XX:TieredStopAtLevel=1"
        # On a cluster, workers might get Penstock only after they are forked.
        local = {"spark.python.daemon.module": "penstock.spark.daemon"}
    return {
        **_REQUIRED,
        "spark.master": master,
        "spark.app.name": "penstock",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
        ),
        "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.streaming.numRecentProgressUpdates": "10",
        # Spark remembers jobs, stages and plans for its UI, even if the UI is off: 1,000 of each by default. An epoch
        # adds one of each, so the heap would grow for the first thousand epochs.
        "spark.ui.retainedJobs": "100",
        "spark.ui.retainedStages": "200",
        "spark.ui.retainedTasks": "2000",
        "spark.sql.ui.retainedExecutions": "50",
        # Otherwise an epoch's shuffle files stay until the JVM collects its plan, which can take half an hour.
        "spark.sql.classic.shuffleDependency.fileCleanup.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.pyspark.python": sys.executable,
        "spark.driver.extraJavaOptions": java_options,
        "spark.executor.extraJavaOptions": java_options,
        # Otherwise RDDs and DataFrames use different Python workers. Penstock shortens tracebacks itself.
        "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
        **local,
    }


def running_session() -> SparkSession | None:
    """Return the session that `start_session` would reuse."""
    return SparkSession.getActiveSession()


def start_session(overrides: dict[str, str]) -> SparkSession:
    """Return the running session, or start one. `overrides` are the user's `spark.*` settings."""
    active = running_session()
    if active is not None:
        check_session(active)
        return active
    given = {**_submitted_conf(), **overrides}
    conf = {**default_conf(given.get("spark.master", DEFAULT_MASTER)), **given}
    check_before_start(conf)
    conf["spark.pyspark.python"] = worker_python(given, os.environ)
    if conf["spark.master"].startswith("local"):
        # A local job must not listen beyond this machine.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        conf.setdefault("spark.driver.host", "127.0.0.1")
        conf.setdefault("spark.driver.bindAddress", "127.0.0.1")
        # Killed workers leave their sockets behind.
        sockets = str(scratch_directory())
        if len(sockets) < _LONGEST_SOCKET_FOLDER:
            conf.setdefault("spark.python.unix.domain.socket.dir", sockets)
    bridge = logging.getLogger("py4j")
    if bridge.level == logging.NOTSET:
        # At INFO it logs every connection to the JVM, which shows after logging.basicConfig(level=INFO).
        bridge.setLevel(logging.WARNING)
    quiet_bridge()
    builder = SparkSession.builder
    for key, value in conf.items():
        builder = builder.config(key, value)
    try:
        with (
            _QuietStart(),
            environment_variable("PYTHONPATH", _import_path(conf["spark.master"])),
            # Without `spark-submit`, PySpark reads only the variable and not the setting.
            environment_variable("PYSPARK_PYTHON", conf["spark.pyspark.python"]),
            _deaf_to_signals(),
        ):
            _start_jvm(conf)
            session = builder.getOrCreate()
    except (PySparkException, Py4JError) as error:
        raise _not_started(error, conf) from None
    end_quietly(session.sparkContext)
    check_session(session)
    if not runs_tasks_in_driver(conf["spark.master"]):
        atexit.register(_stop, session)
    return session


def runs_tasks_in_driver(master: str) -> bool:
    """Return whether the driver is the only executor of a master."""
    return re.fullmatch(r"local(\[.*\])?", master) is not None


def _stop(session: SparkSession) -> None:
    """Release the executors when the program ends.

    Otherwise the JVM does so while it exits. On `local-cluster`, that takes half a minute, in which it starts a hundred
    executors, some of which remain.
    """
    with suppress(Exception):  # the program, or the end of the JVM, has stopped it
        session.stop()


def worker_python(given: Mapping[str, str], environment: Mapping[str, str]) -> str:
    """Return the interpreter of the workers: the user's setting, the environment variable or the driver's own."""
    return given.get("spark.pyspark.python") or environment.get("PYSPARK_PYTHON") or sys.executable


@contextmanager
def environment_variable(name: str, value: str | None) -> Iterator[None]:
    """Set a variable, unless the value is None, and restore it at the end.

    The next session of this process and its child processes must not inherit it.
    """
    before = os.environ.get(name)
    if value is not None:
        os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = before


def _start_jvm(conf: dict[str, str]) -> None:
    """Start the JVM without the settings that hold secrets: PySpark passes settings in the command line of the JVM.

    The session gets all settings, through the bridge to the JVM.
    """
    public = SparkConf(loadDefaults=False)
    for key, value in conf.items():
        if masked_setting(key, value) == value:
            public.set(key, value)
    SparkContext._ensure_initialized(conf=public)


def _submitted_conf() -> dict[str, str]:
    """Return the settings of the command line of `spark-submit`, if it started the program."""
    if not started_by_spark_submit():
        return {}
    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())


def quiet_bridge() -> None:
    """Keep py4j from printing a traceback for each call that fails when the JVM dies. The job reports the cause.

    py4j logs these tracebacks to the root logger, so the level of the `py4j` logger has no effect.
    """
    root = logging.getLogger()
    if _not_of_the_bridge not in root.filters:
        root.addFilter(_not_of_the_bridge)


def _not_of_the_bridge(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    return not (isinstance(error, Py4JNetworkError) and record.module == "java_gateway")


def check_session(session: SparkSession) -> None:
    """Raise for settings that could tear an epoch, and set those that can be changed on a running session."""
    if not hasattr(session, "_jsparkSession"):
        raise UnsafeSetting(
            "Penstock needs a classic Spark session, because foreachBatch has no SparkContext under Spark Connect. "
            "Create the session with SparkSession.builder.master(...), without remote(...)."
        )
    context = session.sparkContext.getConf()
    for key, bad, why in (
        ("spark.speculation", "true", "a second attempt of a task would race the first"),
        ("spark.shuffle.push.enabled", "true", "merged blocks lose the checksums that protect an epoch"),
    ):
        if context.get(key, "false") == bad:
            raise UnsafeSetting(f"{key}={bad} is not supported: {why}. Set {key}=false.")
    manager = context.get("spark.shuffle.manager", "sort")
    if manager not in ("sort", "tungsten-sort", "org.apache.spark.shuffle.sort.SortShuffleManager"):
        raise UnsafeSetting(f"spark.shuffle.manager={manager} is not supported: it has no row checksums. Use 'sort'.")
    for key, value in _REQUIRED.items():
        if key.startswith("spark.sql."):
            session.conf.set(key, value)


def _not_started(error: Exception, conf: dict[str, str]) -> SparkNotStarted:
    if isinstance(error, PySparkException) and error.getCondition() == "JAVA_GATEWAY_EXITED":
        packages = conf.get("spark.jars.packages")
        fix = f"Check whether this host can download spark.jars.packages, {packages}." if packages else ""
        return SparkNotStarted(
            "Spark did not start: its JVM ended before it was ready. Its output is above.",
            fix=fix or "Make sure that Java 17 or later is installed (java -version), or set JAVA_HOME.",
        )
    return SparkNotStarted(
        f"Spark did not start: {brief(error)}",
        fix=f"Check spark.master, {conf['spark.master']}, and the spark.* settings.",
    )


def _import_path(master: str) -> str | None:
    """Return the path on which workers on this machine find the same modules as the program. None on a cluster."""
    if not master.startswith("local"):
        return None
    return os.pathsep.join(
        os.path.abspath(path)
        for path in sys.path
        if path == "" or (os.path.isdir(path) and "site-packages" not in path) or _is_package_file(path)
    )


def _is_package_file(path: str) -> bool:
    """Return whether a path is a file of modules that does not belong to PySpark."""
    return path.endswith((".zip", ".egg", ".whl")) and os.path.isfile(path) and not path.startswith(_PYSPARK)


_starting_jvm = False


def _ignore_signals() -> None:
    if _starting_jvm:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)


os.register_at_fork(after_in_child=_ignore_signals)


@contextmanager
def _deaf_to_signals() -> Iterator[None]:
    """Start a JVM that ignores signals to the process group.

    The driver receives such a signal too, and still needs the JVM to finish the epoch. The JVM ends with the driver,
    which closes the JVM's standard input. PySpark does the same for SIGINT.
    """
    global _starting_jvm
    _starting_jvm = True
    try:
        yield
    finally:
        _starting_jvm = False


class _QuietStart:
    """Gives the starting JVM a pipe as standard error, and forwards everything except its known startup messages.

    The pipe stays open for the life of the JVM and carries the output of user functions.
    """

    def __enter__(self) -> None:
        sys.stderr.flush()
        self._saved = os.dup(2)
        reader, writer = os.pipe()
        os.dup2(writer, 2)
        os.close(writer)
        threading.Thread(target=_pass_on, args=(reader, os.dup(self._saved)), daemon=True).start()

    def __exit__(self, *exc: Any) -> None:
        sys.stderr.flush()
        os.dup2(self._saved, 2)
        os.close(self._saved)


def _pass_on(reader: int, target: int) -> None:
    with os.fdopen(reader, "rb") as lines, os.fdopen(target, "wb", buffering=0) as out:
        for line in lines:
            if not line.decode(errors="replace").startswith(_NOISE):
                with above_status():
                    out.write(line)
