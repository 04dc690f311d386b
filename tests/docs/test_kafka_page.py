"""The program of docs/connect/kafka.md runs against mock brokers."""

import json
import re
from pathlib import Path
from typing import Any

from penstock.datastream import StreamExecutionEnvironment
from penstock.testing import JobHarness

PAGE = Path(__file__).parents[2] / "docs" / "connect" / "kafka.md"


def programs(kafka: Any, orders: str, totals: str) -> list[str]:
    """The programs of the page, with the addresses and topics of the mock brokers."""
    page = PAGE.read_text().replace("localhost:9092", kafka.servers)
    page = page.replace('.set_topics("orders")', f'.set_topics("{orders}")')
    page = page.replace('KafkaTopicPartition("orders", 0)', f'KafkaTopicPartition("{orders}", 0)')
    page = page.replace('.set_topic("totals")', f'.set_topic("{totals}")')
    return re.findall(r"```python\n(.*?)```", page, re.DOTALL)


def test_the_program_of_the_page_sums_up_orders(kafka: Any) -> None:
    orders, totals = kafka.topic(2), kafka.topic()
    for number in range(10):
        order = {"customer": f"c{number % 2}", "price": number}
        kafka.send(orders, json.dumps(order), partition=number % 2)
    program, records = programs(kafka, orders, totals)
    names: dict[str, Any] = {"__name__": "kafka_page", "run": lambda env: JobHarness(env).run()}
    exec(program.replace('env.execute("totals")', "run(env)"), names)
    assert sorted(json.loads(value) for value in kafka.values(totals))[-1] == ["c1", 1 + 3 + 5 + 7 + 9]
    assert len(kafka.values(totals)) == 10

    exec(records, names)
    env = StreamExecutionEnvironment.get_execution_environment()
    read = JobHarness(env.from_source(names["everything"], source_name="everything")).run()
    assert [(where, offset) for where, offset, _ in read] == [(f"{orders}/0", offset) for offset in range(5)]
    assert json.loads(read[1][2]) == {"customer": "c0", "price": 2}


def test_the_page_names_the_brokers_it_was_tested_against() -> None:
    assert "Tested against librdkafka's mock cluster; untested against a real broker." in PAGE.read_text()
