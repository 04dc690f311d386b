"""A running job changes its parallelism between two epochs without changing its results."""

from collections import Counter, defaultdict
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rescaled_job import KEYS, job, oracle

from penstock.driver.rescaling import CannotRescale, RescaleFailed
from penstock.testing import JobHarness

_SCALES = st.one_of(
    st.integers(1, 9), st.dictionaries(st.sampled_from(["sums", "windows"]), st.integers(1, 12), min_size=1)
)
_POINTS = st.sampled_from(["driver.collected", "level1.snapshot"])
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("rescale"), _SCALES),
        st.tuples(st.just("push"), st.lists(st.tuples(st.integers(0, KEYS), st.integers(1, 9)), max_size=20)),
        st.tuples(st.just("epoch"), st.none()),
        st.tuples(st.just("crash"), _POINTS),
        st.tuples(st.just("crash while rescaling"), st.tuples(_POINTS, _SCALES)),
        st.tuples(st.just("restore"), st.integers(1, 9)),
    ),
    max_size=12,
)


@settings(max_examples=30, deadline=None)
@given(_STEPS)
def test_any_sequence_of_rescales_matches_plain_python(steps: list[tuple[str, Any]]) -> None:
    values: list[tuple[int, int, int]] = []
    harness = job()
    output: list[Any] = []
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
            point, scale = what
            harness.crash_at(point)
            with suppress(RescaleFailed):
                harness.rescale(scale)
            # A rescale that changes nothing runs no epoch, so this one crashes.
            harness.epoch()
        else:
            # The same program, restarted with another parallelism.
            harness.epoch()
            output += harness.output
            harness = job(harness.storage, what)
    harness.end()
    output += harness.output
    assert Counter(output) == oracle(values)
    expected: dict[int, int] = defaultdict(int)
    for key, amount, _ in values:
        expected[key] += amount
    assert harness.states("total") == dict(expected)
    harness.close()


def test_every_key_has_one_owner_after_rescaling_from_15_to_77_to_15() -> None:
    with job(parallelism=15) as harness:
        for number, parallelism in enumerate([15, 77, 15, 4, 2, 4]):
            harness.rescale(parallelism)
            harness.push(*[(key, 1, 10 * number) for key in range(KEYS)]).epoch()
            assert harness.states("total") == dict.fromkeys(range(KEYS), number + 1)


def test_a_rescale_outlives_the_driver_until_the_program_changes_its_parallelism() -> None:
    with job() as harness:
        harness.push((1, 1, 1)).epoch()
        harness.rescale({"sums": 5})
        harness.push((1, 1, 2)).epoch()
        harness.crash()
        harness.push((1, 1, 3)).epoch()
        assert parallelism_of(harness, "sums") == 5
        with job(harness.storage, parallelism=3) as changed:
            changed.push((1, 1, 4)).epoch()
            assert parallelism_of(changed, "sums") == 3
            assert changed.states("total") == {1: 4}


def test_a_rescale_before_the_first_checkpoint_applies_to_the_first_epoch() -> None:
    with job() as harness:
        harness.rescale(7)
        harness.push((1, 1, 1)).epoch()
        assert parallelism_of(harness, "sums") == parallelism_of(harness, "windows") == 7


def parallelism_of(harness: JobHarness, uid: str) -> int:
    last = harness._driver.last
    assert last is not None
    return last.operators[uid].parallelism


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        (0, "'sums'.*cannot have a parallelism of 0.*128 key groups.*from 1 to 128"),
        (129, "cannot have a parallelism of 129"),
        ({"missing": 2}, "no operator 'missing'.*'sums', 'windows', 'named'"),
        ({"records": 2}, "'records' runs in the chain of source.*set_parallelism"),
    ],
)
def test_an_invalid_rescale_is_refused_and_the_job_continues(wanted: Any, text: str) -> None:
    with job() as harness:
        with pytest.raises(CannotRescale, match=f"(?s){text}"):
            harness.rescale(wanted)
        harness.push((1, 1, 1)).epoch()
        assert parallelism_of(harness, "sums") == 2
