"""The program of the page on Kafka, against mock brokers."""

import json
import re
from pathlib import Path
from typing import Any

from penstock.testing import JobHarness

PAGE = Path(__file__).parents[2] / "docs" / "connect" / "kafka.md"


def test_its_program_sums_up_orders(kafka: Any) -> None:
    orders, totals = kafka.topic(2), kafka.topic()
    for number in range(10):
        order = {"customer": f"c{number % 2}", "price": number}
        kafka.send(orders, json.dumps(order), partition=number % 2)
    [program] = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    program = program.replace("localhost:9092", kafka.servers).replace(
        '"orders")\n    .set_g', f'"{orders}")\n    .set_g'
    )
    program = program.replace('.set_topic("totals")', f'.set_topic("{totals}")')
    names: dict[str, Any] = {"__name__": "kafka_page", "run": lambda env: JobHarness(env).run()}
    exec(program.replace('env.execute("totals")', "run(env)"), names)
    assert sorted(json.loads(value) for value in kafka.values(totals))[-1] == ["c1", 1 + 3 + 5 + 7 + 9]
    assert len(kafka.values(totals)) == 10


def test_it_says_what_it_was_tried_against() -> None:
    assert "Tested against librdkafka's mock cluster; untested against a real broker." in PAGE.read_text()
