"""Blocks follow the parallelism of a job: split and joined by rescales, over crashes, with the files of before."""

import tempfile
from collections import Counter, defaultdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rescaled_job import KEYS, job, oracle

from penstock.driver.epoch_settings import Settings
from penstock.testing import JobHarness

BACKENDS = ["memory", "filesystem", "rocksdb"]
FILES = ("deltas/", "bases/")

_PARALLELISMS = st.sampled_from([1, 2, 3, 4, 5, 8, 9, 13, 33, 64])
_STEP = st.one_of(
    st.tuples(st.just("rescale"), _PARALLELISMS),
    st.tuples(st.just("rescale"), st.dictionaries(st.sampled_from(["sums", "windows"]), _PARALLELISMS, min_size=1)),
    st.tuples(st.just("push"), st.lists(st.tuples(st.integers(0, KEYS), st.integers(1, 9)), max_size=20)),
    st.tuples(st.just("epoch"), st.none()),
    st.tuples(st.just("crash"), st.sampled_from(["driver.collected", "level1.snapshot"])),
    st.tuples(st.just("restart"), _PARALLELISMS),
    st.tuples(st.just("savepoint"), _PARALLELISMS),
    st.tuples(st.just("lose replicas"), st.none()),
)


def compare(backend: str, examples: int, most_steps: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(st.lists(_STEP, min_size=4, max_size=most_steps), st.sampled_from([64, 100, 128]), st.booleans())
    def run(steps: list[tuple[str, Any]], most: int, asynchronous: bool) -> None:
        # Every change of a block leads to a base, and files are removed as early as possible.
        frequent = Settings(base_bytes=0, retained=1, asynchronous=asynchronous, inline_bytes=0)
        with tempfile.TemporaryDirectory(prefix="penstock-blocks-") as directory:
            check(steps, directory, backend=backend, max_parallelism=most, settings=frequent)

    run()


@pytest.mark.parametrize("backend", BACKENDS)
def test_splits_and_joins_over_crashes_match_plain_python(backend: str) -> None:
    compare(backend, examples=5, most_steps=8)


@pytest.mark.long
@pytest.mark.parametrize("backend", BACKENDS)
def test_many_splits_and_joins_over_crashes_match_plain_python(backend: str) -> None:
    compare(backend, examples=30, most_steps=20)


def check(steps: list[tuple[str, Any]], directory: str, **options: Any) -> None:
    """Run the steps and compare the output and the state with those of plain Python."""
    values: list[tuple[int, int, int]] = []
    harness = job(**options)
    output: list[Any] = []
    former: list[JobHarness] = []
    for kind, what in steps:
        if kind == "rescale":
            harness.rescale(what)
        elif kind == "push":
            new = [(key, amount, 10 * (len(values) + place)) for place, (key, amount) in enumerate(what)]
            values += new
            harness.push(*new)
        elif kind == "epoch":
            harness.epoch()
        elif kind == "crash":
            harness.crash_at(what)
            harness.epoch()
        elif kind == "lose replicas":
            harness.lose_replicas()
        elif kind == "restart":
            harness.epoch()
            output += harness.output
            former.append(harness)
            harness = job(harness.storage, what, **options)
        else:
            harness.epoch()
            path = harness.savepoint(directory)
            output += harness.output
            former.append(harness)
            harness = job(None, what, from_savepoint=path, **options)
        check_blocks(harness)
    harness.end()
    output += harness.output
    assert Counter(output) == oracle(values)
    expected: dict[int, int] = defaultdict(int)
    for key, amount, _ in values:
        expected[key] += amount
    assert harness.states("total") == dict(expected)
    for each in [*former, harness]:
        each.close()


def check_blocks(harness: JobHarness) -> None:
    """Each subtask has a block of its own and opens few of them; the bases of an operator do not overlap."""
    last = harness._driver.last
    if last is None or not last.parent:
        return
    for uid, operator in last.operators.items():
        if uid in last.blocks:
            blocks = last.blocks[uid]
            assert min(operator.parallelism, blocks.max_parallelism) <= len(blocks.numbers) <= blocks.max_parallelism
            assert len(blocks.numbers) <= max(16, 16 * operator.parallelism)
            if operator.parallelism <= 4:
                assert blocks.count == 16
    for uid, handles in last.bases.items():
        ends = [handle.end for handle in handles.values()]
        assert all(end <= first for end, first in zip(ends, list(handles)[1:], strict=False))
        assert not ends or ends[-1] <= last.blocks[uid].max_parallelism
