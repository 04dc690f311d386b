"""The verdict of the soak test: which changes count as growth."""

from soak.__main__ import as_table, grown

FIRST = {"epoch": 500, "seconds": 60, "heap": 100_000_000, "driver objects": 100_000, "blocks files": 10}


def test_values_within_a_fifth_are_not_growth() -> None:
    assert grown(FIRST, {**FIRST, "epoch": 5000, "seconds": 900, "heap": 119_000_000, "driver objects": 119_000}) == []


def test_growth_is_reported_with_both_values() -> None:
    last = {**FIRST, "epoch": 5000, "heap": 510_000_000}
    assert grown(FIRST, last) == ["heap: 100,000,000 at epoch 500, 510,000,000 at 5,000"]


def test_a_few_more_files_are_not_growth() -> None:
    assert grown(FIRST, {**FIRST, "blocks files": 40}) == []
    assert grown(FIRST, {**FIRST, "blocks files": 400}) != []


def test_the_table_has_a_line_per_sample() -> None:
    lines = as_table([FIRST, {**FIRST, "epoch": 1000}]).splitlines()
    assert lines[0].split() == ["epoch", "seconds", "heap", "driver", "objects", "blocks", "files"]
    assert lines[2].split() == ["1,000", "60", "100.0", "100,000", "10"]
