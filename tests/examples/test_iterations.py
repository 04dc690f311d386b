"""Iterations in supersteps: the examples, the end conditions, and invalid arguments."""

from collections.abc import Callable
from typing import Any

import pytest
from example_cases import load_example

from penstock.datastream import DataStream, StreamExecutionEnvironment, Superstep, iterate_bounded
from penstock.errors import PenstockError
from penstock.testing import JobHarness


def in_harness(parallelism: int = 2) -> Callable[[DataStream, str], list[Any]]:
    def run(stream: DataStream, name: str) -> list[Any]:
        with JobHarness(stream, parallelism=parallelism) as job:
            return job.run()

    return run


def iterate(records: list[Any], body: Any, supersteps: int = 20, parallelism: int = 2) -> Any:
    env = StreamExecutionEnvironment.get_execution_environment()
    return iterate_bounded(env, records, body, supersteps, in_harness(parallelism))


@pytest.mark.parametrize("parallelism", [1, 3])
def test_the_connected_components_example_finds_all_components(parallelism: int) -> None:
    example = load_example("connected_components")
    found = iterate(example.vertices(), example.superstep, parallelism=parallelism)
    components = {vertex: component for vertex, component, _ in found.records}
    assert components == {1: 1, 2: 1, 3: 1, 4: 1, 5: 5, 6: 5, 7: 5, 8: 8}
    # Label 1 is three edges away from vertex 4. One more superstep detects that nothing changes.
    assert (found.supersteps, found.converged) == (4, True)


@pytest.mark.parametrize("parallelism", [1, 3])
def test_the_k_means_example_converges_to_the_cluster_centers(parallelism: int) -> None:
    example = load_example("k_means")
    found = iterate(example.CENTRES, example.superstep, 50, parallelism)
    assert found.converged
    middles = {number: (x, y) for number, x, y in found.records}
    assert middles == {0: pytest.approx((1.0, 1.5)), 1: pytest.approx((8.5, 8.5))}


def halved(numbers: DataStream, number: int) -> Superstep:
    after = numbers.map(lambda n: n // 2)
    return Superstep(after, after.filter(lambda n: n > 1))


def test_an_iteration_ends_when_its_criteria_are_empty() -> None:
    assert iterate([40, 7, 3], halved) == ([1, 0, 0], 5, True)


def test_an_iteration_ends_without_feedback() -> None:
    found = iterate([1, 2, 3, 4], lambda numbers, number: Superstep(numbers.filter(lambda n: n > number)))
    assert found == ([], 4, True)


def test_an_iteration_that_reaches_its_limit_has_not_converged() -> None:
    assert iterate([40, 7], halved, supersteps=2) == ([10, 1], 2, False)


def test_each_superstep_starts_with_empty_state() -> None:
    def counted(numbers: DataStream, number: int) -> Superstep:
        return Superstep(numbers.key_by(lambda n: 0).map_with_state(lambda n, seen: (1 if seen is None else 2, n), int))

    assert iterate([5], counted, supersteps=3).records == [1]


@pytest.mark.parametrize(
    ("body", "supersteps", "said"),
    [(lambda stream, number: stream, 3, "Return Superstep"), (halved, 0, "Allow at least 1")],
)
def test_an_invalid_iteration_is_refused(body: Any, supersteps: int, said: str) -> None:
    with pytest.raises(PenstockError, match=said):
        iterate([1], body, supersteps)
