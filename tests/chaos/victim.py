"""Run the rig's victim to its end without a JVM, which leaves the same files as a run of the rig."""

from pathlib import Path

from chaos.program import build
from penstock.checkpoint.fencing import close
from penstock.checkpoint.manifest import latest
from penstock.datastream import StreamExecutionEnvironment
from penstock.state.local_storage import LocalStorage
from penstock.testing import JobHarness

TOTAL = 1200


def run_victim(work: Path, total: int = TOTAL) -> Path:
    """Run with input, checkpoints and output below `work`, and return the directory of the lineage."""
    (work / "total").write_text(str(total))
    lineage = work / "checkpoints" / "chaos" / "000000000000001-test"
    env = StreamExecutionEnvironment.get_execution_environment()
    build(env, str(work / "total"), str(work / "out"), 100, 0)
    with JobHarness(env, parallelism=2, backend="filesystem", storage=LocalStorage(lineage)) as job:
        job.run(100)
    return lineage


def run_and_cancel(work: Path, epochs: int = 6) -> Path:
    """Run some epochs, close the lineage, and leave output files open, as a cancelled job does that keeps its state."""
    lineage = work / "checkpoints" / "chaos" / "000000000000001-test"
    storage = LocalStorage(lineage)
    env = StreamExecutionEnvironment.get_execution_environment()
    build(env, str(work / "total"), str(work / "out"), 40, 0)
    with JobHarness(env, parallelism=2, backend="filesystem", storage=storage) as job:
        for _ in range(epochs):
            job.epoch(40)
    found = latest(storage)
    assert found is not None
    close(storage, *found, found[0].lineage, found[0].token)
    return lineage
