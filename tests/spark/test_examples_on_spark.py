"""Every example on Spark, in epochs of two records."""

from typing import Any

import pytest
from example_cases import CASES, load_example

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("name", [*CASES, "online_model"])
def test_an_example_produces_its_documented_output_on_spark(make_env: Any, name: str) -> None:
    example = load_example(name)
    records = example.SAMPLE if name in CASES else example.SAMPLE[:20]
    env = make_env(records=2 if name in CASES else 10, checkpoints=True)
    with example.build(env.from_collection(records)).execute_and_collect(name) as results:
        given = sorted(results)
    assert given == sorted(CASES[name]) if name in CASES else len(given) == 20
