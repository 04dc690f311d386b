"""docs/connect/sinks.md does what it says: its programs are run."""

import re
from pathlib import Path
from typing import Any

import pytest

BLOCKS = re.findall(
    r"```python\n(.*?)```", (Path(__file__).parents[2] / "docs/connect/sinks.md").read_text(), flags=re.DOTALL
)


def test_its_sinks_give_what_they_say() -> None:
    names: dict[str, Any] = {"__name__": "sinks_page"}
    programs = [block for block in BLOCKS if "assert " in block]
    for block in programs:
        exec(block, names)
    assert len(programs) == 3


@pytest.mark.spark
def test_its_writers_of_spark_write(tmp_path: Path) -> None:
    from decimal import Decimal

    from penstock.datastream import StreamExecutionEnvironment
    from penstock.spark.session import start_session

    programs = [block for block in BLOCKS if "to_spark" in block]
    assert len(programs) == 2
    env = StreamExecutionEnvironment.get_execution_environment()
    env._spark = start_session({"spark.master": "local[2]"})
    orders = env.from_collection([(n, f"order {n}", Decimal("1.50")) for n in range(10)])
    for block in programs:
        exec(block, {"orders": orders, "path": f"{tmp_path}/rows"})
    env.execute()
    for path in (tmp_path / "rows", *tmp_path.glob("rows-*")):
        rows = env.spark.read.format("parquet" if path.name == "rows" else "json").load(str(path))
        assert sorted(row.id for row in rows.collect()) == list(range(10))
        assert rows.select("epoch").distinct().count() == 1
