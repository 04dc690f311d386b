"""The programs of docs/migrate that need Kafka or Spark run, and commands print what the pages show."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.testing import JobHarness

DOCS = Path(__file__).parents[2] / "docs" / "migrate"


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / f"{page}.md").read_text(), re.DOTALL)


class TestTheKafkaJob:
    def program(self) -> str:
        (program,) = blocks("kafka-job", "python")
        return program

    def test_the_program_sums_up_payments(self, kafka: Any) -> None:
        payments, sums = kafka.topic(2), kafka.topic()
        for number in range(10):
            payment = {"user": f"u{number % 2}", "amount": number / 2, "ts": 20_000 * number}
            kafka.send(payments, json.dumps(payment), partition=number % 2)
        program = self.program().replace("localhost:9092", kafka.servers)
        program = program.replace('.set_topics("payments")', f'.set_topics("{payments}")')
        program = program.replace('.set_topic("sums")', f'.set_topic("{sums}")')
        names: dict[str, Any] = {"__name__": "kafka_job", "run": lambda env: JobHarness(env).run()}
        exec(program.replace('env.execute("sums")', "run(env)"), names)
        expected: dict[tuple[str, int], float] = {}
        for number in range(10):
            window = (f"u{number % 2}", number // 3)
            expected[window] = expected.get(window, 0) + number / 2
        found = [json.loads(value) for value in kafka.values(sums)]
        assert {(user, ts // 60_000): amount for user, amount, ts in found} == expected
        assert len(found) == len(expected)

    def test_the_check_prints_what_the_page_shows(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        Path("job.py").write_text(self.program())
        (shown,) = [block for block in blocks("kafka-job", "text") if block.startswith("$ penstock check")]
        result = CliRunner().invoke(app, ["check", "job.py"])
        assert result.exit_code == 0, result.output
        assert shown == f"$ penstock check job.py\n{result.output}"


def test_the_delivery_guarantee_is_also_where_examples_of_pyflink_import_it_from() -> None:
    from penstock.datastream.connectors import DeliveryGuarantee
    from penstock.datastream.connectors.kafka import DeliveryGuarantee as OfKafka

    assert OfKafka is DeliveryGuarantee


@pytest.mark.spark
def test_the_program_that_replaces_the_table_api_writes_totals(tmp_path: Path) -> None:
    from penstock.spark.session import start_session

    session = start_session({"spark.master": "local[2]"})
    (tmp_path / "orders").mkdir()
    orders = [("ann", 4.5, True), ("bob", 9.0, True), ("ann", 100.0, False), ("ann", 1.0, True)]
    lines = [json.dumps({"customer": name, "amount": amount, "paid": paid}) for name, amount, paid in orders]
    (tmp_path / "orders/1.json").write_text("\n".join(lines))
    (program,) = blocks("table-api", "python")
    # A JVM that runs already has another working directory.
    program = re.sub(r'(load|save)\("', rf'\1("{tmp_path}/', program)
    exec(program, {"__name__": "table_api"})
    rows = session.read.parquet(f"{tmp_path}/totals").select("customer", "total").collect()
    assert sorted(map(tuple, rows)) == [("ANN", 4.5), ("ANN", 5.5), ("BOB", 9.0)]
