"""What a program leaves behind when it ends."""

import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

PROGRAM = """
from penstock.common import Configuration
from penstock.datastream import StreamExecutionEnvironment

configuration = Configuration.from_dict({"spark.master": "local-cluster[2,1,1024]"})
env = StreamExecutionEnvironment.get_execution_environment(configuration)
env.from_collection([1, 2]).key_by(lambda n: n).reduce(lambda a, b: a + b).print()
env.execute("sums")
print(env.spark.sparkContext.applicationId)
"""


@pytest.mark.spark
@pytest.mark.slow
def test_no_executor_is_started_while_a_program_ends(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=250
    )
    application = done.stdout.splitlines()[-1]
    # Spark's workers have a folder for each executor that they start.
    executors = Path(pyspark.__file__).parent / "work" / application
    assert sorted(each.name for each in executors.iterdir()) == ["0", "1"]
