"""docs/run/monitoring.md does what it says: its function is run, and its names are those of the metrics."""

import re
from pathlib import Path
from typing import Any

from penstock.common import Configuration
from penstock.datastream import StreamExecutionEnvironment
from penstock.testing import JobHarness

PAGE = (Path(__file__).parents[2] / "docs/run/monitoring.md").read_text()


def test_its_function_counts_what_it_shows() -> None:
    example, *_ = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, Any] = {}
    exec(example, names)
    env = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict({"penstock.flow.enabled": "true"})
    )
    stream = env.from_collection([]).uid("lines").map(names["Parse"]()).uid("parse").rebalance().map(len).uid("len")
    with JobHarness(stream) as job:
        job.push("a;b", "c").epoch()
        metrics = job.metrics()
        for name in re.findall(r'\["(parse\..*?)"\]', PAGE):
            assert metrics[name]
        assert (metrics["parse.lines"], metrics["parse.errors.broken"]) == (2, 1)
        for name in re.findall(r"`operator\.(\w+)`", PAGE):
            assert f"parse.{name}" in metrics or f"len.{name}" in metrics
        for name in re.findall(r"`source\.(\w+)`", PAGE):
            assert f"lines.{name}" in metrics
        assert metrics["lines.numRecordsIn"] == metrics["len.numRecordsIn"] == 2
