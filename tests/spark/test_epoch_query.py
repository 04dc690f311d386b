"""A streaming query's failures, without Spark."""

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from penstock.errors import PenstockError
from penstock.spark.query import EpochQuery


class FailedQuery:
    """A query of which a batch has failed."""

    def awaitTermination(self, seconds: float) -> bool:
        raise StreamingQueryException("the epoch failed")

    def processAllAvailable(self) -> None:
        raise StreamingQueryException("the epoch failed")


@pytest.mark.parametrize("wait", [lambda query: query.ended_within(1.0), lambda query: query.drain()])
def test_the_failure_of_a_batch_is_an_error_of_penstock_in_both_waits(
    monkeypatch: pytest.MonkeyPatch, wait: Any
) -> None:
    """The job's thread then looks up the original error, which the restart strategy needs."""
    query: Any = object.__new__(EpochQuery)
    query._query = FailedQuery()
    bounded = SimpleNamespace(source=SimpleNamespace(bounded=True))
    monkeypatch.setattr(EpochQuery, "_source_nodes", lambda self: iter([(None, bounded)]))
    with pytest.raises(PenstockError, match=r"The query failed in Spark: .*the epoch failed"):
        wait(query)
