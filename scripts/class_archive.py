"""An archive of Spark's classes as a JVM has them in memory (class data sharing), for tests, which start many JVMs.

Most of what a JVM does until its first epoch is over is to read, check and link ten thousand classes. One that maps
them takes 9 s of CPU from its start to the end of a small job, where another takes 16. One that finds the archive
missing, or made from other jars or by another Java, goes on without it.

`python -m scripts.class_archive FILE` makes one from what a small job loads.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import MutableMapping
from importlib.util import find_spec
from pathlib import Path

_WITH = "PYSPARK_SUBMIT_ARGS"


def use(archive: Path, environment: MutableMapping[str, str]) -> None:
    """Every driver that is started in this environment, and its executors on this machine, have the archive."""
    environment[_WITH] = _arguments(*2 * [f"-XX:SharedArchiveFile={archive}"])


def without(environment: MutableMapping[str, str]) -> dict[str, str]:
    """The environment of a user, who has no archive."""
    return {name: value for name, value in environment.items() if name != _WITH}


def make(archive: Path) -> None:
    # Whoever maps a file that is not complete dies of it.
    unfinished = archive.with_suffix(".unfinished")
    unfinished.unlink(missing_ok=True)
    # It tells of each of the classes that cannot be in it.
    options = f"-XX:ArchiveClassesAtExit={unfinished} -Xlog:disable"
    with tempfile.TemporaryDirectory(prefix="penstock-classes-") as folder:
        subprocess.run(
            [sys.executable, "-m", __spec__.name, "--job", folder],
            env={**os.environ, _WITH: _arguments(options, "")},
            check=True,
        )
    unfinished.rename(archive)


def _arguments(driver: str, executor: str) -> str:
    pyspark = find_spec("pyspark")
    assert pyspark is not None
    assert pyspark.origin is not None
    # An archive is for one class path, and that of executors begins so. PySpark looks for jars beside its real path.
    (first,) = (Path(pyspark.origin).resolve().parent / "jars").glob("slf4j-api-*.jar")
    settings = {
        "spark.driver.extraClassPath": str(first),
        "spark.driver.defaultJavaOptions": driver,
        "spark.executor.defaultJavaOptions": executor,
    }
    arguments = [argument for key, value in settings.items() for argument in ("--conf", f"{key}={value}")]
    return shlex.join([*arguments, "pyspark-shell"])


def _job(folder: str) -> None:
    """Two epochs with an exchange and state, which load what most jobs need."""
    from penstock.common import Configuration
    from penstock.datastream import StreamExecutionEnvironment
    from penstock.datastream.connectors import DiscardingSink
    from penstock.spark.session import running_session

    settings = {
        "spark.master": "local[2]",
        "state.checkpoints.dir": f"{folder}/checkpoints",
        "state.backend.local-dir": f"{folder}/replicas",
        "penstock.epoch.max-records": 4,
    }
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
    env.set_parallelism(2)
    counted = env.from_collection(list(range(8))).map(lambda n: (n % 3, 1)).key_by(lambda pair: pair[0])
    counted.reduce(lambda a, b: (a[0], a[1] + b[1])).uid("sum").sink_to(DiscardingSink())
    env.execute("classes")
    session = running_session()
    assert session is not None
    gateway = session.sparkContext._gateway
    assert gateway is not None
    session.stop()
    # It writes the archive when it ends in good order, which it does when nobody writes to it any more.
    gateway.proc.stdin.close()
    gateway.proc.wait()


if __name__ == "__main__":
    if sys.argv[1] == "--job":
        _job(sys.argv[2])
    else:
        make(Path(sys.argv[1]).absolute())
