"""State ordered by time behaves like a dict of lists across epochs, and its deltas contain only changes."""

import tempfile
from contextlib import ExitStack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common import Types
from penstock.state.engines.lmdb import LmdbEngine
from penstock.state.engines.memory import MemoryEngine
from penstock.state.keys import encode_key
from penstock.state.overlay import Overlay
from penstock.state.timeline import TimelineDescriptor

KEYS = ["a", "b", "long " * 90]
TIMES = [-(2**63), -5, -1, 0, 3, 2**63 - 1]
ENGINES = ["memory", "lmdb"]


class Standing:
    """The committed state below an epoch: one engine for all key groups."""

    def __init__(self, reader):
        self._reader = reader

    def reader(self, group):
        return self._reader


class Operator:
    """A timeline on an engine, epoch by epoch."""

    def __init__(self, engine, type_info):
        self.engine = engine
        self.overlay = Overlay(4)
        self.state = self.overlay.register(TimelineDescriptor("line", type_info))
        self.delta = []

    def epoch(self, number, work):
        with self.engine.reader() as reader:
            self.overlay.begin(number, Standing(reader))
            work(self)
            changes = list(self.overlay.changes())
            self.overlay.release()
        self.delta = [entry for change in changes for entry in change.entries]
        assert self.engine.apply(self.engine.position(), changes, b"%d" % number)

    def at(self, key):
        self.overlay.key = encode_key(key)
        return self.state


def over(kind, type_info=None):
    stack = ExitStack()
    if kind == "memory":
        return stack, Operator(MemoryEngine(), type_info)
    return stack, Operator(LmdbEngine(stack.enter_context(tempfile.TemporaryDirectory())), type_info)


steps = st.one_of(
    st.tuples(st.just("add"), st.sampled_from(KEYS), st.sampled_from(TIMES), st.integers()),
    st.tuples(st.just("remove"), st.sampled_from(KEYS), st.sampled_from(TIMES)),
    st.tuples(st.just("spill"), st.sampled_from(KEYS)),
    st.tuples(st.just("look"), st.sampled_from(KEYS), st.sampled_from([*TIMES, -(2**70)]), st.sampled_from(TIMES)),
)


@settings(deadline=None)
@given(
    epochs=st.lists(st.lists(steps, max_size=12), max_size=5),
    kind=st.sampled_from(ENGINES),
    type_info=st.sampled_from([None, Types.BIG_INT()]),
)
def test_a_timeline_behaves_like_a_dict_of_lists(epochs, kind, type_info):
    oracle = {key: {} for key in KEYS}

    def work(steps):
        def run(operator):
            for step, key, *rest in steps:
                state, expected = operator.at(key), oracle[key]
                if step == "add":
                    state.add(*rest)
                    expected.setdefault(rest[0], []).append(rest[1])
                elif step == "remove":
                    gone = {time for time in expected if time <= rest[0]}
                    assert state.remove_until(rest[0]) == gone
                    for time in gone:
                        del expected[time]
                    assert state.times() == sorted(expected)
                elif step == "spill":
                    operator.overlay.spill()
                else:
                    low, high = rest
                    assert list(state.between(low, high)) == [
                        (time, value) for time in sorted(expected) if low <= time <= high for value in expected[time]
                    ]
            for key in KEYS:
                assert operator.at(key).value() == (oracle[key] or None)

        return run

    stack, operator = over(kind, type_info)
    with stack:
        for number, each in enumerate([*epochs, []], 1):
            operator.epoch(number, work(each))


@pytest.mark.parametrize("kind", ENGINES)
def test_a_delta_contains_changed_times_but_not_elements_added_and_removed_within_the_epoch(kind):
    stack, operator = over(kind)
    with stack:
        operator.epoch(1, lambda op: [op.at("a").add(time, "x") for time in range(100)])
        assert len(operator.delta) == 100
        operator.epoch(2, lambda op: (op.at("a").add(7, "y"), op.at("a").remove_until(1)))
        assert [value is None for _, value in operator.delta] == [True, True, False]
        operator.epoch(3, lambda op: (op.at("b").add(1, "z"), op.at("b").remove_until(1), op.at("c").remove_until(1)))
        assert operator.delta == []


@pytest.mark.parametrize("kind", ENGINES)
def test_modifying_an_element_does_not_change_the_timeline(kind):
    stack, operator = over(kind)

    def work(op):
        element = ["x"]
        op.at("a").add(1, element)
        element.append("later")
        next(op.at("a").between(1, 1))[1].append("again")
        assert op.at("a").value() == {1: [["x"]]}

    with stack:
        operator.epoch(1, work)
        operator.epoch(2, lambda op: next(op.at("a").between(1, 1))[1].append("again"))
        operator.epoch(3, lambda op: op.at("a").value() == {1: [["x"]]} or pytest.fail("changed"))


@pytest.mark.parametrize("kind", ENGINES)
def test_elements_added_during_an_iteration_are_not_yielded(kind):
    stack, operator = over(kind)

    def work(op):
        state = op.at("a")
        state.add(1, "x")
        for time, element in state.between(0, 10):
            state.add(time, element)
            state.add(time + 1, element)
        assert state.value() == {1: ["x", "x"], 2: ["x"]}

    with stack:
        operator.epoch(1, work)
