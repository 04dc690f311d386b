"""The watermark of a task over its channels."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.runtime.watermarks import GREATEST, LEAST, Valve


class Told:
    """A valve over numbered channels, and everything it told."""

    def __init__(self, channels, watermark=LEAST):
        self.steps = []
        self.valve = Valve(self.steps.append, lambda: self.steps.append("idle"), lambda: self.steps.append("active"))
        for channel in range(1, channels + 1):
            self.valve.open(channel, watermark)

    def __call__(self, *events):
        """Tell it `(channel, watermark)`, `(channel, "idle")` or `(channel, "active")`; what it said to these."""
        self.steps.clear()
        for channel, what in events:
            if what == "idle":
                self.valve.suspend(channel)
            elif what == "active":
                self.valve.activate(channel)
            else:
                self.valve.mark(channel, what)
        return list(self.steps)


def test_one_channel_goes_only_forward():
    told = Told(1)
    assert told((1, 25)) == [25]
    assert told((1, 18)) == []
    assert told((1, 42)) == [42]


def test_the_smallest_of_three_counts_and_one_that_is_silent_holds_back_until_it_is_idle():
    told = Told(3)
    assert told((1, 15), (2, 10)) == []
    assert told((3, "idle")) == [10]
    assert told((2, 18)) == [15]
    assert told((1, 20)) == [18]


def test_when_the_last_goes_idle_the_furthest_counts():
    told = Told(3)
    assert told((1, 10), (2, 5), (3, 3)) == [3]
    assert told((1, "idle")) == []
    assert told((2, "idle")) == []
    assert told((3, "idle")) == [10, "idle"]


def test_a_channel_that_wakes_up_behind_counts_when_it_has_caught_up():
    told = Told(3)
    assert told((1, 10), (2, 7), (3, 3)) == [3]
    assert told((3, "idle")) == [7]
    assert told((3, 5)) == []
    assert told((3, 9)) == []
    assert told((2, 12)) == [9]


def test_the_task_wakes_with_its_first_channel():
    told = Told(2)
    assert told((1, 4), (1, "idle"), (2, "idle")) == [4, "idle"]
    assert told((2, "active")) == ["active"]
    assert told((2, 3)) == []
    assert told((2, 6)) == [6]


def test_ended_input_is_the_greatest_watermark():
    told = Told(2)
    assert told((1, GREATEST), (2, GREATEST)) == [GREATEST]


def test_channels_that_stood_somewhere_let_the_task_go_on_at_once():
    steps = []
    valve = Valve(steps.append, watermark=3)
    valve.open("a", 5)
    valve.open("b", 8)
    valve.open("c", 1, idle=True)
    valve.settle()
    assert steps == [5]
    valve.mark("c", 4)
    assert valve.watermark == 5


@pytest.mark.parametrize("idle", [False, True])
@given(
    events=st.lists(
        st.tuples(st.integers(1, 4), st.one_of(st.integers(0, 60), st.sampled_from(["idle", "active"]))), max_size=60
    )
)
def test_it_never_goes_back_and_never_passes_a_channel_that_counts(idle, events):
    told = Told(4)
    marks = dict.fromkeys(range(1, 5), LEAST)
    said = []
    for channel, what in events:
        if not idle and isinstance(what, str):
            continue
        said += told((channel, what))
        if isinstance(what, int):
            marks[channel] = max(marks[channel], what)
    watermarks = [each for each in said if isinstance(each, int)]
    assert watermarks == sorted(set(watermarks))
    if not idle:
        assert (watermarks[-1] if watermarks else LEAST) == min(marks.values())
    elif watermarks:
        assert watermarks[-1] <= max(marks.values())
