"""Run the rig's victim to its end without a JVM, which leaves the same files as a run of the rig."""

from pathlib import Path

from chaos.program import build
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
