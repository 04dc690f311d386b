"""Bases by key groups: newer ones take over the key groups of older ones, and blocks find theirs."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.checkpoint.base_runs import BaseRuns
from penstock.checkpoint.manifest import BaseHandle

GROUPS = 24

runs = st.tuples(st.integers(0, GROUPS - 1), st.integers(1, GROUPS)).map(lambda t: range(t[0], min(sum(t), GROUPS)))


def base(number, groups, size=100):
    return BaseHandle(id=number, name=f"bases/{number}", size=size, end=groups.stop)


@given(st.lists(runs, max_size=8), runs)
def test_each_key_group_has_the_newest_base_that_was_made_of_it(made, block):
    handles, model = {}, {}
    for number, groups in enumerate(made, 1):
        handles = BaseRuns(handles).replaced({groups.start: base(number, groups)})
        model.update(dict.fromkeys(groups, number))
    parts = BaseRuns(handles).parts(block)
    assert [group for groups, _ in parts for group in groups] == list(block)
    found = {group: None if each is None else each.id for groups, each in parts for group in groups}
    assert found == {group: model.get(group) for group in block}
    assert list(handles) == sorted(handles)
    for checkpoint in range(len(made) + 2):
        expected = all(group in model and model[group] >= checkpoint for group in block)
        assert BaseRuns(handles).cover(block, checkpoint) == expected


def test_a_part_of_a_base_has_a_share_of_its_bytes():
    handles = BaseRuns({0: base(1, range(16), 160)}).replaced({4: base(2, range(4, 8), 7)})
    assert {first: (handle.end, handle.size) for first, handle in handles.items()} == {
        0: (4, 40),
        4: (8, 7),
        8: (16, 80),
    }
    assert [part.base.size for part in BaseRuns(handles).parts(range(2, 12))] == [20, 7, 40]


def test_handles_that_no_newer_base_touches_are_shared() -> None:
    handles = {first: BaseHandle(id=1, name=f"{first}", size=8, end=first + 8) for first in (0, 8, 16)}
    after = BaseRuns(handles).replaced({8: BaseHandle(id=2, name="new", size=8, end=12)})
    assert after[0] is handles[0]
    assert after[16] is handles[16]
    assert after[12] == BaseHandle(id=1, name="8", size=4, end=16)
