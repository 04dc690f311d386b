"""Iterations in supersteps: the examples, how they end, and what is refused."""

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
def test_connected_components(parallelism: int) -> None:
    example = load_example("connected_components")
    found = iterate(example.vertices(), example.superstep, parallelism=parallelism)
    components = {vertex: component for vertex, component, _ in found.records}
    assert components == {1: 1, 2: 1, 3: 1, 4: 1, 5: 5, 6: 5, 7: 5, 8: 8}
    # The label 1 is three edges from vertex 4; one superstep more finds that nothing changes.
    assert (found.supersteps, found.converged) == (4, True)


@pytest.mark.parametrize("parallelism", [1, 3])
def test_k_means(parallelism: int) -> None:
    example = load_example("k_means")
    found = iterate(example.CENTRES, example.superstep, 50, parallelism)
    assert found.converged
    middles = {number: (x, y) for number, x, y in found.records}
    assert middles == {0: pytest.approx((1.0, 1.5)), 1: pytest.approx((8.5, 8.5))}


def halved(numbers: DataStream, number: int) -> Superstep:
    after = numbers.map(lambda n: n // 2)
    return Superstep(after, after.filter(lambda n: n > 1))


def test_it_ends_when_no_record_comes_on_the_criteria() -> None:
    assert iterate([40, 7, 3], halved) == ([1, 0, 0], 5, True)


def test_it_ends_when_nothing_is_fed_back() -> None:
    found = iterate([1, 2, 3, 4], lambda numbers, number: Superstep(numbers.filter(lambda n: n > number)))
    assert found == ([], 4, True)


def test_it_ends_after_so_many_supersteps_and_says_that_it_has_not_converged() -> None:
    assert iterate([40, 7], halved, supersteps=2) == ([10, 1], 2, False)


def test_state_is_empty_in_each_superstep() -> None:
    def counted(numbers: DataStream, number: int) -> Superstep:
        return Superstep(numbers.key_by(lambda n: 0).map_with_state(lambda n, seen: (1 if seen is None else 2, n), int))

    assert iterate([5], counted, supersteps=3).records == [1]


@pytest.mark.parametrize(
    ("body", "supersteps", "said"),
    [(lambda stream, number: stream, 3, "Return Superstep"), (halved, 0, "Allow at least one")],
)
def test_what_is_no_iteration_is_refused(body: Any, supersteps: int, said: str) -> None:
    with pytest.raises(PenstockError, match=said):
        iterate([1], body, supersteps)
