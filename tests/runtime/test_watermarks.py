"""The watermark of a task over its channels."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.runtime.watermarks import GREATEST, LEAST, Valve


class RecordingValve:
    """A valve over numbered channels that records its announcements."""

    def __init__(self, channels, watermark=LEAST):
        self.steps = []
        self.valve = Valve(self.steps.append, lambda: self.steps.append("idle"), lambda: self.steps.append("active"))
        for channel in range(1, channels + 1):
            self.valve.open(channel, watermark)

    def __call__(self, *events):
        """Apply `(channel, watermark)`, `(channel, "idle")` or `(channel, "active")`, and return the announcements."""
        self.steps.clear()
        for channel, what in events:
            if what == "idle":
                self.valve.suspend(channel)
            elif what == "active":
                self.valve.activate(channel)
            else:
                self.valve.mark(channel, what)
        return list(self.steps)


def test_the_watermark_of_a_channel_never_moves_backwards():
    recording = RecordingValve(1)
    assert recording((1, 25)) == [25]
    assert recording((1, 18)) == []
    assert recording((1, 42)) == [42]


def test_the_smallest_of_three_counts_and_a_silent_channel_blocks_until_it_is_idle():
    recording = RecordingValve(3)
    assert recording((1, 15), (2, 10)) == []
    assert recording((3, "idle")) == [10]
    assert recording((2, 18)) == [15]
    assert recording((1, 20)) == [18]


def test_the_largest_watermark_counts_when_the_last_channel_becomes_idle():
    recording = RecordingValve(3)
    assert recording((1, 10), (2, 5), (3, 3)) == [3]
    assert recording((1, "idle")) == []
    assert recording((2, "idle")) == []
    assert recording((3, "idle")) == [10, "idle"]


def test_a_channel_that_becomes_active_behind_counts_once_it_has_caught_up():
    recording = RecordingValve(3)
    assert recording((1, 10), (2, 7), (3, 3)) == [3]
    assert recording((3, "idle")) == [7]
    assert recording((3, 5)) == []
    assert recording((3, 9)) == []
    assert recording((2, 12)) == [9]


def test_the_task_becomes_active_with_its_first_channel():
    recording = RecordingValve(2)
    assert recording((1, 4), (1, "idle"), (2, "idle")) == [4, "idle"]
    assert recording((2, "active")) == ["active"]
    assert recording((2, 3)) == []
    assert recording((2, 6)) == [6]


def test_the_end_of_the_input_is_the_greatest_watermark():
    recording = RecordingValve(2)
    assert recording((1, GREATEST), (2, GREATEST)) == [GREATEST]


def test_restored_channels_advance_the_task_immediately():
    steps = []
    valve = Valve(steps.append, watermark=3)
    valve.open("a", 5)
    valve.open("b", 8)
    valve.open("c", 1, idle=True)
    valve.settle()
    assert steps == [5]
    valve.mark("c", 4)
    assert valve.watermark == 5


def test_a_channel_that_becomes_active_ahead_of_the_task_advances_it_while_another_lags():
    recording = RecordingValve(3)
    a, b, c = 1, 2, 3
    assert recording((b, "idle"), (a, 12), (c, 11)) == [11]
    # B becomes active far behind and does not count; C becomes idle, so nothing counts until A is back.
    assert recording((a, "idle"), (b, "active"), (c, "idle")) == []
    assert recording((a, "active")) == [12]
    assert recording((a, 20), (a, 30)) == [20, 30]
    # B counts as soon as it has caught up.
    assert recording((b, 29), (a, 40)) == [40]
    assert recording((b, 45), (a, 60)) == [45]


def test_the_last_channel_to_become_idle_lets_the_largest_watermark_count_even_if_it_was_behind():
    recording = RecordingValve(3)
    a, b, c = 1, 2, 3
    assert recording((c, 5), (c, "idle"), (a, 80), (b, 10)) == [10]
    assert recording((c, "active"), (a, "idle"), (b, "idle")) == []
    assert recording((c, "idle")) == [80, "idle"]


def test_a_channel_that_stays_idle_never_counts():
    recording = RecordingValve(3)
    recording((1, 100), (1, "idle"), (2, "idle"), (3, 50), (3, "idle"), (2, "active"))
    assert recording.valve.watermark == 100
    steps = []
    valve = Valve(steps.append, watermark=50)
    valve.open("behind", 30)
    valve.open("idle", 100, idle=True)
    valve.settle()
    valve.suspend("idle", LEAST)
    assert steps == []


class ReferenceValve:
    """The rules of the valve, applied statelessly to all channels after each event."""

    def __init__(self, channels):
        self.marks = dict.fromkeys(range(1, channels + 1), LEAST)
        self.idle = set()
        self.watermark = LEAST
        self.resting = False

    def __call__(self, channel, what):
        announced = []
        if what == "idle":
            self.idle.add(channel)
        else:
            self.idle.discard(channel)
            if self.resting:
                self.resting = False
                announced.append("active")
            announced += self.settle()
            if what != "active":
                self.marks[channel] = max(self.marks[channel], what)
        return announced + self.settle()

    def settle(self):
        active = {channel: mark for channel, mark in self.marks.items() if channel not in self.idle}
        counting = [mark for mark in active.values() if mark >= self.watermark]
        reached = min(counting) if counting else max(self.marks.values()) if not active else self.watermark
        announced = [reached] if reached > self.watermark else []
        self.watermark = max(self.watermark, reached)
        if not active and not self.resting:
            self.resting = True
            announced.append("idle")
        return announced


class FlinkValve:
    """Flink's StatusWatermarkValve in plain Python; a watermark of an idle channel makes it active first."""

    def __init__(self, channels):
        self.marks = dict.fromkeys(range(1, channels + 1), LEAST)
        self.active = set(self.marks)
        self.aligned = set(self.marks)
        self.watermark = LEAST

    def __call__(self, channel, what):
        if what == "idle":
            if channel in self.active:
                self.active.discard(channel)
                self.aligned.discard(channel)
                if self.marks[channel] == self.watermark:
                    if self.active:
                        self.step()
                    else:
                        self.watermark = max(self.marks.values())
            return
        if channel not in self.active:
            self.active.add(channel)
            if self.marks[channel] >= self.watermark:
                self.aligned.add(channel)
        if what != "active" and what > self.marks[channel]:
            self.marks[channel] = what
            if what >= self.watermark:
                self.aligned.add(channel)
            self.step()

    def step(self):
        if self.aligned:
            self.watermark = max(self.watermark, min(self.marks[channel] for channel in self.aligned))


