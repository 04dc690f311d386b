"""docs/run/monitoring.md does what it says: its programs run, and its names are those of the metrics."""

import re
from pathlib import Path
from typing import Any

import pytest

from penstock.common import Configuration
from penstock.datastream import StreamExecutionEnvironment
from penstock.testing import JobHarness

PAGE = (Path(__file__).parents[2] / "docs/run/monitoring.md").read_text()
FUNCTION, IN_A_TEST, ON_SPARK = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_function_of_the_page_counts_what_it_asserts() -> None:
    names: dict[str, Any] = {"__name__": "monitoring_page"}
    exec(FUNCTION, names)
    assert IN_A_TEST.count("assert ") == 3
    exec(IN_A_TEST, names)


def test_the_metrics_that_the_page_names_exist() -> None:
    names: dict[str, Any] = {}
    exec(FUNCTION, names)
    env = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict({"penstock.flow.enabled": "true"})
    )
    stream = env.from_collection([]).uid("lines").map(names["Parse"]()).uid("parse").rebalance().map(len).uid("len")
    with JobHarness(stream) as job:
        job.push("a;b", "c").epoch()
        metrics = job.metrics()
        for name in re.findall(r'\["(parse\..*?)"\]', PAGE):
            assert metrics[name]
        for name in re.findall(r"`operator\.(\w+)`", PAGE):
            assert f"parse.{name}" in metrics or f"len.{name}" in metrics
        for name in re.findall(r"`source\.(\w+)`", PAGE):
            assert f"lines.{name}" in metrics
        assert metrics["lines.numRecordsIn"] == metrics["len.numRecordsIn"] == 2


@pytest.mark.spark
def test_a_client_reads_the_metrics_of_the_page_on_spark() -> None:
    from penstock.spark.session import start_session

    names: dict[str, Any] = {"__name__": "monitoring_page"}
    exec(FUNCTION, names)
    env = StreamExecutionEnvironment.get_execution_environment()
    env._spark = start_session({"spark.master": "local[2]"})
    env.from_collection(["a;b", "c"]).uid("lines").map(names["Parse"]()).uid("parse").add_sink(lambda line: None)
    # The counter is there when the first epoch is complete.
    program = ON_SPARK.replace('client.get_metrics()["parse.errors.broken"]', "client.get_metrics()")
    assert program != ON_SPARK
    result = program.replace('client.result().metrics["parse.lines"]', 'lines = client.result().metrics["parse.lines"]')
    names["env"] = env
    exec(result, names)
    assert names["lines"] == 2
