"""Numbers on the page: each has a unit and stays short."""

import pytest

from penstock.web import quantities


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (7, "7"),
        (0.5, "0.5"),
        (950, "950"),
        (999.96, "1000"),
        (12_345, "12.3 k"),
        (999_999, "1.0 M"),
        (5e15, "5000 T"),
    ],
)
def test_a_count_is_scaled(value, text):
    assert quantities.number(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (200 << 20, "200 MiB"), (-1, "–")],
)
def test_a_size_has_a_binary_unit(value, text):
    assert quantities.size(value) == text


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (-1, "–"),
        (12, "12 ms"),
        (3_400, "3.4 s"),
        (59_400, "59 s"),
        (60_000, "1 min"),
        (303_000, "5 min 3 s"),
        (7_500_000, "2 h 5 min"),
        (86_400_000, "1 d"),
        (100_000_000, "1 d 3 h"),
    ],
)
def test_a_duration_has_at_most_two_units(ms, text):
    assert quantities.duration(ms) == text


def test_a_time_is_shown_in_utc_and_an_impossible_one_as_a_number():
    assert quantities.utc(1_700_000_000_123) == "2023-11-14 22:13:20.123 UTC"
    assert quantities.utc(-1) == "–"
    assert quantities.utc(9.2e18) == "9200000000000000000 ms"


def test_a_noun_follows_its_count():
    assert quantities.counted(1, "job") == "1 job"
    assert quantities.counted(1200, "job") == "1,200 jobs"