EVENTS = st.lists(
    st.tuples(st.integers(1, 4), st.one_of(st.integers(0, 60), st.sampled_from(["idle", "active"]))), max_size=60
)


@given(events=EVENTS)
def test_the_valve_follows_its_rules(events):
    recording, reference = RecordingValve(4), ReferenceValve(4)
    for channel, what in events:
        assert recording((channel, what)) == reference(channel, what)


@given(events=EVENTS)
def test_the_valve_is_never_behind_flinks_and_equals_it_while_no_channel_is_idle(events):
    recording, flink = RecordingValve(4), FlinkValve(4)
    idle = False
    for channel, what in events:
        recording((channel, what))
        flink(channel, what)
        idle |= what == "idle"
        assert recording.valve.watermark >= flink.watermark
        assert idle or recording.valve.watermark == flink.watermark


@given(events=EVENTS, cuts=st.sets(st.integers(0, 60)))
def test_a_restored_valve_continues_as_if_there_were_no_epoch_boundary(events, cuts):
    recording, reference = RecordingValve(4), ReferenceValve(4)
    for place, (channel, what) in enumerate(events):
        if place in cuts:
            steps = []
            valve = Valve(steps.append, watermark=recording.valve.watermark)
            for each, mark in reference.marks.items():
                valve.open(each, mark, each in reference.idle)
            valve.settle()
            assert steps == []
            recording.valve = valve
        recording((channel, what))
        reference(channel, what)
        assert recording.valve.watermark == reference.watermark


@pytest.mark.parametrize("idle", [False, True])
@given(
    events=st.lists(
        st.tuples(st.integers(1, 4), st.one_of(st.integers(0, 60), st.sampled_from(["idle", "active"]))), max_size=60
    )
)
def test_the_valve_never_moves_backwards_and_never_passes_a_channel_that_counts(idle, events):
    recording = RecordingValve(4)
    marks = dict.fromkeys(range(1, 5), LEAST)
    announced = []
    for channel, what in events:
        if not idle and isinstance(what, str):
            continue
        announced += recording((channel, what))
        if isinstance(what, int):
            marks[channel] = max(marks[channel], what)
    watermarks = [each for each in announced if isinstance(each, int)]
    assert watermarks == sorted(set(watermarks))
    if not idle:
        assert (watermarks[-1] if watermarks else LEAST) == min(marks.values())
    elif watermarks:
        assert watermarks[-1] <= max(marks.values())
