"""Blocks follow the parallelism of a job: split and joined by rescales, over crashes, with the files of before."""

import tempfile
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rescaled_job import KEYS, job, oracle

from chaos.damage import needed_files
from penstock.checkpoint.housekeeping import merge_here
from penstock.driver.epoch_settings import Settings
from penstock.driver.rescaling import RescaleFailed
from penstock.testing import JobHarness

BACKENDS = ["memory", "filesystem", "rocksdb"]
FILES = ("deltas/", "bases/")

_PARALLELISMS = st.sampled_from([1, 2, 3, 4, 5, 8, 9, 13, 33, 64])
_POINTS = st.sampled_from(["driver.collected", "level1.snapshot"])
_STEP = st.one_of(
    st.tuples(st.just("rescale"), _PARALLELISMS),
    st.tuples(st.just("rescale"), st.dictionaries(st.sampled_from(["sums", "windows"]), _PARALLELISMS, min_size=1)),
    st.tuples(st.just("push"), st.lists(st.tuples(st.integers(0, KEYS), st.integers(1, 9)), max_size=20)),
    st.tuples(st.just("epoch"), st.none()),
    st.tuples(st.just("crash"), _POINTS),
    st.tuples(st.just("crash while rescaling"), st.tuples(_POINTS, _PARALLELISMS)),
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
        elif kind == "crash while rescaling":
            point, parallelism = what
            harness.crash_at(point)
            with suppress(RescaleFailed):
                harness.rescale(parallelism)
            # A rescale that changes nothing runs no epoch, so this one crashes.
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
    """There are enough blocks for all subtasks, but not many more; the bases of an operator do not overlap."""
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
    assert set(needed_files(harness.storage)) <= set(harness.storage.list(""))


def files(harness: JobHarness) -> set[str]:
    return {name for folder in FILES for name in harness.storage.list(folder)}


def records(number: int, count: int = KEYS) -> list[tuple[int, int, int]]:
    return [(key, 1, 10 * number) for key in range(count)]


def count_of(harness: JobHarness, uid: str = "sums") -> int:
    last = harness._driver.last
    assert last is not None
    return last.blocks[uid].count


@pytest.fixture
def harness() -> Iterator[JobHarness]:
    """A job that writes bases as early as possible, within the epoch."""
    with job(
        backend="filesystem", settings=Settings(base_bytes=0, retained=1, asynchronous=False, inline_bytes=0)
    ) as harness:
        yield harness


def test_a_rescale_without_records_writes_no_file_of_state(harness: JobHarness) -> None:
    for number in range(4):
        harness.push(*records(number)).epoch()
    # No base is pending any more.
    harness.epoch()
    harness.epoch()
    before = files(harness)
    for parallelism, count in ((64, 64), (33, 128), (1, 16)):
        harness.rescale(parallelism).epoch()
        assert count_of(harness) == count
        assert files(harness) <= before
        assert harness.states("total") == dict.fromkeys(range(KEYS), 4)


def test_a_split_block_reads_the_former_base_until_it_changes_itself(harness: JobHarness) -> None:
    for number in range(3):
        harness.push(*records(number)).epoch()
    harness.epoch()
    harness.rescale(32)
    for number in range(7):
        # Only a few blocks change. Their bases take over key groups of the former ones, which must stay.
        harness.push(*records(3 + number, 3)).epoch()
    harness.crash()
    assert harness.states("total") == {key: 3 + (7 if key < 3 else 0) for key in range(KEYS)}
    last = harness._driver.last
    assert last is not None
    made = {base.id for base in last.bases["sums"].values()}
    assert min(made) < last.id - 5 < max(made)


def test_the_first_timers_of_split_and_joined_blocks_are_found(harness: JobHarness) -> None:
    harness.push(*records(0)).epoch()
    for parallelism in (32, 1, 17):
        harness.rescale(parallelism).epoch()
        assert len(harness.timers("sums")) == KEYS
    harness.push((0, 1, 500)).epoch()
    harness.epoch()
    timers = [each for each in harness.output if each[0] == "timer"]
    assert sorted(timers) == [("timer", key, 99) for key in range(KEYS)]


def test_an_in_process_restart_returns_to_the_blocks_of_the_checkpoint(harness: JobHarness) -> None:
    harness.push(*records(0)).epoch()
    harness.crash_at("level1.snapshot")
    with pytest.raises(RescaleFailed):
        harness.rescale(64)
    harness.push(*records(1)).epoch()
    assert count_of(harness) == 16
    assert harness.states("total") == dict.fromkeys(range(KEYS), 2)


@pytest.mark.parametrize("back", [False, True])
def test_a_base_merged_while_blocks_change_is_not_announced(back: bool) -> None:
    began, proceed = threading.Event(), threading.Event()
    with job(backend="hashmap", settings=Settings(base_bytes=0, retained=1, inline_bytes=0)) as harness:
        housekeeping = harness._driver._housekeeping
        merged: list[str] = []

        def merge(storage: Any, version: Any, blocks: Any, into: Any = None) -> Any:
            began.set()
            assert proceed.wait(20)
            handles = merge_here(storage, version, blocks, into)
            merged.extend(handle.name for handle in handles)
            return handles

        housekeeping._merge = merge
        harness.push(*records(0)).epoch()
        assert began.wait(20)
        harness.rescale(64)
        harness.push(*records(1, 20)).epoch()
        if back:
            harness.rescale(2)
            harness.push(*records(2, 20)).epoch()
        proceed.set()
        assert housekeeping._work is not None
        housekeeping._work.result(60)
        outdated = set(merged)
        assert any(outdated)
        for number in range(3, 9):
            harness.push(*records(number, 10)).epoch()
            if housekeeping._work is not None:
                housekeeping._work.result(60)
            last = harness._driver.last
            assert last is not None
            announced = {base.name for bases in last.bases.values() for base in bases.values() if base.name}
            assert not outdated & announced
        # Later merges are announced.
        assert announced
        harness.crash()
        expected = {key: 1 + (key < 20) * (1 + back) + 6 * (key < 10) for key in range(KEYS)}
        assert harness.states("total") == expected


def test_a_job_keeps_its_blocks_at_a_similar_parallelism() -> None:
    with job(parallelism=16) as harness:
        for parallelism, count in ((16, 16), (8, 16), (5, 16), (9, 64), (16, 64), (32, 64), (8, 64), (4, 16)):
            harness.rescale(parallelism)
            harness.push(*records(0)).epoch()
            assert count_of(harness) == count
