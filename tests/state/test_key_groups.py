"""Key groups: every group has one owner."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.state.key_groups import (
    ParallelismError,
    check_parallelism,
    default_max_parallelism,
    key_group_of,
    owner_of,
    range_of_subtask,
)
from penstock.state.keys import encode_key


@st.composite
def layouts(draw):
    max_parallelism = draw(st.integers(1, 2_000))
    return draw(st.integers(1, max_parallelism)), max_parallelism


def test_128_groups_are_split_over_3_subtasks():
    ranges = [range_of_subtask(i, 3, 128) for i in range(3)]
    assert ranges == [range(0, 43), range(43, 86), range(86, 128)]


@given(layouts())
def test_every_group_is_in_exactly_the_range_of_its_owner(layout):
    parallelism, max_parallelism = layout
    seen = []
    for subtask in range(parallelism):
        owned = range_of_subtask(subtask, parallelism, max_parallelism)
        assert len(owned) > 0
        assert {owner_of(group, parallelism, max_parallelism) for group in owned} == {subtask}
        seen.extend(owned)
    assert seen == list(range(max_parallelism))


@pytest.mark.parametrize(("before", "after"), [(4, 2), (2, 4), (15, 77), (77, 15)])
def test_every_key_is_with_its_owner_only_after_a_rescale(before, after):
    keys = {encode_key(f"user-{i}") for i in range(1_000)}
    for parallelism in (before, after):
        held = [
            {key for key in keys if key_group_of(key, 128) in range_of_subtask(i, parallelism, 128)}
            for i in range(parallelism)
        ]
        assert sum(map(len, held)) == len(keys)
        for i, part in enumerate(held):
            assert all(owner_of(key_group_of(key, 128), parallelism, 128) == i for key in part)


@pytest.mark.parametrize(
    ("parallelism", "groups"),
    [(1, 128), (85, 128), (86, 256), (200, 512), (21_845, 32_768), (32_768, 32_768)],
)
def test_the_default_max_parallelism_depends_on_the_parallelism(parallelism, groups):
    assert default_max_parallelism(parallelism) == groups


@pytest.mark.parametrize(("parallelism", "max_parallelism"), [(0, 128), (129, 128), (1, 0), (1, 32_769), (-1, 128)])
def test_an_incompatible_parallelism_and_max_parallelism_are_rejected(parallelism, max_parallelism):
    with pytest.raises(ParallelismError):
        check_parallelism(parallelism, max_parallelism)


def test_default_max_parallelism_rejects_an_invalid_parallelism():
    for parallelism in (0, 32_769):
        with pytest.raises(ParallelismError, match="from 1 to 32768"):
            default_max_parallelism(parallelism)


@pytest.mark.parametrize(
    ("key", "group"), [("user-1", 30), (1, 48), (b"\x00", 14), (("a", 1), 47), (None, 12), ("", 79)]
)
def test_the_key_group_of_a_key_never_changes(key, group):
    # Golden values: if one of these changes, every savepoint becomes unreadable.
    assert key_group_of(encode_key(key), 128) == group


def test_the_hash_is_xxh64_with_seed_0():
    # The published test vector for empty input.
    assert key_group_of(b"", 1 << 15) == 0xEF46DB3751D8E999 % (1 << 15)


def test_keys_spread_evenly_over_the_groups():
    counts = [0] * 128
    for i in range(12_800):
        counts[key_group_of(encode_key(i), 128)] += 1
    assert min(counts) > 50
    assert max(counts) < 160
