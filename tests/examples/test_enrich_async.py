"""The example of asynchronous calls, in process. The test on Spark is in tests/spark."""

import pytest
from enrich_async import SAMPLE, build, price_server

from penstock.datastream import StreamExecutionEnvironment
from penstock.testing import JobHarness


@pytest.mark.parametrize("per_epoch", [None, 1], ids=["one epoch", "an epoch each"])
def test_orders_get_their_prices_from_the_server(per_epoch: int | None) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    with price_server() as port, JobHarness(build(env.from_collection(SAMPLE), port)) as job:
        assert sorted(job.run(per_epoch)) == [
            ("apple", 3, 90),
            ("apple", 10, 300),
            ("bread", 1, 250),
            ("coffee", 2, 960),
        ]
