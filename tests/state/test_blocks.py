"""The blocks of an operator: they cover its key groups, follow its parallelism, and split and join."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.state.blocks import Blocks, blocks_for, bytes_by_block, first_times
from penstock.state.key_groups import range_of_subtask

max_parallelisms = st.integers(1, 3_000)
sizes = max_parallelisms.flatmap(lambda most: st.tuples(st.integers(1, most), st.just(most)))
"""A parallelism and its maximum."""


def blocks_of(most):
    former = st.just(Blocks.before_format_4(most))
    return former | st.builds(blocks_for, st.integers(1, most), st.just(most))


pairs_of_blocks = max_parallelisms.flatmap(lambda most: st.tuples(blocks_of(most), blocks_of(most)))


def opened(blocks, parallelism):
    """Return how many blocks each subtask opens."""
    most = blocks.max_parallelism
    return [len(blocks.touching(range_of_subtask(n, parallelism, most))) for n in range(parallelism)]


@given(pairs_of_blocks)
def test_every_key_group_is_in_exactly_one_block(pair):
    for blocks in pair:
        ranges = [blocks.groups(block) for block in blocks.numbers]
        assert [group for groups in ranges for group in groups] == list(range(blocks.max_parallelism))
        assert all(len(groups) > 0 for groups in ranges)
        for block, groups in enumerate(ranges):
            assert {blocks.of(group) for group in groups} == {block}


@given(max_parallelisms.flatmap(lambda m: st.tuples(blocks_of(m), st.integers(0, m), st.integers(0, m))))
def test_the_blocks_that_touch_key_groups_are_those_that_contain_them(drawn):
    blocks, start, end = drawn
    groups = range(start, end)
    assert set(blocks.touching(groups)) == {blocks.of(group) for group in groups}


@given(max_parallelisms, st.integers(1, 3_000), st.integers(1, 3_000))
def test_more_blocks_divide_fewer_blocks(most, one, other):
    few, many = sorted((blocks_for(min(p, most), most) for p in (one, other)), key=lambda blocks: blocks.count)
    for block in many.numbers:
        assert len(few.touching(many.groups(block))) == 1


@given(max_parallelisms, st.integers(0, 11))
def test_each_subtask_owns_complete_blocks_at_a_power_of_two(most, exponent):
    parallelism = 2**exponent
    if parallelism <= most:
        blocks = blocks_for(parallelism, most)
        assert sum(opened(blocks, parallelism)) == len(blocks.numbers)


@given(sizes)
def test_each_subtask_has_a_block_and_shares_at_most_two(size):
    parallelism, most = size
    blocks = blocks_for(parallelism, most)
    assert len(blocks.numbers) >= parallelism
    for subtask in range(parallelism):
        owned = range_of_subtask(subtask, parallelism, most)
        shared = [block for block in blocks.touching(owned) if not set(blocks.groups(block)) <= set(owned)]
        assert len(shared) <= 2


@pytest.mark.parametrize("parallelism", [1, 2, 3, 4, 8, 16])
@pytest.mark.parametrize("most", [4, 16, 128, 32_768])
def test_a_task_opens_at_most_as_many_replicas_as_with_16_blocks(parallelism, most):
    parallelism = min(parallelism, most)
    before = opened(Blocks.before_format_4(most), parallelism)
    assert max(opened(blocks_for(parallelism, most), parallelism)) <= max(before)


@given(sizes)
def test_a_task_never_opens_more_than_16_replicas(size):
    assert max(opened(blocks_for(*size), size[0])) <= 16


@pytest.mark.parametrize(
    ("parallelism", "most", "count"),
    [
        (1, 128, 16),
        (4, 128, 16),
        (5, 128, 32),
        (8, 128, 16),
        (9, 128, 64),
        (64, 128, 64),
        (65, 1024, 512),
        (3, 12, 12),
        (60, 100, 100),
    ],
)
def test_the_number_of_blocks_follows_the_parallelism(parallelism, most, count):
    assert blocks_for(parallelism, most).count == count


@given(sizes, st.integers(1, 3_000))
def test_blocks_stay_as_long_as_they_suit(size, before):
    parallelism, most = size
    current = blocks_for(min(before, most), most)
    after = blocks_for(parallelism, most, current)
    if after != current:
        assert after == blocks_for(parallelism, most)
    assert len(after.numbers) >= parallelism
    assert max(opened(after, parallelism)) <= 16
    # A repetition changes nothing.
    assert blocks_for(parallelism, most, after) == after


def test_a_rescale_within_the_bounds_keeps_the_blocks():
    first = blocks_for(4, 128)
    assert [blocks_for(parallelism, 128, first) for parallelism in (5, 6, 8, 16, 1)] == [first] * 5
    assert blocks_for(9, 128, first).count == 64


@pytest.mark.parametrize(("most", "count"), [(128, 16), (16, 16), (13, 13), (1, 1), (0, 1), (32_768, 16)])
def test_blocks_of_earlier_formats_are_those_of_today_if_16_divides_the_key_groups(most, count):
    assert Blocks.before_format_4(most) == Blocks(max_parallelism=most, count=count)


def test_other_blocks_of_earlier_formats_are_runs_of_equal_length():
    blocks = Blocks.before_format_4(100)
    assert [blocks.groups(block) for block in (0, 13, 14)] == [range(7), range(91, 98), range(98, 100)]
    assert blocks.numbers == range(15)


@given(pairs_of_blocks, st.data())
def test_the_first_timer_of_a_new_block_is_never_too_late(pair, data):
    old, new = pair
    timers = data.draw(st.dictionaries(st.integers(0, old.max_parallelism - 1), st.integers(0, 100)))
    least = {}
    for group, time in timers.items():
        least[old.of(group)] = min(time, least.get(old.of(group), time))
    after = first_times(least, old, new)
    for group, time in timers.items():
        assert after[new.of(group)] <= time
    assert set(after.values()) <= set(least.values())


@given(pairs_of_blocks, st.data())
def test_the_bytes_of_changed_blocks_never_become_zero(pair, data):
    old, new = pair
    changed = data.draw(st.dictionaries(st.sampled_from(old.numbers), st.integers(1, 10**6)))
    after = bytes_by_block(changed, old, new)
    touched = {number for block in changed for number in new.touching(old.groups(block))}
    assert after.keys() == touched
    assert all(size > 0 for size in after.values())
    total = sum(changed.values())
    assert total <= sum(after.values()) <= total + len(new.numbers) + len(old.numbers)
