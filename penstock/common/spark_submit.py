"""Programs that `spark-submit` started: their JVM runs already, with the settings of its command line."""

from __future__ import annotations

import os


def started_by_spark_submit() -> bool:
    """Return whether `spark-submit` started this program. It passes the port of its JVM in this variable."""
    return "PYSPARK_GATEWAY_PORT" in os.environ
