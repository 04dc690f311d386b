"""Sources that generate their records, in the harness and by their contract."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.connectors.generated import DataGeneratorSource, NumberSequenceSource
from penstock.connectors.source import ranges, read_split
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors import Source
from penstock.errors import PenstockError
from penstock.testing import JobHarness


def drain(source, parallelism, limit):
    """Read all epochs like a driver, with positions as JSON. Return [[records of an epoch], …]."""
    positions = json.loads(json.dumps(source.start(parallelism)))
    epochs = []
    while True:
        ahead = json.loads(json.dumps(source.advance(dict(positions), limit)))
        if ahead == positions:
            return epochs
        parts = [list(read_split(source, *part)) for part in ranges(positions, ahead)]
        epochs.append([record for part in parts for chunk in part for record in chunk.records])
        positions = ahead


@given(
    first=st.integers(-(2**63), 2**63 - 1),
    length=st.integers(1, 300),
    parallelism=st.integers(1, 9),
    limit=st.none() | st.integers(1, 50),
)
def test_a_sequence_yields_every_number_once_and_respects_the_limit(first, length, parallelism, limit):
    last = min(first + length - 1, 2**63 - 1)
    epochs = drain(NumberSequenceSource(first, last), parallelism, limit)
    assert sorted(number for epoch in epochs for number in epoch) == list(range(first, last + 1))
    assert all(1 <= len(epoch) <= (limit or length) for epoch in epochs)


@given(count=st.integers(1, 300), parallelism=st.integers(1, 9), limit=st.none() | st.integers(1, 50))
def test_a_generator_is_called_once_for_every_number(count, parallelism, limit):
    epochs = drain(DataGeneratorSource(lambda n: n * n, count), parallelism, limit)
    assert sorted(number for epoch in epochs for number in epoch) == [n * n for n in range(count)]


def test_a_sequence_is_in_order_at_parallelism_one():
    assert drain(NumberSequenceSource(-3, 3), 1, 3) == [[-3, -2, -1], [0, 1, 2], [3]]


def test_a_sequence_can_span_all_64_bit_integers():
    source = NumberSequenceSource(-(2**63), 2**63 - 1)
    positions = source.start(2)
    ahead = source.advance(positions, 4)
    read = [[chunk.records for chunk in read_split(source, *part)] for part in ranges(positions, ahead)]
    assert read == [[[-(2**63), -(2**63) + 1]], [[0, 1]]]


def test_an_unbounded_generator_starts_at_zero_and_is_paced_per_epoch():
    source = DataGeneratorSource(lambda n: n, records_per_epoch=6)
    positions = source.start(3)
    ahead = source.advance(positions, None)
    records = [r for part in ranges(positions, ahead) for chunk in read_split(source, *part) for r in chunk.records]
    assert sorted(records) == [0, 1, 2, 3, 4, 5]
    assert not source.bounded


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: NumberSequenceSource(5, 4), "start 5 is after end 4"),
        (lambda: NumberSequenceSource(0, 2**63), "end must be a 64-bit int"),
        (lambda: DataGeneratorSource("x"), "needs a function of one int, not str"),
        (lambda: DataGeneratorSource(str, 0), "count must be an int of at least 1, not 0"),
        (lambda: DataGeneratorSource(str, records_per_epoch=0), "records_per_epoch must be an int of at least 1"),
    ],
)
def test_invalid_arguments_are_rejected_immediately(make, message):
    with pytest.raises(PenstockError, match=message):
        make()


class Letters(Source):
    """Two splits; the second appears when half of the first has been read."""

    def advance(self, positions, limit):
        first = positions.get("lower", 0)
        ahead = {"lower": min(26, first + (limit or 26))}
        if first >= 13:
            ahead["upper"] = 3
        return ahead

    def read(self, split, start, end):
        letters = "abcdefghijklmnopqrstuvwxyz" if split == "lower" else "ABC"
        return letters[start or 0 : end]


def env_of(source, **options):
    env = StreamExecutionEnvironment.get_execution_environment()
    return env.from_source(source, source_name="letters", **options)


class TestInTheHarness:
    def test_a_user_defined_source_is_read_to_its_end(self):
        with JobHarness(env_of(Letters())) as job:
            assert "".join(job.run(5)) == "abcdefghijklmnopqrstABCuvwxyz"

    def test_a_crash_replays_uncommitted_records(self):
        with JobHarness(env_of(NumberSequenceSource(1, 20)).key_by(lambda n: n % 3).sum(), parallelism=2) as job:
            job.epoch(6)
            job.crash_at("driver.collected")
            job.epoch(6)
            job.end()
            assert sorted(job.output)[-3:] == [63, 70, 77]
            assert len(job.output) == 20

    def test_another_harness_resumes_from_the_checkpoint(self):
        first = JobHarness(env_of(NumberSequenceSource(1, 10)).uid("numbers").map(lambda n: n))
        first.epoch(4)
        with JobHarness(
            env_of(NumberSequenceSource(1, 10)).uid("numbers").map(lambda n: n), storage=first.storage
        ) as job:
            assert job.run() == [5, 6, 7, 8, 9, 10]
        assert first.output == [1, 2, 3, 4]

    def test_an_unbounded_source_continues_epoch_by_epoch(self):
        with JobHarness(env_of(DataGeneratorSource(lambda n: n))) as job:
            job.epoch(3)
            job.epoch(2)
            assert job.output == [0, 1, 2, 3, 4]

    def test_an_object_that_is_not_a_source_is_rejected(self):
        with pytest.raises(PenstockError, match=r"from_source needs a Source, not list.*env\.from_spark"):
            env_of([1, 2, 3])
