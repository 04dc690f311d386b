"""docs/connect/spark.md: its programs are one program, which runs on Spark."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

PAGE = (Path(__file__).parents[2] / "docs/connect/spark.md").read_text()
EXECUTE = 'env.execute("totals")\n'


@pytest.mark.spark
def test_spark_reads_the_input_and_writes_the_output_of_the_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from penstock.spark.session import start_session

    session = start_session({"spark.master": "local[2]"})
    (tmp_path / "orders").mkdir()
    spent = [("ann", 4.5), ("bob", 9.0), ("ann", 1.0)]
    lines = [json.dumps({"customer": customer, "amount": amount}) for customer, amount in spent]
    (tmp_path / "orders/1.jsonl").write_text("\n".join(lines))

    # A JVM that runs already has another working directory.
    page = re.sub(r'(json|save|parquet)\(\s*(f?)"(?=orders|totals|kept)', rf'\1(\2"{tmp_path}/', PAGE)
    totals, shown, streaming, batch, function = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: dict[str, Any] = {"__name__": "spark_page"}
    assert EXECUTE in totals
    exec(totals.replace(EXECUTE, "") + function + EXECUTE, names)
    exec(shown, names)
    assert "| ann| 5.5|" in re.sub(r" +", " ", capsys.readouterr().out)
    rows = session.read.parquet(f"{tmp_path}/totals").select("customer", "spent").collect()
    assert sorted(map(tuple, rows)) == [("ann", 4.5), ("ann", 5.5), ("bob", 9.0)]
    assert session.read.parquet(f"{tmp_path}/totals").select("epoch").distinct().count() == 1
    [kept] = tmp_path.glob("kept-*")
    assert sorted(tuple(row) for row in session.read.json(str(kept)).select("customer", "amount").collect()) == sorted(
        spent
    )

    exec(batch, names)
    with names["cities"].map(lambda row: row.city).execute_and_collect() as cities:
        assert sorted(cities) == ["Oslo", "Paris"]
    exec(streaming, names)
    with names["parity"].execute_and_collect() as results:
        first = next(results)
    assert first.even is (first.value % 2 == 0)
