"""A look at the executors before a job starts: can they run its tasks, and do they see its checkpoint directory?"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from penstock import __version__
from penstock.errors import PenstockError


class ExecutorsNotReady(PenstockError):
    """Executors lack Penstock, or do not share the checkpoint directory. Nothing was started."""


def check_executors(session: SparkSession, checkpoint_root: str | None) -> None:
    """Run one small task on an executor. Called for masters whose executors are processes of their own."""
    marker = None if checkpoint_root is None else Path(checkpoint_root) / f".seen-{uuid.uuid4().hex}"

    def look(_: Iterable[Any]) -> Iterator[str]:
        import penstock
        import penstock.spark.worker

        if marker is not None:
            os.makedirs(marker.parent, exist_ok=True)
            marker.touch()
        yield penstock.__version__

    try:
        found = session.sparkContext.parallelize([0], 1).mapPartitions(look).collect()[0]
    except PySparkException as error:
        if "ModuleNotFoundError" in str(error) or "ImportError" in str(error):
            raise ExecutorsNotReady(
                "The executors cannot import penstock. Install it in their Python (spark.pyspark.python), or send it "
                "along with spark.archives."
            ) from None
        raise
    if found != __version__:
        raise ExecutorsNotReady(f"The executors have penstock {found}, the driver {__version__}. Install the same.")
    if marker is not None:
        if not marker.exists():
            raise ExecutorsNotReady(
                f"A file that an executor wrote to {checkpoint_root} is not visible to the driver: "
                f"state.checkpoints.dir must be on storage that all hosts share."
            )
        marker.unlink()
