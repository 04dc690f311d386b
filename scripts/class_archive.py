"""An archive of Spark's classes for class data sharing, used by tests, which start many JVMs.

Until its first epoch is complete, a JVM mostly reads, verifies and links ten thousand classes. With the archive mapped,
a JVM takes 9 s of CPU from its start to the end of a small job instead of 16. A JVM for which the archive is missing,
or was made from other jars or by another Java, runs without it.

`python -m scripts.class_archive FILE` creates one from the classes that a small job loads.
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
    """Make every driver started in this environment, and its local executors, use the archive."""
    environment[_WITH] = _arguments(*2 * [f"-XX:SharedArchiveFile={archive}"])


def without(environment: MutableMapping[str, str]) -> dict[str, str]:
    """Return the environment without the archive, like a user's."""
    return {name: value for name, value in environment.items() if name != _WITH}


def make(archive: Path) -> None:
    # A JVM that maps an incomplete file crashes.
    unfinished = archive.with_suffix(".unfinished")
    unfinished.unlink(missing_ok=True)
    # Otherwise it logs every class that cannot be archived.
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
    # An archive is tied to a class path, and that of executors begins with this jar. PySpark uses its resolved path.
    (first,) = (Path(pyspark.origin).resolve().parent / "jars").glob("slf4j-api-*.jar")
    settings = {
        "spark.driver.extraClassPath": str(first),
        "spark.driver.defaultJavaOptions": driver,
        "spark.executor.defaultJavaOptions": executor,
    }
    arguments = [argument for key, value in settings.items() for argument in ("--conf", f"{key}={value}")]
    return shlex.join([*arguments, "pyspark-shell"])


def _job(folder: str) -> None:
    """Run two epochs with an exchange and state, which load the classes that most jobs need."""
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
    # The JVM writes the archive on a regular exit, which happens when its standard input is closed.
    gateway.proc.stdin.close()
    gateway.proc.wait()


if __name__ == "__main__":
    if sys.argv[1] == "--job":
        _job(sys.argv[2])
    else:
        make(Path(sys.argv[1]).absolute())
